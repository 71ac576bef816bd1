"""Paths over a topology, with NCCL's path kinds.

A path's kind is that of the worst element that it crosses; among paths of one kind the shortest is taken.
Rules after NCCL src/graph/paths.cc (2026): a path goes through a GPU only over NVLink (NVB, PXN), PXN only from a GPU
to a NIC. It never goes through NICs, drives or memory.
RCCL's XGMI takes NVLink's place in every rule, so its paths are NVL and NVB too.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from railwright.errors import UsageError, unknown_name
from railwright.topology.devices import (
    GPU_LINKS,
    C2cLink,
    Device,
    DeviceKind,
    Link,
    NetworkLink,
    Path,
    PathKind,
    SmpLink,
    Topology,
)

KIND_ORDER: tuple[PathKind, ...] = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET")

_BRIDGES = frozenset({"root_port", "pcie_switch", "card"})
_SWITCHES = frozenset({"root_port", "pcie_switch"})
_GPU_LINK_TYPES = frozenset(GPU_LINKS)


class Graph:
    """A topology indexed for path search. Raises UsageError for links to devices that do not exist."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.devices = {device.id: device for device in topology.devices}
        self._neighbours: dict[str, list[tuple[str, Link]]] = defaultdict(list)
        for link in topology.links:
            for end in (link.a, link.b):
                if end not in self.devices:
                    raise UsageError(f"link {link.id} ends at {end!r}, which is not a device of {topology.name!r}")
            self._neighbours[link.a].append((link.b, link))
            if not link.one_way:
                self._neighbours[link.b].append((link.a, link))
        self._searches: dict[tuple[str, bool], _Search] = {}

    def find(self, source: str, target: str) -> Path | None:
        """Return the nearest path from `source` to `target`, None if they are not connected. Raises UsageError."""
        for name in (source, target):
            if name not in self.devices:
                raise unknown_name(f"device in {self.topology.name}", name, self.devices)
        relayed = self.devices[source].kind == "gpu" and self.devices[target].kind in ("nic", "fabric")
        key = (source, relayed)
        if key not in self._searches:
            self._searches[key] = _Search(self.devices, self._neighbours, source, relayed=relayed)
        return self._searches[key].path_to(target)


class _CrossedElements(NamedTuple):
    """The elements of a path that decide its kind."""

    kinds: frozenset[DeviceKind]
    """Kinds of all its devices."""
    passed: frozenset[DeviceKind]
    """Kinds of the devices between its ends."""
    switches: int
    """Root ports and PCIe switches between its ends."""
    protocols: frozenset[type]
    """Protocols of its links."""


class _PartialPath(NamedTuple):
    """The beginning of a path."""

    devices: tuple[str, ...]
    links: tuple[Link, ...]
    crossed: _CrossedElements


