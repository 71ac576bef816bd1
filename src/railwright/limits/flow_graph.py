"""The directed graph that a collective's data flows over: one machine twice (sending, receiving) and the fabric.

Hosts of a cluster are alike and a collective treats them alike, so that averaging a best flow over all hosts gives a
best flow that is the same on every host. One host and its share of the fabric therefore stand for all: the network
leaves the host's sending copy and arrives at its receiving copy. Both copies share each link's capacity.

What may pass through a GPU is NCCL's rule (src/graph/paths.cc, src/transport/net.cc): a sender may hand its data to
a peer over NVLink that is nearer to a NIC (PXN), a receiver may not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.limits.model import Limit
from railwright.limits.path import link_limit
from railwright.topology.cluster import Cluster, Tier, ports
from railwright.topology.model import (
    GPU_LINKS,
    C2cLink,
    Device,
    Link,
    PcieLink,
    SmpLink,
    Topology,
)

Relay = Literal["none", "sender", "both"]
ResourceKind = Literal["NIC port", "uplinks", "PCIe", "NVLink", "C2C", "between sockets", "inside the CPU"]

_NOT_ON_THE_WAY = frozenset({"memory", "drive", "host", "fabric", "leaf", "spine"})


class Resource(NamedTuple):
    """Something with a capacity that several arcs share: one direction of a link, or a host's share of uplinks."""

    id: str
    kind: ResourceKind
    words: str
    """The limit's own words: `400 Gb/s port of nic0, InfiniBand MTU 4096: 99.4% payload`."""
    limit_bytes_per_s: float
    """Infinite where no document gives a rate."""
    link: Link
    share: float = 1.0
    """For uplinks: rate of the uplinks for this host over the rate of the port they follow."""


class Arc(NamedTuple):
    """A way from one node to the next."""

    tail: str
    head: str
    resource: str | None = None
    within: int | None = None
    """Only for data whose destination is in the same group of this tier; None: for all."""


class FlowGraph(NamedTuple):
    """Arcs and resources. Node names: `s:` sending copy, `r:` receiving copy (`t:` and `q:` between
    memory and NIC where data bounces there), `.src`, `.dst`, `.relay` of a GPU.
    """

    arcs: tuple[Arc, ...]
    resources: dict[str, Resource]
    gpus: tuple[str, ...]


class _Host(NamedTuple):
    """What decides which way data may take inside one machine."""

    devices: dict[str, Device]
    relay: Relay
    joined: bool
    """Whether every GPU reaches every other over NVLink alone."""
    direct: bool
    """Whether NICs and GPUs talk without host memory between them (GPUDirect RDMA)."""
    redirecting: frozenset[str]
    """Switches whose ACS sends peer-to-peer requests up to the root complex."""


def flow_graph(cluster: Cluster, relay: Relay = "sender") -> FlowGraph:
    """One host of the cluster and its share of the fabric. Raises CannotJudge for links whose rate is not known."""
    topology = cluster.host
    host = _Host(
        devices={device.id: device for device in topology.devices},
        relay=relay,
        joined=_all_joined(topology),
        direct=not any(device.facts.get("gpudirect_rdma") is False for device in topology.of_kind("host")),
        redirecting=_redirecting(topology),
    )
    resources: dict[str, Resource] = {}
    arcs: list[Arc] = []
    for link in topology.links:
        if {host.devices[link.a].kind, host.devices[link.b].kind} & _NOT_ON_THE_WAY:
            continue
        for tail, head in ((link.a, link.b),) if link.one_way else ((link.a, link.b), (link.b, link.a)):
            resource = _resource(link, tail, head)
            resources[resource.id] = resource
            arcs += _sending(host, tail, head, link, resource.id)
            arcs += _receiving(host, tail, head, link, resource.id)
            if not host.direct:
                arcs += _bouncing(host, tail, head, link, resource.id)
    if not host.direct:
        for cpu in topology.of_kind("cpu"):
            arcs += [Arc(f"s:{cpu.id}", f"t:{cpu.id}"), Arc(f"q:{cpu.id}", f"r:{cpu.id}")]
    if cluster.hosts > 1:
        found, rates = _port_arcs(cluster, direct=host.direct)
        fabric = (*found, *_fabric_arcs(cluster, rates))
        resources.update({resource.id: resource for resource in rates})
        resources.update({resource.id: resource for resource in _uplinks(cluster, rates)})
        arcs += fabric
    _refuse_unknown(topology, resources)
    return FlowGraph(tuple(arcs), resources, tuple(device.id for device in topology.of_kind("gpu")))


def _redirecting(topology: Topology) -> frozenset[str]:
    switches = {device.id for device in topology.of_kind("pcie_switch")}
    return frozenset(
        link.a for link in topology.links
        if link.a in switches and isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect
    )  # fmt: skip


