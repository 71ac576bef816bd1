"""The actual paths of NCCL's connections: maps its ranks and NICs to devices of a topology, or to NCCL's own table.

NCCL may log `[receive] ... GDRDMA` although the NIC's writes cross the CPU: its check uses the GPU's path to the NIC,
which PXN has replaced (src/graph/paths.cc, ncclTopoCheckGdr).
Paths here are always from the NIC to the GPU, because PXN applies only to sends.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from railwright.groups import group_by_key
from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog, Rank
from railwright.topology.devices import Device, PathKind, Topology
from railwright.topology.paths import Graph, physical_path

OVER_CPU: frozenset[PathKind] = frozenset({"PHB", "SYS"})
GDR_BY_DEFAULT: frozenset[PathKind] = frozenset({"LOC", "PIX", "PXB", "P2C"})
"""NCCL's default for NCCL_NET_GDR_LEVEL is PXB; C2C machines also use P2C (src/graph/paths.cc)."""
NVLINK: frozenset[PathKind] = frozenset({"NVL", "NVB"})


NO_MACHINE = Topology(name="", source="shape", devices=(), links=())
"""The topology for runs without a given machine: settings need none, and NCCL's own table shows paths."""


class ConnectionPath(NamedTuple):
    """A path's kind and its source; `sure` is False if devices were matched without name or address."""

    kind: PathKind
    source: str
    target: str
    known_from: str
    sure: bool


class ConnectionPaths:
    """Paths between the ranks and NICs of a communicator. All hosts are assumed to equal the topology."""

    def __init__(self, log: NcclLog, communicator: Communicator, topology: Topology | None) -> None:
        self._listed = dict(group_by_key(log.nics, lambda nic: nic.host))
        self._matched: dict[str, dict[int, Device]] = {}
        self._ranks = {one.rank: one for one in communicator.ranks}
        networked = (one for one in communicator.connections if one.transport == "NET")
        known = (one for one in networked if one.nic is not None and gpu_side(one) in self._ranks)
        self._connections = dict(group_by_key(known, lambda one: self._ranks[gpu_side(one)].host))
        graph = Graph(topology or NO_MACHINE)
        self._graph = graph
        self._gpus, self._nics = graph.topology.of_kind("gpu"), graph.topology.of_kind("nic")
        self._physical = cache(lambda gpu_id, nic_id: physical_path(graph, gpu_id, nic_id))
        self._table: dict[tuple[str, str, str], tuple[PathKind, int]] = {}
        for system in log.systems:
            for path in system.paths:
                key = (system.host, _strip_host(path.source), _strip_host(path.target))
                self._table[key] = (path.kind, path.line)

    def to_gpu(self, rank: int, nic: int, *, trust_table: bool = True) -> ConnectionPath | None:
        """Return the path from a NIC of the rank's host to its GPU. NCCL's table shows detours if GDR is off."""
        rank_info = self._ranks.get(rank)
        if rank_info is None:
            return None
        gpu_device, nic_device = self._gpu(rank_info), self._nic(rank_info.host, nic)
        if gpu_device is not None and nic_device is not None:
            path = self._physical(gpu_device.id, nic_device.id)
            if path is not None:
                named = self._named(rank_info.host, nic) is nic_device and _matches(gpu_device, rank_info)
                return ConnectionPath(path.kind, nic_device.id, gpu_device.id, "topology", named)
        found = self._table.get((rank_info.host, f"NET/{nic:x}", f"GPU/{rank_info.bus_id}")) if trust_table else None
        return ConnectionPath(found[0], f"NIC {nic}", gpu_name(rank_info), f"line {found[1]}", True) if found else None

    def between(self, source: int, target: int) -> ConnectionPath | None:
        """Return the path between the GPUs of two ranks of one host."""
        source_rank, target_rank = self._ranks.get(source), self._ranks.get(target)
        if source_rank is None or target_rank is None:
            return None
        first, second = self._gpu(source_rank), self._gpu(target_rank)
        if first is not None and second is not None and first.id != second.id:
            path = self._graph.find(first.id, second.id)
            if path is not None:
                return ConnectionPath(
                    path.kind,
                    first.id,
                    second.id,
                    "topology",
                    _matches(first, source_rank) and _matches(second, target_rank),
                )
        found = self._table.get((source_rank.host, f"GPU/{source_rank.bus_id}", f"GPU/{target_rank.bus_id}"))
        return (
            ConnectionPath(found[0], gpu_name(source_rank), gpu_name(target_rank), f"line {found[1]}", True)
            if found
            else None
        )

    def gpu_id(self, rank: int) -> str:
        """Return the id of the rank's GPU, empty if unknown."""
        rank_info = self._ranks.get(rank)
        device = self._gpu(rank_info) if rank_info is not None else None
        return device.id if device else ""

    def nic_id(self, host: str, nic: int) -> str:
        """Return the id of the NIC with NCCL's index on the host, empty if unknown."""
        device = self._nic(host, nic)
        return device.id if device else ""

    def _gpu(self, rank: Rank) -> Device | None:
        by_address = next((gpu for gpu in self._gpus if _matches(gpu, rank)), None)
        if by_address is not None:
            return by_address
        index = rank.nvml_dev if rank.nvml_dev is not None else rank.cuda_dev
        return self._gpus[index] if index is not None and 0 <= index < len(self._gpus) else None

    def _nic(self, host: str, nic: int) -> Device | None:
        named = self._named(host, nic)
        if named is not None:
            return named
        listed = [nic_line for nic_line in self._listed.get(host, ()) if nic_line.network != "Socket"]
        # Unknown names can be matched only if the numbers of NICs are equal.
        if listed and len(listed) != len(self._nics):
            return None
        if host not in self._matched:
            self._matched[host] = self._match(host)
        return self._matched[host].get(nic)

    def _match(self, host: str) -> dict[int, Device]:
        """Map NCCL's NIC indexes to unnamed NICs so that the fewest connections cross the CPU.

        Plugins number NICs in their own order (on p4d, GPUs 0 and 1 use NIC 1), but NCCL prefers near NICs: a
        connection that crosses the CPU in the best order crosses it in every order.
        """
        users: dict[int, list[str]] = {}
        for one in self._connections.get(host, ()):
            assert one.nic is not None
            device = self._gpu(self._ranks[gpu_side(one)])
            users.setdefault(one.nic, []).extend([device.id] if device else [])
        if len(users) > len(self._nics):
            return {}
        wanted: dict[int, list[int]] = {}
        for nic, gpus in users.items():
            ways = [[self._physical(gpu, one.id) for gpu in gpus] for one in self._nics]
            far = [sum(path is not None and path.kind in OVER_CPU for path in paths) for paths in ways]
            wanted[nic] = [place for place, cost in enumerate(far) if cost == min(far)]
        placed = _assign_places(wanted, len(self._nics))
        return {nic: self._nics[place] for nic, place in placed.items()}

    def _named(self, host: str, nic: int) -> Device | None:
        """Return the topology's NIC with the name in NCCL's log."""
        names = {entry.name for entry in self._listed.get(host, ()) if entry.index == nic}
        named = (
            entry for entry in self._nics if names & {str(entry.facts.get(key)) for key in ("rdma_device", "netdev")}
        )
        return next(named, None)