class _Search:
    """The nearest paths from a device, found lazily in the order of their distance.

    With `relayed`, GPUs may hand data on to the network (PXN).
    """

    def __init__(
        self,
        devices: Mapping[str, Device],
        neighbours: Mapping[str, list[tuple[str, Link]]],
        source: str,
        *,
        relayed: bool,
    ) -> None:
        self._devices = devices
        self._neighbours = neighbours
        self._relayed = relayed
        self._best: dict[tuple[str, int], int] = {}
        self._tickets = itertools.count()
        first = _PartialPath(
            (source,), (), _CrossedElements(frozenset((devices[source].kind,)), frozenset(), 0, frozenset())
        )
        self._queue: list[tuple[int, int, int, _PartialPath]] = [(0, 0, next(self._tickets), first)]
        self._found: dict[str, Path] = {}

    def path_to(self, target: str) -> Path | None:
        """Return the nearest path to `target`; None if it cannot be reached."""
        while target not in self._found and self._queue:
            rank, hops, _, way = heapq.heappop(self._queue)
            here = way.devices[-1]
            # From a NIC the path to a Grace CPU is PHB, and P2C if it continues over NVLink-C2C.
            if here not in self._found:
                self._found[here] = Path(kind=_find_kind(way.crossed), devices=way.devices, links=way.links)
            if self._best.get((here, rank), hops + 1) <= hops:
                continue
            self._best[(here, rank)] = hops
            for neighbour, link in self._neighbours.get(here, ()):
                if neighbour not in way.devices and (not hops or self._may_pass(way, link)):
                    onward = self._onward(way, neighbour, link)
                    worst = max(rank, KIND_ORDER.index(_find_kind(onward.crossed)))
                    heapq.heappush(self._queue, (worst, hops + 1, next(self._tickets), onward))
        return self._found.get(target)

    def _may_pass(self, way: _PartialPath, onward: Link) -> bool:
        """Report whether data that reached the end of a way over its last link may leave it over `onward`."""
        here, arrived = self._devices[way.devices[-1]], way.links[-1].protocol
        if here.kind == "gpu":
            return isinstance(arrived, GPU_LINKS) and (isinstance(onward.protocol, GPU_LINKS) or self._relayed)
        if here.kind == "nic":
            return isinstance(onward.protocol, NetworkLink) or isinstance(arrived, NetworkLink)
        if here.kind == "nvswitch":
            return isinstance(onward.protocol, GPU_LINKS)
        return here.kind not in ("memory", "drive", "host")

    def _onward(self, way: _PartialPath, neighbour: str, link: Link) -> _PartialPath:
        crossed = way.crossed
        passed, switches = crossed.passed, crossed.switches
        if way.links:
            here = self._devices[way.devices[-1]].kind
            passed |= {here}
            switches += here in _SWITCHES
        kinds, protocols = crossed.kinds | {self._devices[neighbour].kind}, crossed.protocols | {type(link.protocol)}
        return _PartialPath(
            (*way.devices, neighbour), (*way.links, link), _CrossedElements(kinds, passed, switches, protocols)
        )


@lru_cache(maxsize=4096)
def _find_kind(crossed: _CrossedElements) -> PathKind:
    if not crossed.protocols:
        return "LOC"
    if "fabric" in crossed.passed:
        return "NET"
    if SmpLink in crossed.protocols:
        return "SYS"
    if crossed.protocols <= _GPU_LINK_TYPES:
        return "NVB" if "gpu" in crossed.passed else "NVL"
    if "cpu" in crossed.kinds:
        if C2cLink in crossed.protocols:
            return "P2C" if crossed.kinds & _BRIDGES else "C2C"
        return "LOC" if crossed.kinds <= {"cpu", "memory"} else "PHB"
    if crossed.protocols & _GPU_LINK_TYPES:
        return "PXN"
    # A card is one package: NCCL merges the functions of a multi-port NIC into one node (src/graph/topo.cc).
    return "PIX" if crossed.switches <= 1 else "PXB"


class Affinity:
    """The NICs that each GPU reaches, nearest first."""

    def __init__(self, topology: Topology) -> None:
        graph = Graph(topology)
        self.gpus = topology.of_kind("gpu")
        self.nics = topology.of_kind("nic")
        self.paths: dict[tuple[str, str], Path | None] = {
            (gpu.id, nic.id): physical_path(graph, gpu.id, nic.id) for gpu in self.gpus for nic in self.nics
        }

    def kind(self, gpu_id: str, nic_id: str) -> PathKind | None:
        """Return the kind of the path between them from the NIC's side; None without a path."""
        path = self.paths[(gpu_id, nic_id)]
        return path.kind if path else None

    def nearest(self, gpu_id: str) -> tuple[str, ...]:
        """Return the NICs whose path to that GPU is of the nearest kind."""
        ranked = [
            (KIND_ORDER.index(path.kind), nic) for (gpu, nic), path in self.paths.items() if path and gpu == gpu_id
        ]
        return tuple(nic for rank, nic in ranked if rank == min(ranked)[0])


def physical_path(graph: Graph, gpu_id: str, nic_id: str) -> Path | None:
    """Return the path of DMA between a GPU and a NIC: from the NIC's side, so that PXN cannot hide it."""
    path = graph.find(nic_id, gpu_id)
    if path is None:
        return None
    return Path(kind=path.kind, devices=path.devices[::-1], links=path.links[::-1])