def _ends(host: _Host, phase: str, tail: str, head: str, link: Link) -> tuple[str, str]:
    """The nodes of both ends. A switch that redirects is two: what came from below may only go up, and back down."""
    upwards = head == link.a
    one = f"{phase}:{tail}{'^' if upwards and tail in host.redirecting else ''}"
    other = f"{phase}:{head}{'^' if upwards and head in host.redirecting else ''}"
    return one, other


def _resource(link: Link, tail: str, head: str) -> Resource:
    limit, _ = link_limit(link)
    rate = limit.value if isinstance(limit, Limit) else math.inf
    words = limit.because if isinstance(limit, Limit) else limit.why
    return Resource(f"{link.id}:{tail}>{head}", _kind(link), words, rate, link)


def _kind(link: Link) -> ResourceKind:
    if isinstance(link.protocol, GPU_LINKS):
        return "NVLink"
    if isinstance(link.protocol, C2cLink):
        return "C2C"
    if isinstance(link.protocol, SmpLink):
        return "between sockets"
    return "PCIe" if isinstance(link.protocol, PcieLink) else "inside the CPU"


def _all_joined(host: Topology) -> bool:
    """Whether every GPU reaches every other over NVLink alone, by a switch or by one link to each."""
    gpus = [gpu.id for gpu in host.of_kind("gpu")]
    peers: dict[str, set[str]] = {gpu: set() for gpu in gpus}
    for link in host.links:
        if isinstance(link.protocol, GPU_LINKS):
            for one, other in ((link.a, link.b), (link.b, link.a)):
                peers.setdefault(one, set()).add(other)
    switches = {switch.id for switch in host.of_kind("nvswitch")}
    return all(peers[gpu] & switches or len(peers[gpu]) == len(gpus) - 1 for gpu in gpus)


