"""Faults of the connections that NCCL built: sockets, idle NICs, GPUDirect RDMA, peer-to-peer inside a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from railwright.checks.finding import Finding, PathPlace
from railwright.checks.parts import is_rdma
from railwright.diagnosis.nccl.evidence import MAX_SHOWN, MAX_WHERE, could_not_look, log_lines, log_places
from railwright.diagnosis.nccl.paths import GDR_BY_DEFAULT, NVLINK, OVER_CPU, ConnectionPath, ConnectionPaths, gpu_side
from railwright.groups import group_by_key
from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog
from railwright.results.records import Evidence
from railwright.topology.devices import EfaLink, PathKind, Topology

_SHOW_MACHINE = "give the machine (--host SHAPE, or a capture), or log with GRAPH in NCCL_DEBUG_SUBSYS"


class _Case(NamedTuple):
    """A connection and the path of its data."""

    connection: Connection
    way: ConnectionPath


def _build_finding(
    cases: list[_Case], fault: str, says: str, *, costs: str, remedy: str, lines: Iterable[Evidence]
) -> Finding:
    """Return a finding about connections on wrong paths, with lines of the log."""
    ways = dict.fromkeys(case.way for case in cases)
    order = ", with devices matched in the best order"
    return Finding(
        fault=fault,
        where=tuple(dict.fromkeys(PathPlace(f"{way.source}>{way.target}") for way in ways))[:MAX_WHERE],
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


def _select_cases(
    connections: Iterable[Connection], way_of: Callable[[Connection], ConnectionPath | None], kinds: Container[PathKind]
) -> tuple[list[_Case], int]:
    """Return the connections whose path is of one of the kinds, and the number with an unknown path."""
    found = [(connection, way_of(connection)) for connection in connections]
    cases = [_Case(connection, way) for connection, way in found if way is not None and way.kind in kinds]
    return cases, sum(way is None for _, way in found)


def _network_connections(main: Communicator) -> list[Connection]:
    return [
        connection for connection in main.connections if connection.transport == "NET" and connection.nic is not None
    ]


def gdr_over_cpu(log: NcclLog, main: Communicator, ways: ConnectionPaths) -> Iterator[Finding]:
    """Report GPUDirect RDMA whose DMA crosses the CPU; PXN cannot help a receive."""
    direct = [connection for connection in _network_connections(main) if connection.gdr]
    crossing, unknown = _select_cases(
        direct, lambda connection: ways.to_gpu(gpu_side(connection), connection.nic or 0), OVER_CPU
    )
    for (direction, kind), found in group_by_key(crossing, lambda case: (case.connection.direction, case.way.kind)):
        verb = "receives are" if direction == "receive" else "sends are"
        yield _build_finding(
            found,
            "nccl_gdr_over_cpu",
            f"{len(found)} {verb} logged as GPUDirect RDMA, but their DMA crosses the CPU ({kind})",
            costs="a NIC at the CPU reaches about 16 GB/s, one under the GPU's switch 24 (nccl#412)",
            remedy="give each GPU a NIC under its own PCIe switch; PXN helps sends only, so compare with "
            "NCCL_NET_GDR_LEVEL=PXB, which sends such receives through host memory",
            lines=log_lines(log, (case.connection.line for case in found)),
        )
    if unknown:
        why = f"{unknown} GPUDirect RDMA connections are between a NIC and a GPU with an unknown path"
        yield could_not_look("nccl_gdr_over_cpu", why, _SHOW_MACHINE)


def no_gdr(log: NcclLog, main: Communicator, ways: ConnectionPaths) -> Iterator[Finding]:
    """Report RDMA without GPUDirect although NIC and GPU are near: data goes through host memory."""
    bounced = [
        connection for connection in _network_connections(main) if not connection.gdr and connection.network != "Socket"
    ]
    cases, unknown = _select_cases(
        bounced,
        lambda connection: ways.to_gpu(gpu_side(connection), connection.nic or 0, trust_table=False),
        GDR_BY_DEFAULT,
    )
    refused = [connection.line for connection in log.gdr if not connection.enabled][:2]
    remedy = "load nvidia-peermem or use a kernel with DMA-BUF, and check NCCL_NET_GDR_LEVEL and NCCL_IB_CUDA_SUPPORT"
    costs = (
        "all data goes through host memory: 79.7 instead of 96.1 GB/s on a GH200, a larger loss where PCIe is the limit"
    )
    if cases:
        kinds = "/".join(sorted({case.way.kind for case in cases}))
        yield _build_finding(
            cases,
            "nccl_no_gdr",
            f"{len(cases)} connections do not use GPUDirect RDMA although NIC and GPU are {kinds}",
            costs=costs,
            remedy=remedy,
            lines=log_lines(log, [*(case.connection.line for case in cases[:2]), *refused]),
        )
    says = f"{unknown} connections do not use GPUDirect RDMA: NCCL refused it" if refused else ""
    if unknown == len(_network_connections(main)):
        says = says or f"none of the {unknown} connections over a network uses GPUDirect RDMA"
    if unknown and says:
        yield Finding(
            fault="nccl_no_gdr",
            where=log_places(f"NIC {connection.nic}" for connection in bounced)[:MAX_WHERE],
            certainty="possible",
            says=says,
            costs=costs,
            remedy=f"{remedy}; {_SHOW_MACHINE}, which gives the distance",
            evidence=log_lines(log, [*refused, *(connection.line for connection in bounced[:2])]),
        )
    elif unknown:
        why = f"{unknown} connections do not use GPUDirect RDMA, and the distance between NIC and GPU is unknown"
        yield could_not_look("nccl_no_gdr", why, _SHOW_MACHINE)


def no_peer_to_peer(log: NcclLog, main: Communicator, ways: ConnectionPaths) -> Iterator[Finding]:
    """Report connections through host memory or the network between two GPUs of one host that have NVLink."""
    host = {connection.rank: connection.host for connection in main.ranks if connection.host}
    detours = [
        connection
        for connection in main.connections
        if connection.transport == "SHM"
        or (connection.transport == "NET" and host.get(connection.source, "?") == host.get(connection.target, ""))
    ]
    cases, unknown = _select_cases(
        detours, lambda connection: ways.between(connection.source, connection.target), NVLINK
    )
    if cases:
        over = "/".join(sorted({case.connection.transport for case in cases}))
        yield _build_finding(
            cases,
            "nccl_no_peer_to_peer",
            f"{len(cases)} connections of GPUs with NVLink go over {over} instead of P2P",
            costs="the copy goes over PCIe and through host memory instead of NVLink",
            remedy="check for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, for containers without a common /dev/shm, "
            "and run `nvidia-smi topo -p2p n`",
            lines=log_lines(log, (case.connection.line for case in cases)),
        )
    if unknown:
        why = f"{unknown} connections inside a host do not use P2P, and it is unknown whether NVLink joins their GPUs"
        yield could_not_look("nccl_no_peer_to_peer", why, _SHOW_MACHINE)


def sockets(log: NcclLog, main: Communicator, topology: Topology | None) -> Iterator[Finding]:
    """Report TCP between hosts, with the RDMA devices of the log and the topology."""
    over = [connection for connection in main.connections if connection.network == "Socket"]
    hosts = main.host_by_rank
    # A rank without lines is on another host than the writer of the line, or its host is unknown.
    crossing = [
        connection
        for connection in over
        if not main.hosts or hosts.get(connection.source) != hosts.get(connection.target)
    ]
    if not crossing:
        return
    devices = [connection for connection in log.nics if connection.network == "IB"]
    absent = [
        connection
        for connection in log.networks
        if connection.name.startswith("IB") and connection.state in ("absent", "failed")
    ]
    able = [link for link in topology.links if is_rdma(link)] if topology is not None else []
    if devices:
        because = f"although NCCL found {devices[0].name} and {len(devices) - 1} more RDMA ports"
    elif not all(isinstance(link.protocol, EfaLink) for link in able):
        because = "although the given machine has RDMA NICs"
    else:
        because = "and NCCL names no RDMA device"
    yield Finding(
        fault="nccl_sockets",
        where=log_places(connection.host for connection in absent if connection.host)
        or log_places(main.hosts)[:MAX_WHERE]
        or log_places(["log"]),
        certainty="seen",
        says=f"{len(crossing)} connections between hosts are TCP sockets, {because}",
        costs="AllReduce fell from 340 to 4 GB/s on 8-NIC machines (GKE), from 123 to 5 at 128 MiB elsewhere (Alps)",
        remedy="`ibv_devices` in the job's container must list the NICs: mount /dev/infiniband, install libibverbs, "
        "unset NCCL_IB_DISABLE and NCCL_NET, and check that the network plugin loads",
        evidence=log_lines(
            log, [*(connection.line for connection in absent[:2]), *(connection.line for connection in crossing[:2])]
        ),
    )


def only_sockets(log: NcclLog, topology: Topology | None) -> Iterator[Finding]:
    """Report a log without connections that names only the socket network, on a machine with RDMA NICs."""
    used = [network for network in log.networks if network.state == "used"]
    able = topology is not None and any(map(is_rdma, topology.links))
    if able and used and all(network.name == "Socket" for network in used):
        yield Finding(
            fault="nccl_sockets",
            where=log_places(network.host or "log" for network in used)[:MAX_WHERE],
            certainty="seen",
            says="NCCL uses the network Socket, although the given machine has RDMA NICs",
            remedy="`ibv_devices` or `fi_info` in the job's container must list the NICs; check NCCL_NET and the"
            " line NET/Plugin of NCCL_DEBUG=INFO",
            evidence=log_lines(log, (network.line for network in used)),
        )


def unused_nics(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Report NICs that NCCL listed and no connection of their host uses."""
    used: dict[str, set[int]] = defaultdict(set)
    hosts = main.host_by_rank
    for connection in _network_connections(main):
        rank = connection.target if connection.direction == "receive" else connection.source
        used[hosts.get(rank, "")].add(connection.nic or 0)
    listed: dict[str, set[int]] = defaultdict(set)
    for nic in log.nics:
        listed[nic.host].add(nic.index)
    idle = [
        nic
        for nic in log.nics
        # An unlisted index belongs to a virtual NIC (NCCL since 2.26), which uses the listed ones.
        if nic.network != "Socket"
        and nic.host in used
        and used[nic.host] <= listed[nic.host]
        and nic.index not in used[nic.host]
    ]
    if idle and not any(connection.network == "Socket" for connection in _network_connections(main)):
        names = ", ".join(dict.fromkeys(f"{nic.name} (NIC {nic.index}, {nic.link})" for nic in idle[:6]))
        yield Finding(
            fault="nccl_nic_unused",
            where=log_places(f"{nic.host}:{nic.name}" if nic.host else nic.name for nic in idle)[:MAX_WHERE],
            certainty="seen" if len(main.ranks) >= main.size else "likely",
            says=f"{len(idle)} NICs carry no connection: {names}",
            costs="the line rate of each NIC, unless it is slower than the others or not meant for this network",
            remedy="with fewer GPUs than NICs this is normal; otherwise check rate and link of these ports, and name"
            " the intended ones in NCCL_IB_HCA",
            evidence=log_lines(log, (nic.line for nic in idle)),
        )
