"""The traffic that must cross the border of each group of GPUs in a host: a ring or a tree leaves no group out.

Without NVLink between GPUs the links are a tree, and the groups below one link suffice: the border of any other group
is a sum of those. With NVLink between some GPUs, groups also count with the joined GPUs added or taken away, whichever
border is narrowest. GPUs joined by NVLink are added and taken away together. That is exact for pairs unless they join
GPUs below switches that are below each other; then the limit is an upper one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from railwright.limits.flow import Cut, find_reachable
from railwright.limits.flow_graph import FlowGraph
from railwright.limits.limit import Constant, Source
from railwright.topology.devices import GPU_LINKS, InternalLink, PcieLink, Topology

_Group = frozenset[str]
"""Ids of devices: GPUs, and the devices between them."""
_MAX_TOUCHED = Constant(
    4,
    "groups of NVLink below one link that are added and taken away singly; more are taken together",
    Source("Railwright docs/collectives.md", "our choice: it bounds the cuts of one link to 3^4"),
)


def group_cuts(host: Topology, graph: FlowGraph, demand: float) -> Iterator[Cut]:
    """Yield cuts that make at least `demand` x rate leave and enter each group; none if NVSwitches join all GPUs."""
    if host.of_kind("nvswitch") or not demand:
        return
    gpus = frozenset(graph.gpus)
    cpus = frozenset(cpu.id for cpu in host.of_kind("cpu"))
    seen: set[_Group] = set()
    for name, group in _list_groups(host):
        if group in seen or not group & gpus or gpus <= group:
            continue
        seen.add(group)
        has_cpu = bool(group & cpus)
        yield Cut(f"out of {name}", _find_crossing_arcs(graph, group, "st" if has_cpu else "s", outwards=True), demand)
        yield Cut(f"into {name}", _find_crossing_arcs(graph, group, "srq" if has_cpu else "sr", outwards=False), demand)


def _list_groups(host: Topology) -> Iterator[tuple[str, _Group]]:
    """Yield every group with its name; a group may come twice."""
    islands = _find_islands(host)
    for number, island in enumerate(islands):
        yield f"NVLink's group {number}", island
    for name, below in _group_devices(host):
        touched = [island for island in islands if island & below]
        if len(touched) > _MAX_TOUCHED.value:
            touched = [frozenset().union(*touched)]
        for number, variant in enumerate(itertools.product(*(_list_variants(island, below) for island in touched))):
            added, taken = (
                (frozenset[str]().union(*sets) for sets in zip(*variant, strict=True)) if variant else ((), ())
            )
            yield f"{name} variant {number}", below.union(added).difference(taken)


def _list_variants(island: _Group, below: _Group) -> tuple[tuple[_Group, _Group], ...]:
    """Return (added, taken away): unchanged, without those GPUs, and with all of them if NVLink leads out."""
    none: _Group = frozenset()
    kept, without, whole = (none, none), (none, island), (island, none)
    return (kept, without) if island <= below else (kept, without, whole)


def _find_islands(host: Topology) -> list[_Group]:
    """Return the groups of GPUs that NVLink or Infinity Fabric joins in any number of steps, without single GPUs."""
    peers: dict[str, list[str]] = defaultdict(list)
    for link in host.links:
        if isinstance(link.protocol, GPU_LINKS):
            peers[link.a].append(link.b)
            peers[link.b].append(link.a)
    return list(dict.fromkeys(frozenset(find_reachable([gpu], peers)) for gpu in peers))


def _group_devices(host: Topology) -> Iterator[tuple[str, _Group]]:
    """Yield the devices below each switch, root port, NUMA node and socket."""
    down: dict[str, list[str]] = defaultdict(list)
    for link in host.links:  # link.a is the end nearer the CPU
        if isinstance(link.protocol, PcieLink | InternalLink):
            down[link.a].append(link.b)
    for device in host.of_kind("pcie_switch", "root_port", "cpu"):
        yield device.id, frozenset(find_reachable([device.id], down))
    sockets: dict[object, list[str]] = defaultdict(list)
    for cpu in host.of_kind("cpu"):
        sockets[cpu.facts.get("package", cpu.id)].append(cpu.id)
    for package, nodes in sockets.items():
        yield f"socket {package}", frozenset(find_reachable(nodes, down))


def _find_crossing_arcs(graph: FlowGraph, group: _Group, phases: str, *, outwards: bool) -> tuple[int, ...]:
    """Return the arcs over the border. A GPU's own sink (`.in`) is the end of the data, not a way out."""
    found = []
    for number, arc in enumerate(graph.arcs):
        inner, outer = (arc.tail, arc.head) if outwards else (arc.head, arc.tail)
        crosses = _parse_device(inner) in group and _parse_device(outer) not in group
        if crosses and inner.partition(":")[0] in phases and not arc.head.endswith(".in"):
            found.append(number)
    return tuple(found)


def _parse_device(node: str) -> str:
    return node.partition(":")[2].partition(".")[0].rstrip("^")
