"""What is known of a launch before it starts: the machine, what is varied, and which CPU and GPU each rank has."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from railwright.benchmarks.options import O
from railwright.results.records import Fabric
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Device, Scalar, Topology
from railwright.topology.gpus import usable_gpus


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is varied, by a launch or by one of its points: the base of a benchmark's own cases.

    A field that has its default is not named in the records, so that runs with and without an option compare.
    """

    def parameters(self) -> dict[str, Scalar]:
        """The case as it stands in a record."""
        values = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in values if value != field.default}


C = TypeVar("C", bound=Case, covariant=True)


class Launch(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """One launch of a benchmark in fresh processes."""

    case: C
    """What this launch varies."""
    environment: dict[str, str] = {}
    """The variables that bring that about."""
    ranks: int = 1
    """How many processes it has. More than one are started by MPI's launcher."""
    gpus: tuple[str, ...] = ()
    """The ids of the GPUs that the ranks work with, in the order of the ranks, and so are bound near."""
    gpu_clock_hz: float = 0.0
    """What the clocks of these GPUs are locked to meanwhile; 0: nobody touches them."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where a launch runs."""

    topology: Topology
    cpus: tuple[int, ...]
    """The CPUs that may be used; rank i is bound to the i-th of them, and the list starts again at its end."""
    hosts: tuple[str, ...] = ()
    """The hosts that the ranks are spread over, as many on each, the first host's first; none: this one alone."""
    ranks_per_host: int = 1
    hosts_share_cpus: bool = False
    """Whether these hosts are namespaces of one machine."""
    host_cpus: float | None = None
    """How many of the shared CPUs each of the hosts may take; None: nothing holds them back."""
    reached_by: str = ""
    """How the other hosts are reached, in words."""
    first_hosts: int = 0
    """How many of the hosts are the first of two groups that are merged; 0: none are."""
    grows_to: int = 0
    """How many hosts groups may grow to, each with as much work a host; 0: they do not grow."""
    fabric: Fabric | None = None
    """The links between these hosts, where their rates are known."""

    @property
    def host_ranks(self) -> int:
        """The ranks that all hosts have room for."""
        return len(self.hosts) * self.ranks_per_host


class Job(msgspec.Struct, Generic[O, C], frozen=True, kw_only=True):
    """Everything a rank needs to know; sent to it as JSON."""

    benchmark: str
    options: O
    launch: Launch[C]
    machine: Machine
    round: int = 0
    """All launches are done once, then again: which time this is."""
    first_case: int = 0
    """The cases before it are left out: a launch before this one had them, and crashed in the last."""

    @property
    def case(self) -> C:
        """What the launch varies."""
        return self.launch.case

    @property
    def ranks(self) -> int:
        """How many processes the launch has."""
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
        """The hosts that the ranks are spread over; none: this one alone."""
        return self.machine.hosts

    @property
    def ranks_on_cpus(self) -> int:
        """How many ranks share `cpus`: those of one host, unless its hosts share them too."""
        machine = self.machine
        return self.ranks if not self.hosts or machine.hosts_share_cpus else self.ranks // len(self.hosts)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The NVIDIA GPUs that CUDA can use as a whole: those of the launch, else all by their PCI addresses."""
        usable = usable_gpus(self.topology)
        if not self.launch.gpus:
            return usable
        known = {gpu.id: gpu for gpu in usable}
        return tuple(known[name] for name in self.launch.gpus if name in known)

    def gpu_of(self, rank: int) -> Device:
        """The GPU of a rank. There must be one: `plan` waives where there is none."""
        return self.gpus[rank % len(self.gpus)]

    def cpu_of(self, rank: int) -> int:
        """The CPU that a rank is bound to: one of its own as far as there are that many.

        A rank of a launch with GPUs is bound on the NUMA node of its GPU, where the machine says which that is and the
        node may be used, and far from the CPUs of the other ranks there.
        """
        if not self.launch.gpus or not self.gpus:
            place = rank % self.ranks_on_cpus if self.hosts else rank
            return self.cpus[place % len(self.cpus)]
        gpu = self.gpu_of(rank)
        near = self.cpus_near(gpu)
        ranks = range(max(self.ranks, rank + 1))
        beside = [other for other in ranks if not near or self.gpu_of(other).numa == gpu.numa]
        cpus = near or self.cpus
        return cpus[_spread(len(cpus), len(beside))[beside.index(rank)]]

    def cpus_near(self, gpu: Device) -> tuple[int, ...]:
        """The CPUs that may be used on a GPU's NUMA node; none where the machine does not say which node that is."""
        if gpu.numa is None:
            return ()
        return self._cpus_on(gpu.numa)

    def cpus_beside(self, rank: int) -> tuple[int, ...]:
        """The CPUs on the NUMA node of a rank's own, where the threads of a library may run beside it.

        A rank is bound to one CPU and what it starts inherits that: a library's worker then waits for the time slice of
        the thread that polls for it.
        """
        return self._cpus_on(node_of(self.topology, self.cpu_of(rank)))

    def _cpus_on(self, node: int) -> tuple[int, ...]:
        return tuple(cpu for cpu in self.cpus if node_of(self.topology, cpu) == node)

    def memory_of(self, rank: int) -> str:
        """The id of the memory nearest to a rank's CPU; `memory0` where NUMA cannot be read, `memory0@1` on host 1."""
        host = f"@{rank * len(self.hosts) // self.ranks}" if self.hosts else ""
        return f"memory{node_of(self.topology, self.cpu_of(rank))}{host}"

    def between_ranks(self) -> str:
        """The path from the memory of rank 0 to that of rank 1."""
        return f"{self.memory_of(0)}>{self.memory_of(1)}"


def _spread(places: int, takers: int) -> list[int]:
    """A place for each taker, each its own as far as there are that many, and far apart.

    CPUs n and n + 1, or n and n + half of them, are mostly two threads of one core: 2 of 32 get 0 and 17.
    """
    found: list[int] = []
    for taker in range(takers):
        taken = found[taker - taker % places :]
        place = (taker * places // takers + taker) % places
        while place in taken:
            place = (place + 1) % places
        found.append(place)
    return found


def node_of(topology: Topology, cpu: int) -> int:
    """The NUMA node of a CPU, 0 where the topology does not say."""
    for device in topology.of_kind("cpu"):
        if device.numa is not None and cpu in parse_cpu_list(str(device.facts.get("cpu_list", ""))):
            return device.numa
    return 0


def cpus_by_node(machine: Machine) -> dict[int, list[int]]:
    """The CPUs that may be used, by NUMA node."""
    nodes: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        nodes.setdefault(node_of(machine.topology, cpu), []).append(cpu)
    return nodes