def _sending(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """Arcs on the way out of a GPU: to a peer in the host, or to a NIC.

    NCCL takes one way between two GPUs, the nearest: where NVLink joins them all, PCIe leads to no peer.
    """
    tail, head = host.devices[tail_id], host.devices[head_id]
    over_gpu_link = isinstance(link.protocol, GPU_LINKS)
    if tail.kind == "nic" or (head.kind == "gpu" and host.joined and not over_gpu_link):
        return
    if head.kind == "nic" and not host.direct:
        return
    one, other = _ends(host, "s", tail_id, head_id, link)
    tails, heads = [one], [other]
    if tail.kind == "gpu":
        tails = [f"{one}.src"]
        if host.relay != "none" or over_gpu_link:  # NVB: from one NVLink to the next, also where PXN is off
            tails.append(f"{one}.relay")
    if head.kind == "gpu":
        heads = [f"{other}.dst", *([f"{other}.relay"] if over_gpu_link else [])]
        if tail.kind == "nvswitch":
            heads.append(f"d:{head_id}.dst")
    for start in tails:
        for end in heads:
            yield Arc(start, end, resource)


def _receiving(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """Arcs on the way from a NIC to a GPU."""
    tail, head = host.devices[tail_id], host.devices[head_id]
    over_gpu_link, both = isinstance(link.protocol, GPU_LINKS), host.relay == "both"
    if head.kind == "nic" or (over_gpu_link and not both):
        return
    if tail.kind == "gpu" and not (both and over_gpu_link):
        return
    one, other = _ends(host, "r", tail_id, head_id, link)
    start = f"{one}.relay" if tail.kind == "gpu" else one
    if head.kind != "gpu":
        yield Arc(start, other, resource)
        return
    yield Arc(start, f"{other}.dst", resource)
    if both and not over_gpu_link:
        yield Arc(start, f"{other}.relay", resource)


def _bouncing(host: _Host, tail_id: str, head_id: str, link: Link, resource: str) -> Iterator[Arc]:
    """The second way through the PCIe tree that data takes without GPUDirect: memory to NIC (t), NIC to memory (q)."""
    if isinstance(link.protocol, GPU_LINKS) or "gpu" in (host.devices[tail_id].kind, host.devices[head_id].kind):
        return
    if host.devices[tail_id].kind != "nic":
        yield Arc(*_ends(host, "t", tail_id, head_id, link), resource)
    if host.devices[head_id].kind != "nic":
        yield Arc(*_ends(host, "q", tail_id, head_id, link), resource)


def _port_arcs(cluster: Cluster, *, direct: bool) -> tuple[list[Arc], list[Resource]]:
    """Both directions of every NIC port; resources in the order tx0, rx0, tx1, rx1 ..."""
    out, into = ("s", "r") if direct else ("t", "q")
    arcs, resources = [], []
    for rail, (nic, link) in enumerate(ports(cluster.host)):
        limit, _ = link_limit(link)
        rate = limit.value if isinstance(limit, Limit) else math.nan
        words = limit.because if isinstance(limit, Limit) else limit.why
        for direction, tail, head in (
            ("tx", f"{out}:{nic.id}", f"tx:{rail}"),
            ("rx", f"rx:{rail}", f"{into}:{nic.id}"),
        ):
            resource = Resource(f"{nic.id}:{direction}", "NIC port", words, rate, link)
            resources.append(resource)
            arcs.append(Arc(tail, head, resource.id))
    return arcs, resources


def _levels(cluster: Cluster) -> int:
    """How many tiers traffic between the hosts can use: up to the one that joins them all, and where rails end at
    their leaf one more, which joins the rails.
    """
    tiers = cluster.fabric.tiers
    top = next((number for number, tier in enumerate(tiers) if tier.hosts >= cluster.hosts), 0)
    crosses_rails = cluster.fabric.rail_optimised and top == 0 and len(tiers) > 1
    return top + 1 + crosses_rails if tiers else 0


def _fabric_arcs(cluster: Cluster, port_resources: list[Resource]) -> Iterator[Arc]:
    rails = range(len(port_resources) // 2)
    levels = _levels(cluster)
    if not levels:
        for rail in rails:
            yield Arc(f"tx:{rail}", "up:0")
            yield Arc("up:0", f"rx:{rail}")
        return
    by_rail = cluster.fabric.rail_optimised
    for rail in rails:
        suffix = f":{rail}" if by_rail else ""
        yield Arc(f"tx:{rail}", f"up:0{suffix}")
        yield Arc(f"down:0{suffix}", f"rx:{rail}")
    for level in range(levels):
        for suffix in [f":{rail}" for rail in rails] if by_rail and level == 0 else [""]:
            yield Arc(f"up:{level}{suffix}", f"down:{level}{suffix}", None, level)
            if level + 1 < levels:
                yield Arc(f"up:{level}{suffix}", f"up:{level + 1}", f"uplinks:{level}{suffix}:up")
                yield Arc(f"down:{level + 1}", f"down:{level}{suffix}", f"uplinks:{level}{suffix}:down")


def _uplinks(cluster: Cluster, port_resources: list[Resource]) -> Iterator[Resource]:
    """Each host's share of the uplinks of each tier, per rail where the lowest tier is one leaf for each rail."""
    tiers = cluster.fabric.tiers
    for level in range(_levels(cluster) - 1):
        by_rail = cluster.fabric.rail_optimised and level == 0
        share = math.prod(1 / tier.oversubscription for tier in tiers[: level + 1])
        for direction, ports_there in (("up", port_resources[::2]), ("down", port_resources[1::2])):
            for rail, suffix in ((rail, f":{rail}") for rail in range(len(ports_there))) if by_rail else ((0, ""),):
                below = [ports_there[rail]] if by_rail else ports_there
                rate = sum(port.limit_bytes_per_s for port in below) * share
                yield Resource(
                    f"uplinks:{level}{suffix}:{direction}", "uplinks", _uplink_words(tiers[level], share), rate,
                    below[0].link, share * len(below),
                )  # fmt: skip


def _uplink_words(tier: Tier, share: float) -> str:
    ratio = f"oversubscribed {1 / share:.3g}:1" if share < 1 else "non-blocking"
    return f"uplinks of the {tier.name} tier, {ratio}"


def _refuse_unknown(host: Topology, resources: dict[str, Resource]) -> None:
    """Without the rate of a port or of NVLink nothing can be said: all such facts are named at once.

    A PCIe link of unknown rate is not counted: the limit still holds, it may only be lower (`not_counted`).
    """
    missing = [fact for kind, facts in _missing(resources).items() if kind != "PCIe" for fact in facts]
    if missing:
        raise CannotJudge(
            f"{host.name} does not say: {'; '.join(missing[:8])}{' ...' if len(missing) > 8 else ''}",
            hint="give the missing facts, or name a shape (railwright topo --help)",
        )


def not_counted(graph: FlowGraph) -> tuple[str, ...]:
    """The PCIe links whose rate is not known, as `link: fact`."""
    return tuple(_missing(graph.resources).get("PCIe", ()))


def _missing(resources: dict[str, Resource]) -> dict[str, list[str]]:
    missing: dict[str, list[str]] = {}
    for link, kind in dict.fromkeys((resource.link, resource.kind) for resource in resources.values()):
        limit, _ = link_limit(link)
        if not isinstance(limit, Limit):
            missing.setdefault(kind, []).extend(limit.missing)
    return missing
