"""Which way NCCL's connections really go: its ranks and NICs put on the devices of a topology, or on NCCL's own table.

NCCL may log `[receive] ... GDRDMA` although the NIC's writes cross the CPU: its check takes the GPU's path to the NIC,
which PXN has replaced (src/graph/paths.cc, ncclTopoCheckGdr).
So the path is always taken from the NIC to the GPU: PXN is for sends only.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog, Rank
from railwright.topology.devices import Device, PathKind, Topology
from railwright.topology.paths import Graph, physical_path

OVER_CPU: frozenset[PathKind] = frozenset({"PHB", "SYS"})
GDR_BY_DEFAULT: frozenset[PathKind] = frozenset({"LOC", "PIX", "PXB", "P2C"})
"""NCCL's default for NCCL_NET_GDR_LEVEL is PXB; P2C is taken too on C2C machines (src/graph/paths.cc)."""
NVLINK: frozenset[PathKind] = frozenset({"NVL", "NVB"})


NO_MACHINE = Topology(name="", source="shape", devices=(), links=())
"""For a run without a given machine: settings can be seen without one, and NCCL's own table shows paths."""


class Way(NamedTuple):
    """A path's kind and how it is known; `sure` is False where devices were matched without name or address."""

    kind: PathKind
    source: str
    target: str
    known_from: str
    sure: bool


class Ways:
    """Paths between the ranks and NICs of one communicator. All hosts are taken to be machines like the topology."""

    def __init__(self, log: NcclLog, communicator: Communicator, topology: Topology | None) -> None:
        self._log = log
        self._connections = [one for one in communicator.connections if one.transport == "NET"]
        self._matched: dict[str, dict[int, Device]] = {}
        self._ranks = {one.rank: one for one in communicator.ranks}
        graph = Graph(topology or NO_MACHINE)
        self._graph = graph
        self._gpus, self._nics = graph.topology.of_kind("gpu"), graph.topology.of_kind("nic")
        self._physical = cache(lambda gpu_id, nic_id: physical_path(graph, gpu_id, nic_id))
        self._table: dict[tuple[str, str, str], tuple[PathKind, int]] = {}
        for system in log.systems:
            for path in system.paths:
                key = (system.host, _local(path.source), _local(path.target))
                self._table[key] = (path.kind, path.line)

    def to_gpu(self, rank: int, nic: int, *, trust_table: bool = True) -> Way | None:
        """From a NIC of the rank's host to the rank's GPU. NCCL's table shows a detour where GPUDirect RDMA is off."""
        one = self._ranks.get(rank)
        if one is None:
            return None
        gpu_device, nic_device = self._gpu(one), self._nic(one.host, nic)
        if gpu_device is not None and nic_device is not None:
            path = self._physical(gpu_device.id, nic_device.id)
            if path is not None:
                named = self._named(one.host, nic) is nic_device and _matches(gpu_device, one)
                return Way(path.kind, nic_device.id, gpu_device.id, "topology", named)
        found = self._table.get((one.host, f"NET/{nic:x}", f"GPU/{one.bus_id}")) if trust_table else None
        return Way(found[0], f"NIC {nic}", gpu_name(one), f"line {found[1]}", True) if found else None

    def between(self, source: int, target: int) -> Way | None:
        """Between the GPUs of two ranks of one host."""
        one, other = self._ranks.get(source), self._ranks.get(target)
        if one is None or other is None:
            return None
        first, second = self._gpu(one), self._gpu(other)
        if first is not None and second is not None and first.id != second.id:
            path = self._graph.find(first.id, second.id)
            if path is not None:
                return Way(path.kind, first.id, second.id, "topology", _matches(first, one) and _matches(second, other))
        found = self._table.get((one.host, f"GPU/{one.bus_id}", f"GPU/{other.bus_id}"))
        return Way(found[0], gpu_name(one), gpu_name(other), f"line {found[1]}", True) if found else None

    def gpu_id(self, rank: int) -> str:
        """The topology's GPU of that rank, empty where it is not known."""
        one = self._ranks.get(rank)
        device = self._gpu(one) if one is not None else None
        return device.id if device else ""

    def nic_id(self, host: str, nic: int) -> str:
        """The topology's NIC for NCCL's index on that host, empty where it is not known."""
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
        listed = [one for one in self._log.nics if one.host == host and one.network != "Socket"]
        # A name that the topology does not know can be matched only where it has as many NICs.
        if listed and len(listed) != len(self._nics):
            return None
        if host not in self._matched:
            self._matched[host] = self._match(host)
        return self._matched[host].get(nic)

    def _match(self, host: str) -> dict[int, Device]:
        """NCCL's NIC indexes on NICs without a name, so that the fewest connections cross the CPU.

        Plugins number NICs in an order of their own (on p4d, GPUs 0 and 1 use NIC 1), but NCCL takes near ones: what
        crosses the CPU in the best order crosses it in every one.
        """
        users: dict[int, list[str]] = {}
        for one in self._connections:
            rank = gpu_side(one)
            if one.nic is not None and rank in self._ranks and self._ranks[rank].host == host:
                device = self._gpu(self._ranks[rank])
                users.setdefault(one.nic, []).extend([device.id] if device else [])
        if len(users) > len(self._nics):
            return {}
        wanted: dict[int, list[int]] = {}
        for nic, gpus in users.items():
            ways = [[self._physical(gpu, one.id) for gpu in gpus] for one in self._nics]
            far = [sum(path is not None and path.kind in OVER_CPU for path in paths) for paths in ways]
            wanted[nic] = [place for place, cost in enumerate(far) if cost == min(far)]
        placed = _assign(wanted, len(self._nics))
        return {nic: self._nics[place] for nic, place in placed.items()}

    def _named(self, host: str, nic: int) -> Device | None:
        """The topology's NIC that is called as NCCL's log calls that one."""
        names = {one.name for one in self._log.nics if one.host == host and one.index == nic}
        named = (one for one in self._nics if names & {str(one.facts.get(key)) for key in ("rdma_device", "netdev")})
        return next(named, None)


def _assign(wanted: dict[int, list[int]], places: int) -> dict[int, int]:
    """Each index on one of the places it wants, by augmenting paths. An index that finds none takes a free place."""
    taken: dict[int, int] = {}

    def settle(index: int, tried: set[int]) -> bool:
        for place in sorted(wanted[index], key=lambda one: one != index):
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


def gpu_side(one: Connection) -> int:
    """The rank whose GPU memory the NIC reads or writes: with PXN, that of the proxy (src/transport/net.cc)."""
    if one.direction == "receive":
        return one.target
    return one.source if one.proxy is None else one.proxy


def pci_address(bus_id: str) -> str:
    """`901c0` as `0000:90:1c.0`; empty where there is none (NCCL prints the address without its separators)."""
    digits = bus_id.lower()
    if not digits:
        return ""
    digits = digits.zfill(8)
    return f"{digits[:-5].zfill(4)}:{digits[-5:-3]}:{digits[-3:-1]}.{digits[-1]}"


def gpu_name(rank: Rank) -> str:
    """What the log calls the rank's GPU."""
    return f"GPU {pci_address(rank.bus_id)}" if rank.bus_id else f"GPU of rank {rank.rank}"


def _matches(gpu: Device, rank: Rank) -> bool:
    return bool(rank.bus_id) and gpu.address.lower() == pci_address(rank.bus_id)


def _local(node: str) -> str:
    """`GPU/0-60` (2.20 and later) and `GPU/60` are the same GPU: the number before the dash is the host's."""
    kind, _, name = node.partition("/")
    return f"{kind}/{name.rpartition('-')[2].lower()}"
