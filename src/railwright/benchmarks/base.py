"""What a benchmark is: how it is planned in the parent, and run by the ranks of a launch.

A benchmark emits results and path ids and knows nothing of limits.
The parent never loads MPI, NIXL or CUDA: `plan` and `variants` run there, `run` in the ranks alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from railwright.errors import UsageError, unknown_name
from railwright.limits.model import Quantity
from railwright.results.model import Result
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.gpus import usable_gpus
from railwright.topology.model import Device, Scalar, Topology

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a benchmark: what is varied by it, and the environment that brings that about."""

    parameters: dict[str, Scalar] = {}
    environment: dict[str, str] = {}
    gpus: tuple[str, ...] = ()
    """The ids of the GPUs that it uses, in the order of the ranks; none: all that can be used."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a rank needs to know; sent to it as JSON."""

    benchmark: str
    options: dict[str, str]
    variant: Variant
    launch: int
    first_case: int = 0
    """The cases before it are left out: a launch before this one had them, and crashed in the last."""
    cpus: tuple[int, ...]
    """The CPUs that may be used; rank i is bound to the i-th, round and round."""
    topology: Topology
    ranks: int = 1
    """How many processes the launch has."""
    uses_gpus: bool = False
    """Whether rank i works with the i-th GPU, round and round, and so is bound near it."""
    hosts: tuple[str, ...] = ()
    """The hosts that the ranks are spread over, as many on each, the first host's first; none: this one alone."""
    hosts_share_cpus: bool = False
    """Whether these hosts are namespaces of one machine."""
    reached_by: str = ""
    """How the other hosts are reached, in words."""

    @property
    def ranks_on_cpus(self) -> int:
        """How many ranks share `cpus`: those of one host, unless its hosts share them too."""
        return self.ranks if not self.hosts or self.hosts_share_cpus else self.ranks // len(self.hosts)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The NVIDIA GPUs that CUDA can use as a whole: those of the variant, else all by their PCI addresses."""
        usable = usable_gpus(self.topology)
        if not self.variant.gpus:
            return usable
        known = {gpu.id: gpu for gpu in usable}
        return tuple(known[name] for name in self.variant.gpus if name in known)

    def gpu_of(self, rank: int) -> Device:
        """The GPU of a rank. There must be one: `plan` waives where there is none."""
        return self.gpus[rank % len(self.gpus)]

    def cpu_of(self, rank: int) -> int:
        """The CPU that a rank is bound to: one of its own as far as there are that many.

        With `uses_gpus` it is on the NUMA node of the rank's GPU, where the machine says it and that node may be used,
        and far from the CPUs of the other ranks there.
        """
        if not self.uses_gpus or not self.gpus:
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


@dataclass(frozen=True)
class Plan:
    """What one launch will do to the machine, shown before it starts; `waived` says why it cannot run here."""

    path: str
    seconds: float
    memory_bytes: int
    moved_bytes: int = 0
    files: tuple[str, ...] = ()
    """Each file that will be written, with its size, in words."""
    waived: str = ""
    longest_step_s: float | None = None
    """How long at most a rank says nothing, on a machine that is slow but not broken; None: as long as all takes."""

    @property
    def silent_s(self) -> float:
        """`longest_step_s`, or the whole launch."""
        return self.seconds if self.longest_step_s is None else self.longest_step_s


class Rank(Protocol):
    """What a rank's launcher offers to the benchmark that runs in it."""

    index: int
    size: int
    job: Job
    scratch: Path
    """A folder that the launcher removes after the launch."""

    @property
    def comm(self) -> Intracomm:
        """The MPI communicator of all ranks; initialises MPI. Raises CannotJudge without MPI."""

    def step(self, text: str) -> None:
        """Tell the parent what comes next, so that a hang or a crash can be named."""


@dataclass(frozen=True)
class Option:
    """One setting of a benchmark, as text; `check` raises UsageError for what cannot be used."""

    name: str
    default: str
    help: str
    check: Callable[[str], object]


@dataclass(frozen=True)
class Benchmark:
    """One data path's benchmark. `run` yields results from rank 0 and nothing from the others."""

    name: str
    summary: str
    method: str
    quantities: tuple[Quantity, ...]
    ranks: int
    """Of one launch; the default where `ranks_of` says how many."""
    plan: Callable[[Job], Plan]
    run: Callable[[Rank], Iterator[Result]]
    options: tuple[Option, ...] = ()
    variants: Callable[[Mapping[str, str]], tuple[Variant, ...]] = field(default=lambda _options: (Variant(),))
    variants_for: Callable[[Mapping[str, str], Topology], tuple[Variant, ...]] | None = None
    """The same where they depend on the machine's GPUs."""
    needs_mpi: bool = False
    ranks_of: Callable[[Mapping[str, str], tuple[int, ...]], int] | None = None
    """How many ranks settled options ask for on those CPUs, where that is not always the same."""
    ranks_for: Callable[[Job], int] | None = None
    """The same where it depends on the GPUs or on what is varied: asked of the job with its default ranks."""
    uses_gpus: bool = False
    """Whether ranks work with GPUs: see `Job.uses_gpus`."""
    after_crash: Callable[[Job, Sequence[Result]], Job | None] = field(default=lambda _job, _results: None)
    """What is left to do after a launch that gave these results and ended in a crash; None: nothing."""
    between_hosts: Callable[[Mapping[str, str]], tuple[Variant, ...]] | None = None
    """Its variants where the ranks are on several hosts; None: it measures inside one."""

    def count_ranks(self, options: Mapping[str, str], cpus: tuple[int, ...]) -> int:
        """The ranks of one launch with settled options on the CPUs that may be used."""
        return self.ranks if self.ranks_of is None else self.ranks_of(options, cpus)

    def launches(self, options: Mapping[str, str], topology: Topology) -> tuple[Variant, ...]:
        """The variants of settled options on a machine."""
        return self.variants(options) if self.variants_for is None else self.variants_for(options, topology)

    def settle(self, given: Mapping[str, str]) -> dict[str, str]:
        """The options with defaults filled in and every value checked. Raises UsageError."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise unknown_name(f"option of {self.name}", name, known)
        settled = {name: given.get(name, option.default) for name, option in known.items()}
        for name, text in settled.items():
            try:
                known[name].check(text)
            except UsageError as error:
                hint = error.hint or known[name].help
                raise UsageError(f"{self.name} {name}: {error.message}", hint=hint) from error
        return settled


def whole_number(most: int) -> Callable[[str], int]:
    """A check for a whole number from 1 to `most`."""

    def check(text: str) -> int:
        whole = text.isascii() and text.isdecimal()  # the digits of other scripts are decimal, too
        if not whole or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise UsageError(f"not a whole number from 1 to {most}: {text[:40]!r}")
        return int(text)

    return check


def choice(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A check for a comma-separated choice among `allowed`, which returns the parts chosen, each once."""

    def check(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for part in parts:
            if part not in allowed:
                raise unknown_name("choice", part, allowed)
        return parts

    return check


def one_of(*allowed: str) -> Callable[[str], str]:
    """A check for exactly one of `allowed`."""

    def check(text: str) -> str:
        if text not in allowed:
            raise unknown_name("choice", text, allowed)
        return text

    return check
