"""Paths over a topology, with NCCL's path kinds.

A path's kind is the worst thing it crosses; among paths of one kind the shortest is taken.
Rules after NCCL src/graph/paths.cc (2026): a path goes through a GPU only over NVLink (NVB, PXN), PXN only from a GPU
to a NIC. It never goes through NICs, drives or memory.
What RCCL calls XGMI takes NVLink's place in every rule, so its paths are NVL and NVB too.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from railwright.errors import UsageError, unknown_name
from railwright.topology.devices import GPU_LINKS, C2cLink, Device, Link, NetworkLink, Path, PathKind, SmpLink, Topology

KIND_ORDER: tuple[PathKind, ...] = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET")

_BRIDGES = frozenset({"root_port", "pcie_switch", "card"})


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

    def find(self, source: str, target: str) -> Path | None:
        """The nearest path from `source` to `target`, None if they are not connected. Raises UsageError."""
        for name in (source, target):
            if name not in self.devices:
                raise unknown_name(f"device in {self.topology.name}", name, self.devices)
        best: dict[tuple[str, PathKind], int] = {}
        queue: list[tuple[int, int, int, tuple[str, ...], tuple[Link, ...]]] = [(0, 0, 0, (source,), ())]
        ticket = 0
        while queue:
            rank, hops, _, seen, links = heapq.heappop(queue)
            here = seen[-1]
            kind = KIND_ORDER[rank]
            if here == target:
                # From a NIC the way to a Grace CPU is PHB, and P2C once it goes on over NVLink-C2C.
                whole = path_kind([self.devices[name] for name in seen], links)
                return Path(kind=whole, devices=seen, links=links)
            if best.get((here, kind), hops + 1) <= hops:
                continue
            best[(here, kind)] = hops
            for neighbour, link in self._neighbours[here]:
                if neighbour in seen or (len(seen) > 1 and not self._may_pass(seen, links, link, target)):
                    continue
                devices = (*seen, neighbour)
                new_kind = path_kind([self.devices[name] for name in devices], (*links, link))
                ticket += 1
                worst = max(rank, KIND_ORDER.index(new_kind))
                heapq.heappush(queue, (worst, hops + 1, ticket, devices, (*links, link)))
        return None

    def _may_pass(self, seen: tuple[str, ...], links: tuple[Link, ...], onward: Link, target: str) -> bool:
        """Whether data that came to `seen[-1]` over `links[-1]` may leave it over `onward`."""
        here = self.devices[seen[-1]]
        if here.kind == "gpu":
            arrived_by_nvlink = isinstance(links[-1].protocol, GPU_LINKS)
            to_nic = self.devices[seen[0]].kind == "gpu" and self.devices[target].kind in ("nic", "fabric")
            return arrived_by_nvlink and (isinstance(onward.protocol, GPU_LINKS) or to_nic)
        if here.kind == "nic":
            return isinstance(onward.protocol, NetworkLink) or isinstance(links[-1].protocol, NetworkLink)
        if here.kind == "nvswitch":
            return isinstance(onward.protocol, GPU_LINKS)
        return here.kind not in ("memory", "drive", "host")


def path_kind(devices: list[Device], links: tuple[Link, ...]) -> PathKind:
    """The kind of the path over `devices`, joined by `links` (one fewer than devices)."""
    if not links:
        return "LOC"
    protocols = [link.protocol for link in links]
    passed = devices[1:-1]
    if any(device.kind == "fabric" for device in passed):
        return "NET"
    if any(isinstance(protocol, SmpLink) for protocol in protocols):
        return "SYS"
    nvlinks = [isinstance(protocol, GPU_LINKS) for protocol in protocols]
    if all(nvlinks):
        return "NVB" if any(device.kind == "gpu" for device in passed) else "NVL"
    if any(device.kind == "cpu" for device in devices):
        if any(isinstance(protocol, C2cLink) for protocol in protocols):
            return "C2C" if not any(device.kind in _BRIDGES for device in devices) else "P2C"
        return "LOC" if {device.kind for device in devices} <= {"cpu", "memory"} else "PHB"
    if any(nvlinks):
        return "PXN"
    # A card is one package: NCCL merges the functions of a multi-port NIC into one node (src/graph/topo.cc).
    return "PIX" if sum(device.kind in ("root_port", "pcie_switch") for device in passed) <= 1 else "PXB"


class Affinity:
    """Which NICs each GPU reaches, nearest first."""

    def __init__(self, topology: Topology) -> None:
        graph = Graph(topology)
        self.gpus = topology.of_kind("gpu")
        self.nics = topology.of_kind("nic")
        self.paths: dict[tuple[str, str], Path | None] = {
            (gpu.id, nic.id): physical_path(graph, gpu.id, nic.id) for gpu in self.gpus for nic in self.nics
        }

    def kind(self, gpu_id: str, nic_id: str) -> PathKind | None:
        """The kind of the PCIe path between them, None if there is none."""
        path = self.paths[(gpu_id, nic_id)]
        return path.kind if path else None

    def nearest(self, gpu_id: str) -> tuple[str, ...]:
        """The NICs at the least distance from that GPU."""
        ranked = [
            (KIND_ORDER.index(path.kind), nic) for (gpu, nic), path in self.paths.items() if path and gpu == gpu_id
        ]
        return tuple(nic for rank, nic in ranked if rank == min(ranked)[0])


def physical_path(graph: Graph, gpu_id: str, nic_id: str) -> Path | None:
    """The way that DMA between a GPU and a NIC takes: from the NIC's side, so that PXN cannot hide it."""
    path = graph.find(nic_id, gpu_id)
    if path is None:
        return None
    return Path(kind=path.kind, devices=path.devices[::-1], links=path.links[::-1])
