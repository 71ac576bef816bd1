"""Compares each row of a known tool's table with the limits of the machine that it ran on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import judge_result
from railwright.errors import UsageError
from railwright.expected.bands import scale_band
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.bus_rates import busbw_scale, is_nccl
from railwright.faults.fault import Fault
from railwright.limits.limit import Limit
from railwright.limits.traffic import ALGORITHMS
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result
from railwright.results.workload import Collective, Copy, Linpack, Workload, describe
from railwright.topology.changes import remove_devices
from railwright.topology.cluster import Cluster, build_cluster
from railwright.units import format_count


def fit_machine(file: ForeignFile, machine: Machine) -> Machine:
    """Return the machine with the table's number of hosts and GPUs. Raises UsageError if they do not fit.

    A table without a number of ranks is assumed to be of the whole given machine; a missing number of hosts is derived
    from the ranks.
    """
    cluster = machine.cluster
    workload = file.workload
    if workload.transport == "sockets" and file.hosts == 2 and cluster.hosts == 1 and not machine.path:
        two = build_cluster(cluster.host, 2, cluster.fabric, cluster.storage, cluster.name)
        return dataclasses.replace(machine, cluster=two)
    if file.ranks is None or not isinstance(workload, Collective | Linpack):
        return machine
    if isinstance(workload, Linpack):  # one rank per GPU; a machine without GPUs may have any number
        if 0 < cluster.ranks < file.ranks:
            raise UsageError(
                f"the run has {format_count(file.ranks, 'rank')}, but {cluster.name[:80]} has "
                f"{format_count(cluster.ranks, 'GPU')} on {format_count(cluster.hosts, 'host')}",
                hint="give the number of hosts with --count",
            )
        return machine
    hosts = file.hosts or _count_hosts(file.ranks, cluster)
    if workload.by == "mpi" and (file.ranks % hosts or file.ranks > hosts * cluster.gpus_per_host):
        return machine  # MPI ranks need no GPU, so nothing can be derived from GPUs
    table = f"the table has {format_count(file.ranks, 'rank')} on {format_count(hosts, 'host')}"
    if file.ranks % hosts:
        raise UsageError(
            f"{table}, which is not the same number per host",
            hint="give the machine that it ran on, with --count for the number of hosts; unequal hosts are not judged",
        )
    if file.hosts and 1 < cluster.hosts < file.hosts:
        raise UsageError(
            f"{table}, but --count or the cluster file gives {cluster.hosts}", hint=f"give --count {file.hosts}"
        )
    each = file.ranks // hosts
    if each > cluster.gpus_per_host:
        raise UsageError(
            f"{table}, {each} per host, but {cluster.host.name[:80]} has {format_count(cluster.gpus_per_host, 'GPU')}",
            hint="give the shape that it ran on, such as gpus=8"
            + ("" if file.hosts else ", or more hosts with --count"),
        )
    # A job on some GPUs of a machine can use all of its NICs.
    host = remove_devices(cluster.host, {gpu.id for gpu in cluster.host.of_kind("gpu")[each:]})
    smaller = build_cluster(host, hosts, cluster.fabric, cluster.storage, cluster.name)
    return dataclasses.replace(machine, cluster=smaller)


def _count_hosts(ranks: int, cluster: Cluster) -> int:
    """Return the number of hosts of a table that does not state it.

    The given hosts are used if the ranks fill all their GPUs or do not divide into whole hosts; otherwise the table has
    whole hosts, because jobs on a part of each host's GPUs are rare.
    """
    each = cluster.gpus_per_host
    if ranks == cluster.ranks or not each or ranks % each:
        return min(cluster.hosts, ranks)
    return ranks // each


def differences(file: ForeignFile, given: Machine, placed: Machine) -> tuple[str, ...]:
    """Return notes on the differences between the table's run and the given machine."""
    return tuple(_list_differences(file, given, placed.cluster))


def _list_differences(file: ForeignFile, machine: Machine, placed: Cluster) -> Iterator[str]:
    given = machine.cluster
    if file.workload.pages and machine.measured is not None:
        yield (
            f"compared with copies of the given run on {file.workload.pages} pages, which {file.tool}'s buffers use:"
            " both processes are assumed to be on that host"
        )
    if file.ranks is None and is_collective(file):
        yield f"the table does not state the number of ranks: all {given.ranks} of the machine are assumed"
    if placed.hosts < given.hosts:
        yield f"the table has {format_count(placed.hosts, 'host')} of the {given.hosts} given"
    if placed.gpus_per_host < given.gpus_per_host:
        yield (f"{placed.gpus_per_host} of the {given.gpus_per_host} GPUs of each host took part; all NICs are counted")


def judge_rows(file: ForeignFile, machine: Machine) -> tuple[Judged, ...]:
    """Judge every row. Tools that do not verify their data are judged without verification."""
    with_environment = dataclasses.replace(machine, environment=file.environment)
    return tuple(_judge_row(result, file, with_environment) for result in file.results)


def row_workload(result: Result, file: ForeignFile) -> Workload:
    """Return the workload of a row of a table."""
    workload = describe(file.workload, result)
    if not isinstance(workload, Copy):
        workload = replace(workload, path="")  # other tools name kinds of memory, not devices
    ranks = result.ranks if isinstance(workload, Linpack) else file.ranks
    return replace(workload, ranks=ranks, pages=workload.pages or file.workload.pages)


def is_collective(file: ForeignFile) -> bool:
    """Report whether the table is of a collective with known algorithms."""
    return is_nccl(file) and file.test in ALGORITHMS


def collective_name(file: ForeignFile) -> str:
    """Return the NCCL name of the table's collective; empty if it is not of a collective."""
    return file.workload.operation if isinstance(file.workload, Collective) else ""


def can_affect(fault: Fault, file: ForeignFile) -> bool:
    """Report whether a fault can affect the table's tool, collective and memory."""
    workload = file.workload
    in_host_memory = isinstance(workload, Collective) and workload.in_host_memory
    return fault.can_affect(workload.transport, collective_name(file), in_host_memory=in_host_memory)


def _judge_row(result: Result, file: ForeignFile, machine: Machine) -> Judged:
    scale = busbw_scale(file)
    value = result.summary.median * scale if result.summary else None
    limit, expected = expect(row_workload(result, file), machine)
    if isinstance(limit, Limit):
        limit = replace(limit, value=limit.value * scale)
    if expected is not None:
        expected = scale_band(expected, scale, scale)
    return judge_result(result, value, (limit, expected), result.verification, must_check=False)
