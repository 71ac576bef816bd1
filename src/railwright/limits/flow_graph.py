"""The directed graph of a collective's data: one machine twice (sending and receiving), and the fabric.

Hosts of a cluster are alike and a collective treats them alike, so averaging a best flow over all hosts gives a best
flow that is the same on every host. One host and its share of the fabric therefore stand for all: the network leaves
the host's sending copy and arrives at its receiving copy. Both copies share each link's capacity.
NCCL decides which data may pass through a GPU (src/graph/paths.cc, src/transport/net.cc): a sender may hand its data
over NVLink to a peer that is nearer to a NIC (PXN), a receiver may not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.topology.cluster import Cluster, Tier, ports
from railwright.topology.devices import (
    GPU_LINKS,
    C2cLink,
    Device,
    Link,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
    XgmiLink,
)

Relay = Literal["none", "sender"]
ResourceKind = Literal[
    "NIC port",
    "uplinks",
    "PCIe",
    "NVLink",
    "Infinity Fabric",
    "Ethernet between GPUs",
    "C2C",
    "between sockets",
    "inside the CPU",
]

_KINDS: tuple[tuple[type | tuple[type, ...], ResourceKind], ...] = (
    (NvlinkLink, "NVLink"),
    (XgmiLink, "Infinity Fabric"),
    (C2cLink, "C2C"),
    (SmpLink, "between sockets"),
    (PcieLink, "PCIe"),
)
_NOT_ON_THE_WAY = frozenset({"memory", "drive", "host", "fabric", "leaf", "spine"})


class Resource(NamedTuple):
    """A capacity that several arcs share: one direction of a link, or a host's share of uplinks."""

    id: str
    kind: ResourceKind
    words: str
    """The reason for the limit: `400 Gb/s port of nic0, InfiniBand MTU 4096: 99.4% payload`."""
    limit_bytes_per_s: float
    """Infinite if no document gives a rate."""
    link: Link
    """The link itself; for uplinks, the first port below them."""


class Arc(NamedTuple):
    """A way from one node to the next."""

    tail: str
    head: str
    resource: str | None = None
    within: int | None = None
    """Restricts the arc to data whose destination is in the same group of this tier; None allows all data."""


class FlowGraph(NamedTuple):
    """Arcs and resources.

    Node names: `s:` sending copy, `r:` receiving copy (`t:` and `q:` between memory and NIC if data is staged in host
    memory), `.src`, `.dst`, `.relay` of a GPU.
    """

    arcs: tuple[Arc, ...]
    resources: dict[str, Resource]
    gpus: tuple[str, ...]


class _Host(NamedTuple):
    """The facts that decide the ways of data inside one machine."""

    devices: dict[str, Device]
    relay: Relay
    joined: bool
    """Whether every GPU reaches every other over NVLink alone."""
    direct: bool
    """Whether data moves between NICs and GPUs without a copy in host memory (GPUDirect RDMA)."""
    redirecting: frozenset[str]
    """Switches whose ACS sends peer-to-peer requests up to the root complex."""


