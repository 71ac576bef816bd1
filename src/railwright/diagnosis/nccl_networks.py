"""Faults of the connections that NCCL built: sockets, idle NICs, GPUDirect RDMA, peer-to-peer inside a host."""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.nccl_evidence import MAX_SHOWN, could_not_look, log_lines
from railwright.diagnosis.nccl_paths import GDR_BY_DEFAULT, NVLINK, OVER_CPU, Way, Ways, gpu_side
from railwright.faults.model import Certainty, Finding
from railwright.results.model import Evidence
from railwright.results.readers.nccl_log_model import Communicator, Connection, NcclLog
from railwright.topology.model import EthernetLink, InfinibandLink, Topology

_MAX_WHERE = 16


class _Case(NamedTuple):
    """A connection and the way that its data takes."""

    one: Connection
    way: Way


def _way_evidence(cases: list[_Case]) -> tuple[Evidence, ...]:
    ways = dict.fromkeys(case.way for case in cases)
    return tuple(
        Evidence(claim="path", value=f"{way.source} to {way.target} is {way.kind}",
                 seen=way.known_from if way.sure else f"{way.known_from}, in the best order of devices")
        for way in list(ways)[:MAX_SHOWN]
    )  # fmt: skip


def _certainty(cases: list[_Case]) -> Certainty:
    return "seen" if all(case.way.sure for case in cases) else "likely"


