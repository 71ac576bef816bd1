"""A launch before it starts: the machine, the varied parameters, and the CPU and GPU of each rank."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from railwright.benchmarks.options import O
from railwright.results.records import Fabric
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Device, Scalar, Topology
from railwright.topology.gpus import usable_gpus


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters varied by a launch or a point; the base of each benchmark's cases.

    Records omit fields that have their defaults, so that runs with and without an option compare.
    """

    def parameters(self) -> dict[str, Scalar]:
        """Return the case as a record's parameters."""
        values = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in values if value != field.default}


C = TypeVar("C", bound=Case, covariant=True)


class Launch(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """A launch of a benchmark in new processes."""

    case: C
    """The parameters of this launch."""
    environment: dict[str, str] = {}
    """Environment variables that select the case."""
    ranks: int = 1
    """The number of processes. MPI's launcher starts them if there is more than one."""
    gpus: tuple[str, ...] = ()
    """The ids of the ranks' GPUs, in rank order. Each rank is bound near its GPU."""
    gpu_clock_hz: float = 0.0
    """The frequency that the GPU clocks are locked to; 0 leaves the clocks unlocked."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a launch runs on."""

    topology: Topology
    cpus: tuple[int, ...]
    """The CPUs that may be used. Rank i is bound to CPU i of the list, modulo its length."""
    hosts: tuple[str, ...] = ()
    """The hosts of the ranks, with equal numbers of consecutive ranks each; empty means this host alone."""
    ranks_per_host: int = 1
    hosts_share_cpus: bool = False
    """Whether these hosts are parts of one machine."""
    hosts_share_gpus: bool = False
    """Whether these hosts are namespaces that see the same GPUs."""
    host_cpus: float | None = None
    """The number of shared CPUs that each host may use; None means no limit."""
    reached_by: str = ""
    """A description of the method that reaches the other hosts."""
    paired: bool = False
    """Whether these two hosts are one pair of several."""
    first_hosts: int = 0
    """The number of hosts in the first of two merged groups; 0 if there are no groups."""
    grows_to: int = 0
    """The number of hosts that groups may grow to at constant work per host; 0 if they do not grow."""
    fabric: Fabric | None = None
    """The links between these hosts, if their rates are known."""

    @property
    def host_ranks(self) -> int:
        """The number of ranks that fit on all hosts."""
        return len(self.hosts) * self.ranks_per_host


class Job(msgspec.Struct, Generic[O, C], frozen=True, kw_only=True):
    """A rank's complete instructions, sent to it as JSON."""

    benchmark: str
    options: O
    launch: Launch[C]
    machine: Machine
    round: int = 0
    """The repetition of the whole list of launches, from 0."""
    first_case: int = 0
    """The first case to run. An earlier launch ran the ones before it and crashed in the last."""

    @property
    def case(self) -> C:
        """The parameters of the launch."""
        return self.launch.case

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return self.launch.ranks

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that may be used."""
        return self.machine.cpus

    @property
    def topology(self) -> Topology:
        """The machine's devices and links."""
        return self.machine.topology

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the ranks; empty means this host alone."""
        return self.machine.hosts

    @property
    def ranks_on_cpus(self) -> int:
        """The number of ranks that share `cpus`: those of one host, or of all hosts if the hosts share CPUs."""
        machine = self.machine
        return self.ranks if not self.hosts or machine.hosts_share_cpus else self.ranks // len(self.hosts)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The launch's GPUs, or all NVIDIA GPUs that CUDA can use as a whole, by PCI address."""
        usable = usable_gpus(self.topology)
        if not self.launch.gpus:
            return usable
        known = {gpu.id: gpu for gpu in usable}
        return tuple(known[name] for name in self.launch.gpus if name in known)

    def find_gpu(self, rank: int) -> Device:
        """Return the GPU of a rank. `plan` has already waived launches without a GPU."""
        return self.gpus[rank % len(self.gpus)]

    def find_cpu(self, rank: int) -> int:
        """Return the CPU that a rank is bound to, distinct for as many ranks as there are CPUs.

        A rank with a GPU is bound to a usable CPU on the GPU's NUMA node, if the node is known, and far from the CPUs
        of other ranks there.
        """
        if not self.launch.gpus or not self.gpus:
            place = rank % self.ranks_on_cpus if self.hosts else rank
            return self.cpus[place % len(self.cpus)]
        gpu = self.find_gpu(rank)
        near = self.list_gpu_cpus(gpu)
        ranks = range(max(self.ranks, rank + 1))
        on_node = [other for other in ranks if not near or self.find_gpu(other).numa == gpu.numa]
        cpus = near or self.cpus
        return cpus[_spread_places(len(cpus), len(on_node))[on_node.index(rank)]]

    def list_gpu_cpus(self, gpu: Device) -> tuple[int, ...]:
        """Return the usable CPUs on a GPU's NUMA node, or none if the node is unknown."""
        if gpu.numa is None:
            return ()
        return self._list_cpus(gpu.numa)

    def list_rank_cpus(self, rank: int) -> tuple[int, ...]:
        """Return the CPUs on a rank's NUMA node, for a library's threads.

        A rank is bound to one CPU and its threads inherit that binding: a library's worker would wait for the time
        slice of the thread that polls for it.
        """
        return self._list_cpus(find_node(self.topology, self.find_cpu(rank)))

    def _list_cpus(self, node: int) -> tuple[int, ...]:
        return tuple(cpu for cpu in self.cpus if find_node(self.topology, cpu) == node)

    def find_memory(self, rank: int) -> str:
        """Return the id of the memory nearest a rank's CPU: `memory0` if NUMA cannot be read, `memory0@1` on host 1."""
        host = f"@{rank * len(self.hosts) // self.ranks}" if self.hosts else ""
        return f"memory{find_node(self.topology, self.find_cpu(rank))}{host}"

    def rank_path(self) -> str:
        """Return the path from rank 0's memory to rank 1's."""
        return f"{self.find_memory(0)}>{self.find_memory(1)}"


def _spread_places(places: int, takers: int) -> list[int]:
    """Choose a place for each taker, distinct while they last, and far apart.

    CPUs n and n + 1, or n and n + half of them, are usually two threads of one core: 2 of 32 get 0 and 17.
    """
    found: list[int] = []
    for taker in range(takers):
        taken = found[taker - taker % places :]
        place = (taker * places // takers + taker) % places
        while place in taken:
            place = (place + 1) % places
        found.append(place)
    return found


def find_node(topology: Topology, cpu: int) -> int:
    """Return the NUMA node of a CPU, or 0 if the topology does not have it."""
    for device in topology.of_kind("cpu"):
        if device.numa is not None and cpu in parse_cpu_list(str(device.facts.get("cpu_list", ""))):
            return device.numa
    return 0


def cpus_by_node(machine: Machine) -> dict[int, list[int]]:
    """Group the usable CPUs by NUMA node."""
    nodes: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        nodes.setdefault(find_node(machine.topology, cpu), []).append(cpu)
    return nodes
