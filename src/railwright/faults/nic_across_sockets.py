"""GPUs use NICs of the other socket, because of a pod's or VM's pinning, the order in NCCL_IB_HCA, or wrong pairing.

Measured across sockets: 140 of 400 Gb/s with ib_write_bw and 31.9 of 49 GB/s all_reduce (GKE A3 Ultra, GPU and NIC of
different sockets); four deliberately misaligned B200 pods fell from 22.2 to 11.2 GB/s busbw.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.parts import find_uplink, rdma_ports
from railwright.faults.cases import crosses_network, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.software import nearest_nic_kind
from railwright.topology.changes import remove_devices
from railwright.topology.cluster import ports
from railwright.topology.devices import C2cLink, Device, InternalLink, Link, PcieLink, SmpLink, Topology
from railwright.topology.paths import Affinity

_COSTS = (
    "NCCL plans 6 to 40 GB/s between sockets (src/graph/topo.h); measured on GKE A3 Ultra: 140 of 400 Gb/s with"
    " ib_write_bw, 31.9 of 49 GB/s with all_reduce"
)


def _signs(facts: Facts) -> Findings:
    """Find GPUs without a NIC on their socket, which is unavoidable with fewer NICs than sockets with GPUs."""
    topology = facts.topology
    nics = {nic.id for nic, _ in rdma_ports(topology)}
    if not nics or not topology.of_kind("gpu"):
        return
    near = Affinity(remove_devices(topology, {nic.id for nic in topology.of_kind("nic")} - nics))
    far = [gpu.id for gpu in near.gpus if nearest_nic_kind(near, gpu.id) == "SYS"]
    if far:
        avoidable = len(nics) >= len({_find_socket(topology, gpu.id) for gpu in near.gpus})
        yield FAULT.finding(
            far,
            f"{len(far)} GPUs reach every NIC only across sockets: {', '.join(far[:8])}",
            ("path", "SYS", "PCIe tree and NUMA nodes"),
            certainty="likely" if avoidable else "possible",
        )


class _Move(NamedTuple):
    """A PCIe link of NICs to move to another socket."""

    link: Link
    home: Device
    away: Device


def _degrade(topology: Topology, where: str) -> Topology:
    """Move the NIC `where` to the other socket, or all NICs if `where` is a host's id.

    If the NICs of both sockets were swapped, each socket's GPUs would find the other's NICs nearby. Every GPU must keep
    its own NIC, so each side gets a copy of the other socket that only forwards data.
    """
    moves = _list_moves(topology, where)
    devices = {device.id: device for device in topology.devices}
    links = list(topology.links)
    for move in moves:
        beyond = f"{move.away.id}_beyond_{move.home.id}"
        if beyond not in devices:
            devices[beyond] = replace(move.away, id=beyond)
            links.append(Link(a=move.home.id, b=beyond, protocol=_find_smp_link(topology, move)))
        root_port = f"root_port_of_{move.link.b}"
        devices[root_port] = Device(id=root_port, kind="root_port", numa=move.away.numa)
        links.append(Link(a=beyond, b=root_port, protocol=InternalLink(name="root complex")))
        links[links.index(move.link)] = replace(move.link, a=root_port)
    return replace(topology, devices=tuple(devices.values()), links=tuple(links))


def _list_moves(topology: Topology, where: str) -> tuple[_Move, ...]:
    known = {device.id: device for device in topology.devices}
    everything = where in known and known[where].kind == "host"
    found: dict[str, _Move] = {}
    for nic, _ in ports(topology):
        link, home = find_uplink(topology, nic.id), _find_cpu(topology, nic.id)
        away = _find_other_socket(topology, home)
        if link is not None and home is not None and away is not None and (everything or nic.id == where):
            found[link.id] = _Move(link, home, away)
    return tuple(found.values())


def _find_cpu(topology: Topology, device_id: str) -> Device | None:
    """Return the CPU above a device; in a link `a` is the end nearer the CPU."""
    here: str | None = device_id
    for _ in topology.devices:
        device = topology.device(here) if here is not None else None
        if device is None or device.kind == "cpu":
            return device
        upwards = (link for link in topology.links if isinstance(link.protocol, PcieLink | InternalLink | C2cLink))
        here = next((link.a for link in upwards if link.b == here), None)
    return None


def _find_socket(topology: Topology, device_id: str) -> object:
    cpu = _find_cpu(topology, device_id)
    return cpu.facts.get("package", cpu.id) if cpu is not None else None


def _find_other_socket(topology: Topology, home: Device | None) -> Device | None:
    if home is None or "package" not in home.facts:
        return None
    known = (cpu for cpu in topology.of_kind("cpu") if "package" in cpu.facts)
    return next((cpu for cpu in known if cpu.facts["package"] != home.facts["package"]), None)


def _find_smp_link(topology: Topology, move: _Move) -> SmpLink:
    ends = {move.home.id, move.away.id}
    found = (link.protocol for link in topology.links if {link.a, link.b} == ends)
    return next((protocol for protocol in found if isinstance(protocol, SmpLink)), SmpLink())


def _hypotheses(case: Case) -> Hypotheses:
    host = case.cluster.host
    hosts = host.of_kind("host")
    changed = _degrade(host, hosts[0].id) if crosses_network(case) and hosts else host
    if changed != host:
        yield FAULT.supposed(
            "every GPU uses a NIC of the other socket, or one that it reaches as slowly across the CPU",
            replace_host(case, changed),
            "nvidia-smi topo -m (SYS between a GPU and its NIC); ib_write_bw -d mlx5_N --use_cuda=N --report_gbits;"
            " NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG",
        )


FAULT = Fault(
    name="nic_across_sockets",
    summary="GPUs reach their NICs only across sockets",
    right="every GPU has a NIC on its own socket",
    costs=_COSTS,
    remedy="give each pod or VM NICs of the sockets of its GPUs, or move a card; nvidia-smi topo -m shows SYS"
    " for pairs that cross sockets",
    signs=_signs,
    needs=(needs.gpu, needs.rdma_nic),
    degrade=_degrade,
    ways=_hypotheses,
)
