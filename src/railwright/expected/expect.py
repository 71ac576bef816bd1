"""The limit and band of any workload on a machine, computed only here.

Our own runs, other tools' tables, the limits of clusters and the curves of faults all call `expect`. A fault's curve is
computed for a machine with that fault.
"""

from __future__ import annotations

from dataclasses import replace as change

from msgspec.structs import replace

from railwright.expected.copies import expect_copy
from railwright.expected.files import expect_files
from railwright.expected.lab_links import expect_over_links
from railwright.expected.links import expect_crossing
from railwright.expected.linpack import expect_linpack
from railwright.expected.machine import Machine
from railwright.expected.memory import expect_memory
from railwright.expected.messages import expect_message
from railwright.expected.mpi_collectives import expect_by_mpi
from railwright.expected.nccl_collectives import expect_by_nccl
from railwright.expected.shared_memory import bound_by_socket
from railwright.limits.limit import Bounds, Limit
from railwright.results.declarations import no_limit
from railwright.results.workload import (
    Collective,
    Copy,
    Crossing,
    Files,
    Linpack,
    Memory,
    Message,
    Unlimited,
    Workload,
)


def expect(workload: Workload, machine: Machine) -> Bounds:
    """Return the limit, or the reason why there is none, and the band of healthy machines at that size if known.

    It never raises for the content of a record.
    """
    if isinstance(workload, Linpack):
        return expect_linpack(workload, machine)
    if isinstance(workload, Crossing):
        return expect_crossing(workload, machine)
    if isinstance(workload, Files) and workload.of in ("mount", "read ahead"):
        return expect_files(workload, machine)  # its ranks are independent, on any hosts
    if workload.shares_cores:
        return no_limit(workload, f"functional run: its {workload.ranks} ranks shared cores")
    if is_between_hosts(workload):
        return _expect_between_hosts(workload, machine)
    match workload:
        case Collective():
            return expect_by_mpi(workload, machine) if workload.by == "mpi" else expect_by_nccl(workload, machine)
        case Message():
            return expect_message(workload, machine)
        case Copy():
            return expect_copy(workload, machine)
        case Files():
            return expect_files(workload, machine)
        case Memory():
            return expect_memory(workload, machine)
        case Unlimited():
            return no_limit(workload, workload.why)
        case _:
            return no_limit(workload, f"no limit is derived for the workload {type(workload).__name__}")


def _add_host(machine: Machine) -> Machine:
    """Return the machine of a run with another host like it. The other hosts of a run are taken to be alike."""
    return change(machine, cluster=replace(machine.cluster, hosts=2))


def is_between_hosts(workload: Workload) -> bool:
    """Report whether the path names hosts: `memory0@0>memory0@1`."""
    return "@" in workload.path


def _expect_between_hosts(workload: Workload, machine: Machine) -> Bounds:
    """Return the bounds from the links between the hosts if known, else from plain sockets between the same hosts, else
    from the ports of the cluster's hosts. Links that TCP measured do not bound RDMA, which NCCL may use.
    """
    is_nccl = isinstance(workload, Collective) and workload.by == "nccl"
    may_use_rdma = is_nccl or workload.transport == "verbs"
    links = None if may_use_rdma and machine.links is not None and machine.links.measured else machine.links
    if links is not None and (found := expect_over_links(links, workload)) is not None:
        return found
    if isinstance(workload, Message) and workload.over == "tcp" and machine.measured is not None:
        limit, band = bound_by_socket(machine.measured, workload)
        if isinstance(limit, Limit):
            return limit, band
    if workload.hosts_in_one_machine and links is None:
        return no_limit(workload, "the hosts are parts of one machine, and the links between them are not known")
    if isinstance(workload, Collective) and is_nccl and links is None:
        return expect_by_nccl(workload, machine)
    if isinstance(workload, Message) and (machine.cluster.hosts > 1 or may_use_rdma):
        return expect_message(workload, machine if machine.cluster.hosts > 1 else _add_host(machine))
    if isinstance(workload, Unlimited):
        return no_limit(workload, workload.why)
    if isinstance(workload, Files) and workload.of == "drive":
        return no_limit(workload, "the links between the other hosts and their drives are not known")
    if workload.hosts > 1:
        return no_limit(workload, "the ranks were on several hosts, and the links between those are not known")
    return no_limit(workload, "the ranks were on another host, but the topology is of this one")