def _assign_places(wanted: dict[int, list[int]], places: int) -> dict[int, int]:
    """Assign each index to a wanted place by augmenting paths; the others take free places."""
    taken: dict[int, int] = {}

    def settle(index: int, tried: set[int]) -> bool:
        for place in sorted(wanted[index], key=lambda place: place != index):
            if place in tried:
                continue
            tried.add(place)
            if place not in taken or settle(taken[place], tried):
                taken[place] = index
                return True
        return False

    for index in sorted(wanted):
        settle(index, set())
    free = [place for place in range(places) if place not in taken]
    for index in sorted(set(wanted) - set(taken.values())):
        taken[free.pop(0)] = index
    return {index: place for place, index in taken.items()}


def gpu_side(connection: Connection) -> int:
    """Return the rank whose GPU memory the NIC accesses: with PXN, that of the proxy (src/transport/net.cc)."""
    if connection.direction == "receive":
        return connection.target
    return connection.source if connection.proxy is None else connection.proxy


def pci_address(bus_id: str) -> str:
    """Format NCCL's bus id `901c0`, which has no separators, as `0000:90:1c.0`; empty stays empty."""
    digits = bus_id.lower()
    if not digits:
        return ""
    digits = digits.zfill(8)
    return f"{digits[:-5].zfill(4)}:{digits[-5:-3]}:{digits[-3:-1]}.{digits[-1]}"


def gpu_name(rank: Rank) -> str:
    """Return a name for the rank's GPU."""
    return f"GPU {pci_address(rank.bus_id)}" if rank.bus_id else f"GPU of rank {rank.rank}"


def _matches(gpu: Device, rank: Rank) -> bool:
    return bool(rank.bus_id) and gpu.address.lower() == pci_address(rank.bus_id)


def _strip_host(node: str) -> str:
    """Remove the host number: `GPU/0-60` (2.20 and later) and `GPU/60` are the same GPU."""
    kind, _, name = node.partition("/")
    return f"{kind}/{name.rpartition('-')[2].lower()}"
