"""Faults of the connections that NCCL built: sockets, idle NICs, GPUDirect RDMA, peer-to-peer inside a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from railwright.checks.finding import Finding, OfPath
from railwright.checks.parts import is_rdma
from railwright.diagnosis.nccl.evidence import MAX_SHOWN, MAX_WHERE, could_not_look, log_lines, named
from railwright.diagnosis.nccl.paths import GDR_BY_DEFAULT, NVLINK, OVER_CPU, Way, Ways, gpu_side
from railwright.groups import grouped
from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog
from railwright.results.records import Evidence
from railwright.topology.devices import EfaLink, PathKind, Topology

_SHOW_MACHINE = "give the machine (--host SHAPE, or a capture), or log with GRAPH in NCCL_DEBUG_SUBSYS"


class _Case(NamedTuple):
    """A connection and the way that its data takes."""

    one: Connection
    way: Way


def _about(cases: list[_Case], fault: str, says: str, *, costs: str, remedy: str, lines: Iterable[Evidence]) -> Finding:
    """A finding of connections that take ways which they should not, with these lines of the log."""
    ways = dict.fromkeys(case.way for case in cases)
    order = ", in the best order of devices"
    return Finding(
        fault=fault,
        where=tuple(dict.fromkeys(OfPath(f"{way.source}>{way.target}") for way in ways))[:MAX_WHERE],
        certainty="seen" if all(way.sure for way in ways) else "likely",
        says=says,
        costs=costs,
        remedy=remedy,
        evidence=(
            *lines,
            *(
                Evidence(claim="path", value=f"{way.source} to {way.target} is {way.kind}",
                         seen=way.known_from + ("" if way.sure else order))
                for way in list(ways)[:MAX_SHOWN]
            ),
        ),
    )  # fmt: skip


def _cases(
    connections: Iterable[Connection], way_of: Callable[[Connection], Way | None], kinds: Container[PathKind]
) -> tuple[list[_Case], int]:
    """The connections whose way is of one of these kinds, and the number of those whose way is not known."""
    found = [(one, way_of(one)) for one in connections]
    cases = [_Case(one, way) for one, way in found if way is not None and way.kind in kinds]
    return cases, sum(way is None for _, way in found)


def _networked(main: Communicator) -> list[Connection]:
    return [one for one in main.connections if one.transport == "NET" and one.nic is not None]


def receive_over_cpu(log: NcclLog, main: Communicator, ways: Ways) -> Iterator[Finding]:
    """GPUDirect RDMA whose DMA crosses the CPU; a receive cannot be saved by PXN."""
    direct = [one for one in _networked(main) if one.gdr]
    crossing, unknown = _cases(direct, lambda one: ways.to_gpu(gpu_side(one), one.nic or 0), OVER_CPU)
    for (direction, kind), found in grouped(crossing, lambda case: (case.one.direction, case.way.kind)):
        verb = "receives are" if direction == "receive" else "sends are"
        yield _about(
            found,
            "nccl_gdr_over_cpu",
            f"{len(found)} {verb} logged as GPUDirect RDMA, but their DMA crosses the CPU ({kind})",
            costs="a NIC at the CPU gives about 16 GB/s where one under the GPU's switch gives 24 (nccl#412)",
            remedy="give each GPU a NIC under its own PCIe switch; PXN helps sends only, so compare with "
            "NCCL_NET_GDR_LEVEL=PXB, which bounces such receives through host memory",
            lines=log_lines(log, (case.one.line for case in found)),
        )
    if unknown:
        why = f"{unknown} GPUDirect RDMA connections go between a NIC and a GPU whose path is not known"
        yield could_not_look("nccl_gdr_over_cpu", why, _SHOW_MACHINE)


def no_gdr(log: NcclLog, main: Communicator, ways: Ways) -> Iterator[Finding]:
    """RDMA without GPUDirect where NIC and GPU are near: data goes through host memory."""
    bounced = [one for one in _networked(main) if not one.gdr and one.network != "Socket"]
    cases, unknown = _cases(
        bounced, lambda one: ways.to_gpu(gpu_side(one), one.nic or 0, trust_table=False), GDR_BY_DEFAULT
    )
    refused = [one.line for one in log.gdr if not one.enabled][:2]
    remedy = "load nvidia-peermem or use a kernel with DMA-BUF, and look at NCCL_NET_GDR_LEVEL and NCCL_IB_CUDA_SUPPORT"
    costs = "all bytes go through host memory: 79.7 against 96.1 GB/s on a GH200, more where PCIe is the limit"
    if cases:
        kinds = "/".join(sorted({case.way.kind for case in cases}))
        yield _about(
            cases,
            "nccl_no_gdr",
            f"{len(cases)} connections do without GPUDirect RDMA although NIC and GPU are {kinds}",
            costs=costs,
            remedy=remedy,
            lines=log_lines(log, [*(case.one.line for case in cases[:2]), *refused]),
        )
    says = f"{unknown} connections do without GPUDirect RDMA: NCCL refused it" if refused else ""
    if unknown == len(_networked(main)):
        says = says or f"none of the {unknown} connections over a network uses GPUDirect RDMA"
    if unknown and says:
        yield Finding(
            fault="nccl_no_gdr",
            where=named(f"NIC {one.nic}" for one in bounced)[:MAX_WHERE],
            certainty="possible",
            says=says,
            costs=costs,
            remedy=f"{remedy}; {_SHOW_MACHINE}, so that the distance is known",
            evidence=log_lines(log, [*refused, *(one.line for one in bounced[:2])]),
        )
    elif unknown:
        why = f"{unknown} connections do without GPUDirect RDMA, and how near NIC and GPU are is not known"
        yield could_not_look("nccl_no_gdr", why, _SHOW_MACHINE)


def no_peer_to_peer(log: NcclLog, main: Communicator, ways: Ways) -> Iterator[Finding]:
    """Host memory or the network between two GPUs of one host that have NVLink."""
    host = {one.rank: one.host for one in main.ranks if one.host}
    detours = [
        one
        for one in main.connections
        if one.transport == "SHM" or (one.transport == "NET" and host.get(one.source, "?") == host.get(one.target, ""))
    ]
    cases, unknown = _cases(detours, lambda one: ways.between(one.source, one.target), NVLINK)
    if cases:
        over = "/".join(sorted({case.one.transport for case in cases}))
        yield _about(
            cases,
            "nccl_no_peer_to_peer",
            f"{len(cases)} connections of GPUs with NVLink go over {over} instead of P2P",
            costs="the copy goes over PCIe and through host memory instead of NVLink",
            remedy="look for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, for containers without a common /dev/shm, "
            "and at `nvidia-smi topo -p2p n`",
            lines=log_lines(log, (case.one.line for case in cases)),
        )
    if unknown:
        why = f"{unknown} connections inside a host do without P2P, and whether there is NVLink is not known"
        yield could_not_look("nccl_no_peer_to_peer", why, _SHOW_MACHINE)


def sockets(log: NcclLog, main: Communicator, topology: Topology | None) -> Iterator[Finding]:
    """TCP between hosts, with what the log and the topology say of RDMA devices."""
    over = [one for one in main.connections if one.network == "Socket"]
    hosts = main.host_by_rank
    # A rank without lines of its own is on another host than the one that wrote the line, or its host is in no line.
    crossing = [one for one in over if not main.hosts or hosts.get(one.source) != hosts.get(one.target)]
    if not crossing:
        return
    devices = [one for one in log.nics if one.network == "IB"]
    absent = [one for one in log.networks if one.name.startswith("IB") and one.state in ("absent", "failed")]
    able = [link for link in topology.links if is_rdma(link)] if topology is not None else []
    if devices:
        because = f"although NCCL found {devices[0].name} and {len(devices) - 1} more RDMA ports"
    elif not all(isinstance(link.protocol, EfaLink) for link in able):
        because = "although the machine given has RDMA NICs"
    else:
        because = "and NCCL names no RDMA device"
    yield Finding(
        fault="nccl_sockets",
        where=named(one.host for one in absent if one.host) or named(main.hosts)[:MAX_WHERE] or named(["log"]),
        certainty="seen",
        says=f"{len(crossing)} connections between hosts are TCP sockets, {because}",
        costs="AllReduce fell from 340 to 4 GB/s on 8-NIC machines (GKE), from 123 to 5 at 128 MiB elsewhere (Alps)",
        remedy="`ibv_devices` in the job's container must list the NICs: mount /dev/infiniband, install libibverbs, "
        "unset NCCL_IB_DISABLE and NCCL_NET, and check that the network plugin loads",
        evidence=log_lines(log, [*(one.line for one in absent[:2]), *(one.line for one in crossing[:2])]),
    )


def only_sockets(log: NcclLog, topology: Topology | None) -> Iterator[Finding]:
    """A log without a connection that names the socket network alone, on a machine whose NICs can do RDMA."""
    used = [one for one in log.networks if one.state == "used"]
    able = topology is not None and any(map(is_rdma, topology.links))
    if able and used and all(one.name == "Socket" for one in used):
        yield Finding(
            fault="nccl_sockets",
            where=named(one.host or "log" for one in used)[:MAX_WHERE],
            certainty="seen",
            says="NCCL uses the network Socket, although the machine given has RDMA NICs",
            remedy="`ibv_devices` or `fi_info` in the job's container must list the NICs; look at NCCL_NET and at the"
            " line NET/Plugin of NCCL_DEBUG=INFO",
            evidence=log_lines(log, (one.line for one in used)),
        )


def unused_nics(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """NICs that NCCL listed and no connection of their host uses."""
    used: dict[str, set[int]] = defaultdict(set)
    hosts = main.host_by_rank
    for one in _networked(main):
        rank = one.target if one.direction == "receive" else one.source
        used[hosts.get(rank, "")].add(one.nic or 0)
    listed = {host: {nic.index for nic in log.nics if nic.host == host} for host in used}
    idle = [
        nic
        for nic in log.nics
        # An index that was not listed is of a virtual NIC, made of listed ones (NCCL since 2.26): they are used by it.
        if nic.network != "Socket"
        and nic.host in used
        and used[nic.host] <= listed[nic.host]
        and nic.index not in used[nic.host]
    ]
    if idle and not any(one.network == "Socket" for one in _networked(main)):
        names = ", ".join(dict.fromkeys(f"{nic.name} (NIC {nic.index}, {nic.link})" for nic in idle[:6]))
        yield Finding(
            fault="nccl_nic_unused",
            where=named(f"{nic.host}:{nic.name}" if nic.host else nic.name for nic in idle)[:MAX_WHERE],
            certainty="seen" if len(main.ranks) >= main.size else "likely",
            says=f"{len(idle)} NICs carry no connection: {names}",
            costs="a NIC's line rate each, unless it is slower than the others or is not meant for this network",
            remedy="with fewer GPUs than NICs this is normal; otherwise check rate and link of these ports, and name"
            " those that are meant in NCCL_IB_HCA",
            evidence=log_lines(log, (nic.line for nic in idle)),
        )
