"""The table of a known tool, held row by row against what the machine it ran on can reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.busbw import OPERATIONS, bus_bandwidth
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import judged
from railwright.errors import UsageError
from railwright.expected.bands import scaled
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Limit
from railwright.limits.traffic import ALGORITHMS
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result
from railwright.results.workload import Collective, Copy, Linpack, Workload, describe
from railwright.topology.changes import without
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.gpu_models import is_model
from railwright.topology.shapes import SHAPES
from railwright.units import count

_MOST_MODELS = 8
"""GPU names of a table that are looked at; a job has one, or a few."""


def machine_for(file: ForeignFile, machine: Machine) -> Machine:
    """The machine with as many hosts and GPUs as the table has. Raises UsageError where they cannot be those.

    A table that does not say how many hosts there were is taken to be of all hosts given.
    """
    cluster = machine.cluster
    workload = file.workload
    if workload.transport == "sockets" and file.hosts == 2 and cluster.hosts == 1 and not machine.path:
        two = cluster_of(cluster.host, 2, cluster.fabric, cluster.storage, cluster.name)
        return dataclasses.replace(machine, cluster=two)
    if file.ranks is None or not isinstance(workload, Collective | Linpack):
        return machine
    if isinstance(workload, Linpack):  # a rank for each GPU; a machine without GPUs may have any number
        if 0 < cluster.ranks < file.ranks:
            raise UsageError(
                f"the run has {count(file.ranks, 'rank')}, {cluster.name[:80]} has {count(cluster.ranks, 'GPU')} on"
                f" {count(cluster.hosts, 'host')}",
                hint="give the number of hosts with --count",
            )
        return machine
    hosts = file.hosts or _hosts_of(file.ranks, cluster)
    if workload.by == "mpi" and (file.ranks % hosts or file.ranks > hosts * cluster.gpus_per_host):
        return machine  # ranks of MPI need no GPU; then nothing is derived
    table = f"the table has {count(file.ranks, 'rank')} on {count(hosts, 'host')}"
    if file.ranks % hosts:
        raise UsageError(
            f"{table}, which is not the same number on each",
            hint="give the machine it ran on, with --count for the number of hosts; hosts that differ are not judged",
        )
    if file.hosts and 1 < cluster.hosts < file.hosts:
        raise UsageError(
            f"{table}, --count or the cluster file give {cluster.hosts}", hint=f"give --count {file.hosts}"
        )
    each = file.ranks // hosts
    if each > cluster.gpus_per_host:
        raise UsageError(
            f"{table}, so {each} on each; {cluster.host.name[:80]} has {count(cluster.gpus_per_host, 'GPU')}",
            hint="give the shape it ran on, like gpus=8" + ("" if file.hosts else ", or more hosts with --count"),
        )
    # A job on the first GPUs of a machine still has all its NICs.
    host = without(cluster.host, {gpu.id for gpu in cluster.host.of_kind("gpu")[each:]})
    smaller = cluster_of(host, hosts, cluster.fabric, cluster.storage, cluster.name)
    return dataclasses.replace(machine, cluster=smaller)


def _hosts_of(ranks: int, cluster: Cluster) -> int:
    """The hosts of a table that does not say how many there were.

    The given ones, where each has the same number of ranks and enough GPUs for them, and whole hosts otherwise: jobs
    on a part of each host's GPUs are rare. A table of fewer ranks than the machine has is of whole hosts too.
    """
    each = cluster.gpus_per_host
    if ranks == cluster.ranks or not each or ranks % each:
        return min(cluster.hosts, ranks)
    return ranks // each


def differences(file: ForeignFile, given: Machine, placed: Machine) -> tuple[str, ...]:
    """What the reader must know where the table is not of exactly the machine that was given."""
    return tuple(_differences(file, given, placed.cluster))


def _differences(file: ForeignFile, machine: Machine, placed: Cluster) -> Iterator[str]:
    given = machine.cluster
    if file.workload.pages and machine.measured is not None:
        yield (
            f"held against copies on {file.workload.pages} pages, as {file.tool}'s buffers lie, of the run beside it:"
            " both processes are taken to be on that host"
        )
    if file.ranks is None and is_collective(file):
        yield f"the table does not say how many ranks there were: all {given.ranks} of the machine are assumed"
    if placed.hosts < given.hosts:
        yield f"the table has {count(placed.hosts, 'host')} of the {given.hosts} given"
    if placed.gpus_per_host < given.gpus_per_host:
        yield (
            f"{placed.gpus_per_host} of the {given.gpus_per_host} GPUs of each host took part; all its NICs are counted"
        )


def shapes_for(file: ForeignFile) -> tuple[str, ...]:
    """The names of the shapes that have the GPU that the table names, and enough of them in one host."""
    each = -(-file.ranks // (file.hosts or 1)) if file.ranks else 1
    return tuple(
        name
        for name, shape in SHAPES.items()
        if shape.gpu is not None
        and (each <= shape.layout.gpus or not file.hosts)
        and any(is_model(seen, shape.gpu.name) for seen in file.gpus[:_MOST_MODELS])
    )


def judge_rows(file: ForeignFile, machine: Machine) -> tuple[Judged, ...]:
    """Every row with limit, band and verdict. Tools that do not check their data are judged without that check."""
    asked = dataclasses.replace(machine, environment=file.environment)
    return tuple(_judged(result, file, asked) for result in file.results)


def row_workload(result: Result, file: ForeignFile) -> Workload:
    """The workload of one row of a table."""
    workload = describe(file.workload, result)
    if not isinstance(workload, Copy):
        workload = replace(workload, path="")  # other tools name kinds of memory and no devices
    ranks = result.ranks if isinstance(workload, Linpack) else file.ranks
    return replace(workload, ranks=ranks, pages=workload.pages or file.workload.pages)


def is_busbw(file: ForeignFile) -> bool:
    """Whether the table's rates are judged and shown as busbw, as its readers are used to; that of one rank is 0."""
    return _is_of_nccl(file) and file.ranks is not None and file.ranks > 1


def busbw_scale(file: ForeignFile) -> float:
    """What the table's rates, which are algbw, are multiplied by."""
    return bus_bandwidth(file.test, file.ranks, 1.0) if is_busbw(file) and file.ranks is not None else 1.0


def is_collective(file: ForeignFile) -> bool:
    """Whether the table is of a collective whose algorithms are known."""
    return _is_of_nccl(file) and file.test in ALGORITHMS


def operation_of(file: ForeignFile) -> str:
    """The collective that the table is of, as NCCL calls it; empty where it is of none."""
    return file.workload.operation if isinstance(file.workload, Collective) else ""


def _is_of_nccl(file: ForeignFile) -> bool:
    return isinstance(file.workload, Collective) and file.workload.by == "nccl" and file.test in OPERATIONS


def _judged(result: Result, file: ForeignFile, machine: Machine) -> Judged:
    scale = busbw_scale(file)
    value = result.summary.median * scale if result.summary else None
    limit, expected = expect(row_workload(result, file), machine)
    if isinstance(limit, Limit):
        limit = replace(limit, value=limit.value * scale)
    if expected is not None:
        expected = scaled(expected, scale, scale)
    return judged(result, value, (limit, expected), result.verification, must_check=False)