def _where(cases: list[_Case]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{case.way.source}>{case.way.target}" for case in cases))[:_MAX_WHERE]


def _networked(main: Communicator) -> list[Connection]:
    return [one for one in main.connections if one.transport == "NET" and one.nic is not None]


_SHOW_MACHINE = "give the machine (--host SHAPE, or a capture), or log with GRAPH in NCCL_DEBUG_SUBSYS"


def receive_over_cpu(log: NcclLog, main: Communicator, ways: Ways) -> tuple[Finding, ...]:
    """GPUDirect RDMA whose DMA crosses the CPU; a receive cannot be saved by PXN."""
    direct = [one for one in _networked(main) if one.gdr]
    findings: list[Finding] = []
    unknown = 0
    cases: dict[tuple[str, str], list[_Case]] = {}
    for one in direct:
        way = ways.to_gpu(gpu_side(one), one.nic or 0)
        if way is None:
            unknown += 1
        elif way.kind in OVER_CPU:
            cases.setdefault((one.direction, way.kind), []).append(_Case(one, way))
    for (direction, kind), found in cases.items():
        verb = "receives are" if direction == "receive" else "sends are"
        findings.append(
            Finding(
                fault="nccl_gdr_over_cpu",
                where=_where(found),
                certainty=_certainty(found),
                says=f"{len(found)} {verb} logged as GPUDirect RDMA, but their DMA crosses the CPU ({kind})",
                costs="a NIC at the CPU gives about 16 GB/s where one under the GPU's switch gives 24 (nccl#412)",
                remedy="give each GPU a NIC under its own PCIe switch; PXN helps sends only, so compare with "
                "NCCL_NET_GDR_LEVEL=PXB, which bounces such receives through host memory",
                evidence=(*log_lines(log, (case.one.line for case in found)), *_way_evidence(found)),
            )
        )
    if unknown:
        why = f"{unknown} GPUDirect RDMA connections go between a NIC and a GPU whose path is not known"
        findings.append(could_not_look("nccl_gdr_over_cpu", why, _SHOW_MACHINE))
    return tuple(findings)


def no_gdr(log: NcclLog, main: Communicator, ways: Ways) -> tuple[Finding, ...]:
    """RDMA without GPUDirect where NIC and GPU are near: data goes through host memory."""
    bounced = [one for one in _networked(main) if not one.gdr and one.network != "Socket"]
    cases, unknown = [], 0
    for one in bounced:
        way = ways.to_gpu(gpu_side(one), one.nic or 0, trust_table=False)
        if way is None:
            unknown += 1
        elif way.kind in GDR_BY_DEFAULT:
            cases.append(_Case(one, way))
    refused = [one.line for one in log.gdr if not one.enabled][:2]
    findings = []
    remedy = "load nvidia-peermem or use a kernel with DMA-BUF, and look at NCCL_NET_GDR_LEVEL and NCCL_IB_CUDA_SUPPORT"
    costs = "all bytes go through host memory: 79.7 against 96.1 GB/s on a GH200, more where PCIe is the limit"
    if cases:
        kinds = "/".join(sorted({case.way.kind for case in cases}))
        findings.append(
            Finding(
                fault="nccl_no_gdr",
                where=_where(cases),
                certainty=_certainty(cases),
                says=f"{len(cases)} connections do without GPUDirect RDMA although NIC and GPU are {kinds}",
                costs=costs,
                remedy=remedy,
                evidence=(
                    *log_lines(log, [*(case.one.line for case in cases[:2]), *refused]),
                    *_way_evidence(cases),
                ),
            )
        )
    if unknown and refused:
        findings.append(
            Finding(
                fault="nccl_no_gdr",
                where=tuple(dict.fromkeys(f"NIC {one.nic}" for one in bounced))[:_MAX_WHERE],
                certainty="possible",
                says=f"{unknown} connections do without GPUDirect RDMA: NCCL refused it",
                costs=costs,
                remedy=f"{remedy}; {_SHOW_MACHINE}, so that the distance is known",
                evidence=log_lines(log, [*refused, *(one.line for one in bounced[:2])]),
            )
        )
    elif unknown:
        why = f"{unknown} connections do without GPUDirect RDMA, and how near NIC and GPU are is not known"
        findings.append(could_not_look("nccl_no_gdr", why, _SHOW_MACHINE))
    return tuple(findings)


def no_peer_to_peer(log: NcclLog, main: Communicator, ways: Ways) -> tuple[Finding, ...]:
    """Host memory or the network between two GPUs of one host that have NVLink."""
    host = {one.rank: one.host for one in main.ranks if one.host}
    cases, unknown = [], 0
    for one in main.connections:
        local = one.transport == "SHM" or (
            one.transport == "NET" and host.get(one.source, "?") == host.get(one.target, "")
        )
        if not local:
            continue
        way = ways.between(one.source, one.target)
        if way is None:
            unknown += 1
        elif way.kind in NVLINK:
            cases.append(_Case(one, way))
    findings = []
    if cases:
        over = "/".join(sorted({case.one.transport for case in cases}))
        findings.append(
            Finding(
                fault="nccl_no_peer_to_peer",
                where=_where(cases),
                certainty=_certainty(cases),
                says=f"{len(cases)} connections of GPUs with NVLink go over {over} instead of P2P",
                costs="the copy goes over PCIe and through host memory instead of NVLink",
                remedy="look for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, for containers without a common /dev/shm, "
                "and at `nvidia-smi topo -p2p n`",
                evidence=(*log_lines(log, (case.one.line for case in cases)), *_way_evidence(cases)),
            )
        )
    if unknown:
        why = f"{unknown} connections inside a host do without P2P, and whether there is NVLink is not known"
        findings.append(could_not_look("nccl_no_peer_to_peer", why, _SHOW_MACHINE))
    return tuple(findings)


def sockets(log: NcclLog, main: Communicator, topology: Topology | None) -> tuple[Finding, ...]:
    """TCP between hosts, with what the log and the topology say of RDMA devices."""
    over = [one for one in main.connections if one.network == "Socket"]
    hosts = main.host_by_rank
    # A rank without lines of its own is on another host than the one that wrote the line, or its host is in no line.
    crossing = [one for one in over if not main.hosts or hosts.get(one.source) != hosts.get(one.target)]
    if not crossing:
        return ()
    devices = [one for one in log.nics if one.network == "IB"]
    absent = [one for one in log.networks if one.name.startswith("IB") and one.state in ("absent", "failed")]
    rdma = topology is not None and any(
        isinstance(link.protocol, InfinibandLink) or (isinstance(link.protocol, EthernetLink) and link.protocol.rdma)
        for link in topology.links
    )
    if devices:
        because = f"although NCCL found {devices[0].name} and {len(devices) - 1} more RDMA ports"
    elif rdma:
        because = "although the machine given has RDMA NICs"
    else:
        because = "and NCCL names no RDMA device"
    finding = Finding(
        fault="nccl_sockets",
        where=tuple(dict.fromkeys(one.host for one in absent if one.host)) or main.hosts[:_MAX_WHERE] or ("log",),
        certainty="seen",
        says=f"{len(crossing)} connections between hosts are TCP sockets, {because}",
        costs="AllReduce fell from 340 to 4 GB/s on 8-NIC machines (GKE), from 123 to 5 at 128 MiB elsewhere (Alps)",
        remedy="`ibv_devices` in the job's container must list the NICs: mount /dev/infiniband, install libibverbs, "
        "unset NCCL_IB_DISABLE and NCCL_NET, and check that the network plugin loads",
        evidence=log_lines(log, [*(one.line for one in absent[:2]), *(one.line for one in crossing[:2])]),
    )
    return (finding,)


def unused_nics(log: NcclLog, main: Communicator) -> tuple[Finding, ...]:
    """NICs that NCCL listed and no connection of their host uses."""
    used: dict[str, set[int]] = {}
    hosts = main.host_by_rank
    for one in _networked(main):
        rank = one.target if one.direction == "receive" else one.source
        used.setdefault(hosts.get(rank, ""), set()).add(one.nic or 0)
    if not used:
        return ()
    idle = [nic for nic in log.nics if nic.network != "Socket" and nic.host in used and nic.index not in used[nic.host]]
    if not idle or any(one.network == "Socket" for one in _networked(main)):
        return ()
    names = ", ".join(dict.fromkeys(f"{nic.name} (NIC {nic.index}, {nic.link})" for nic in idle[:6]))
    whole = len(main.ranks) >= main.size
    finding = Finding(
        fault="nccl_nic_unused",
        where=tuple(dict.fromkeys(f"{nic.host}:{nic.name}" if nic.host else nic.name for nic in idle))[:_MAX_WHERE],
        certainty="seen" if whole else "likely",
        says=f"{len(idle)} NICs carry no connection: {names}",
        costs="a NIC's line rate each, unless it is slower than the others or is not meant for this network",
        remedy="with fewer GPUs than NICs this is normal; otherwise check rate and link of these ports, and name those "
        "that are meant in NCCL_IB_HCA",
        evidence=log_lines(log, (nic.line for nic in idle)),
    )
    return (finding,)