def flow_graph(cluster: Cluster, relay: Relay = "sender") -> FlowGraph:
    """Build the graph of one host and its share of the fabric. Raises CannotJudge for links of unknown rate."""
    topology = cluster.host
    host = _Host(
        devices={device.id: device for device in topology.devices},
        relay=relay,
        joined=_all_joined(topology),
        direct=not any(device.facts.get("gpudirect_rdma") is False for device in topology.of_kind("host")),
        redirecting=_find_redirecting_switches(topology),
    )
    resources: dict[str, Resource] = {}
    arcs: list[Arc] = []
    for link in topology.links:
        if {host.devices[link.a].kind, host.devices[link.b].kind} & _NOT_ON_THE_WAY:
            continue
        for tail, head in ((link.a, link.b),) if link.one_way else ((link.a, link.b), (link.b, link.a)):
            resource = _build_resource(f"{link.id}:{tail}>{head}", _resource_kind(link), link)
            resources[resource.id] = resource
            arcs += _sending_arcs(host, tail, head, link, resource.id)
            arcs += _receiving_arcs(host, tail, head, link, resource.id)
            if not host.direct:
                arcs += _bouncing_arcs(host, tail, head, link, resource.id)
    if not host.direct:
        for cpu in topology.of_kind("cpu"):
            arcs += [Arc(f"s:{cpu.id}", f"t:{cpu.id}"), Arc(f"q:{cpu.id}", f"r:{cpu.id}")]
    if cluster.hosts > 1:
        found, port_resources = _port_arcs(cluster, direct=host.direct)
        arcs += [*found, *_fabric_arcs(cluster, len(port_resources) // 2)]
        resources |= {resource.id: resource for resource in (*port_resources, *_uplinks(cluster, port_resources))}
    _refuse_unknown(topology, resources)
    return FlowGraph(tuple(arcs), resources, tuple(device.id for device in topology.of_kind("gpu")))


def _find_redirecting_switches(topology: Topology) -> frozenset[str]:
    switches = {device.id for device in topology.of_kind("pcie_switch")}
    return frozenset(
        link.a for link in topology.links
        if link.a in switches and isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect
    )  # fmt: skip


def _end_nodes(host: _Host, phase: str, tail: str, head: str, link: Link) -> tuple[str, str]:
    """Return the nodes of both ends. A redirecting switch is two nodes: data from below must first go up, then back
    down.
    """
    upwards = head == link.a
    tail_node = f"{phase}:{tail}{'^' if upwards and tail in host.redirecting else ''}"
    other = f"{phase}:{head}{'^' if upwards and head in host.redirecting else ''}"
    return tail_node, other


def _build_resource(name: str, kind: ResourceKind, link: Link) -> Resource:
    limit = link_limit(link)
    if isinstance(limit, Limit):
        return Resource(name, kind, limit.because, limit.value, link)
    return Resource(name, kind, limit.why, math.inf, link)


def _resource_kind(link: Link) -> ResourceKind:
    if isinstance(link.protocol, XgmiLink) and link.protocol.name:
        return "Ethernet between GPUs"
    return next((kind for protocols, kind in _KINDS if isinstance(link.protocol, protocols)), "inside the CPU")


def _all_joined(host: Topology) -> bool:
    """Report whether every GPU reaches every other over NVLink alone, by a switch or by one link to each."""
    gpus = [gpu.id for gpu in host.of_kind("gpu")]
    peers: dict[str, set[str]] = {gpu: set() for gpu in gpus}
    for link in host.links:
        if isinstance(link.protocol, GPU_LINKS):
            for end, other in ((link.a, link.b), (link.b, link.a)):
                peers.setdefault(end, set()).add(other)
    switches = {switch.id for switch in host.of_kind("nvswitch")}
    return all(peers[gpu] & switches or len(peers[gpu]) == len(gpus) - 1 for gpu in gpus)


def _sending_arcs(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """Yield arcs on the way out of a GPU: to a peer in the host, or to a NIC.

    NCCL takes the nearest way between two GPUs: if NVLink joins them all, PCIe leads to no peer.
    """
    tail, head = host.devices[tail_id], host.devices[head_id]
    over_gpu_link = isinstance(link.protocol, GPU_LINKS)
    if tail.kind == "nic" or (head.kind == "gpu" and host.joined and not over_gpu_link):
        return
    if head.kind == "nic" and not host.direct:
        return
    node, other = _end_nodes(host, "s", tail_id, head_id, link)
    tails, heads = [node], [other]
    if tail.kind == "gpu":
        tails = [f"{node}.src"]
        if host.relay != "none" or over_gpu_link:  # NVB: from one NVLink to the next, even with PXN off
            tails.append(f"{node}.relay")
    if head.kind == "gpu":
        heads = [f"{other}.dst", *([f"{other}.relay"] if over_gpu_link else [])]
        if tail.kind == "nvswitch":
            heads.append(f"d:{head_id}.dst")
    for start in tails:
        for end in heads:
            yield Arc(start, end, resource)


def _receiving_arcs(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """Yield arcs on the way from a NIC to a GPU; no other GPU relays there."""
    tail, head = host.devices[tail_id], host.devices[head_id]
    if head.kind != "nic" and tail.kind != "gpu" and not isinstance(link.protocol, GPU_LINKS):
        node, other = _end_nodes(host, "r", tail_id, head_id, link)
        yield Arc(node, f"{other}.dst" if head.kind == "gpu" else other, resource)


def _bouncing_arcs(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """Yield the second way through the PCIe tree without GPUDirect: memory to NIC (t), NIC to memory (q)."""
    if isinstance(link.protocol, GPU_LINKS) or "gpu" in (host.devices[tail_id].kind, host.devices[head_id].kind):
        return
    if host.devices[tail_id].kind != "nic":
        yield Arc(*_end_nodes(host, "t", tail_id, head_id, link), resource)
    if host.devices[head_id].kind != "nic":
        yield Arc(*_end_nodes(host, "q", tail_id, head_id, link), resource)


def _port_arcs(cluster: Cluster, *, direct: bool) -> tuple[list[Arc], list[Resource]]:
    """Return both directions of every NIC port; resources come in the order tx0, rx0, tx1, rx1 ..."""
    out, into = ("s", "r") if direct else ("t", "q")
    arcs, resources = [], []
    for rail, (nic, link) in enumerate(ports(cluster.host)):
        for direction, tail, head in (
            ("tx", f"{out}:{nic.id}", f"tx:{rail}"),
            ("rx", f"rx:{rail}", f"{into}:{nic.id}"),
        ):
            resource = _build_resource(f"{nic.id}:{direction}", "NIC port", link)
            resources.append(resource)
            arcs.append(Arc(tail, head, resource.id))
    return arcs, resources


def _count_levels(cluster: Cluster) -> int:
    """Return the number of tiers that traffic between the hosts can use.

    They end at the tier that joins all hosts. If rails end at their leaf, one more tier joins the rails.
    """
    tiers = cluster.fabric.tiers
    top = next((number for number, tier in enumerate(tiers) if tier.hosts >= cluster.hosts), 0)
    crosses_rails = cluster.fabric.rail_optimised and top == 0 and len(tiers) > 1
    return top + 1 + crosses_rails if tiers else 0


def _fabric_arcs(cluster: Cluster, rails: int) -> Iterator[Arc]:
    levels = _count_levels(cluster)
    for rail in range(rails):
        leaf = _leaf_suffix(cluster, rail)
        yield Arc(f"tx:{rail}", f"up:0{leaf}")
        yield Arc(f"down:0{leaf}" if levels else "up:0", f"rx:{rail}")
    for level in range(levels):
        for leaf in dict.fromkeys(_leaf_suffix(cluster, rail) for rail in range(rails)) if level == 0 else ("",):
            yield Arc(f"up:{level}{leaf}", f"down:{level}{leaf}", None, level)
            if level + 1 < levels:
                yield Arc(f"up:{level}{leaf}", f"up:{level + 1}", f"uplinks:{level}{leaf}:up")
                yield Arc(f"down:{level + 1}", f"down:{level}{leaf}", f"uplinks:{level}{leaf}:down")


def _leaf_suffix(cluster: Cluster, rail: int) -> str:
    """Return the suffix of the lowest tier's switch: the rail, if each has a leaf of its own."""
    return f":{rail}" if cluster.fabric.tiers and cluster.fabric.rail_optimised else ""


def _uplinks(cluster: Cluster, port_resources: list[Resource]) -> Iterator[Resource]:
    """Yield each host's share of the uplinks of each tier, per rail if the lowest tier has a leaf for each rail."""
    tiers = cluster.fabric.tiers
    for level in range(_count_levels(cluster) - 1):
        share = math.prod(1 / tier.oversubscription for tier in tiers[: level + 1])
        for direction, ports_there in (("up", port_resources[::2]), ("down", port_resources[1::2])):
            below: dict[str, list[Resource]] = {}
            for rail, port in enumerate(ports_there):
                below.setdefault(_leaf_suffix(cluster, rail) if level == 0 else "", []).append(port)
            for leaf, of_leaf in below.items():
                rate = sum(port.limit_bytes_per_s for port in of_leaf) * share
                name = f"uplinks:{level}{leaf}:{direction}"
                yield Resource(name, "uplinks", _describe_uplinks(tiers[level], share), rate, of_leaf[0].link)


def _describe_uplinks(tier: Tier, share: float) -> str:
    ratio = f"oversubscribed {1 / share:.3g}:1" if share < 1 else "non-blocking"
    return f"uplinks of the {tier.name} tier, {ratio}"


def _refuse_unknown(host: Topology, resources: dict[str, Resource]) -> None:
    """Raise an error that names every NIC port and NVLink of unknown rate, because without them there is no limit.

    A PCIe link of unknown rate is not counted: the limit still holds, it may only be lower (`list_uncounted`).
    """
    missing = [fact for kind, facts in _group_missing_facts(resources).items() if kind != "PCIe" for fact in facts]
    if missing:
        raise CannotJudge(
            f"{host.name} lacks facts: {'; '.join(missing[:8])}{' ...' if len(missing) > 8 else ''}",
            hint="give the missing facts, or name a shape (railwright topo --help)",
        )


def list_uncounted(graph: FlowGraph) -> tuple[str, ...]:
    """Return the PCIe links of unknown rate, as `link: fact`."""
    return tuple(_group_missing_facts(graph.resources).get("PCIe", ()))


def _group_missing_facts(resources: dict[str, Resource]) -> dict[str, list[str]]:
    missing: dict[str, list[str]] = {}
    for link, kind in dict.fromkeys((resource.link, resource.kind) for resource in resources.values()):
        limit = link_limit(link)
        if not isinstance(limit, Limit):
            missing.setdefault(kind, []).extend(limit.missing)
    return missing
