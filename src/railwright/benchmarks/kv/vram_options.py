"""What `kv_vram` can be asked for: between which memories it moves data, who posts it, and over which GPUs.

Each pair of GPUs has a launch of its own, because UCX's log then speaks of no other pair, both processes are bound near
their GPUs, and a pair that hangs costs nothing of the others.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import Options, choice, one_of, option
from railwright.native import nixl
from railwright.results.readers.ucx.protocols import Memories
from railwright.topology.gpus import usable_gpus
from railwright.units import parse_sizes

WAYS_OF_UCX: dict[str, dict[str, str]] = {
    "default": {},
    "pipeline": {"UCX_RMA_PPLN_ENABLE": "y"},
    "no peer errors": {},
}
"""name -> environment of NIXL's UCX. The pipeline is there from UCX 1.22 on, and off unless it is asked for."""

GPU_TO_GPU = "gpu-gpu"
LINKS = (GPU_TO_GPU, "gpu-host", "host-gpu")
"""Initiator's memory and the other one: the side that is named first posts."""


class VramCase(Case, frozen=True, kw_only=True):
    """A point as it stands in a record. The kind of host memory only where there is one."""

    size_bytes: int
    operation: nixl.Operation
    initiator: str
    processes: int
    host: str = ""


class Move(NamedTuple):
    """Two memories, and who moves data between them."""

    link: str
    processes: int
    host: str
    """`pinned` or `pageable`, empty where both are GPUs."""

    @property
    def ours(self) -> str:
        """The initiator's memory, `gpu` or the kind of host memory."""
        return self.host if self.link == "host-gpu" else "gpu"

    @property
    def theirs(self) -> str:
        """The other one: on rank 1, or in the same process on rank 0."""
        return self.host if self.link == "gpu-host" else "gpu" if self.link == "host-gpu" else "other gpu"

    @property
    def memories(self) -> Memories:
        """As UCX calls the local and the remote one."""
        return "host" if self.ours == self.host else "cuda", "host" if self.theirs == self.host else "cuda"

    def place(self, job: AnyJob, buffer: str, rank: int) -> str:
        """The id of the device that holds a buffer of a rank."""
        if buffer == self.host:
            return job.memory_of(rank)
        return job.gpu_of(1 if buffer == "other gpu" else 0).id

    def path(self, job: AnyJob, operation: nixl.Operation) -> str:
        """From where the data comes to where it goes."""
        other = 1 if self.processes == 2 else 0
        ours, theirs = self.place(job, self.ours, 0), self.place(job, self.theirs, other)
        return f"{ours}>{theirs}" if operation == "WRITE" else f"{theirs}>{ours}"

    def case(self, job: AnyJob, size_bytes: int, operation: nixl.Operation) -> VramCase:
        """What was varied at one point."""
        return VramCase(
            size_bytes=size_bytes,
            operation=operation,
            initiator=self.place(job, self.ours, 0),
            processes=self.processes,
            host=self.host,
        )


_processes = choice("2", "1")


class VramOptions(Options, frozen=True):
    """What transfers of GPU memory are asked for."""

    sizes: tuple[int, ...] = option("4K,1M,256M", "block sizes, like 4K,1M,256M", parse_sizes)
    operations: tuple[nixl.Operation, ...] = option("WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ"))
    # The words of `gpu_copy`, with less of each pair: here every point takes seconds.
    pairs: str = option(
        "neighbours",
        "every way between the first two GPUs and no other, the plain ones from each GPU to the next as well, or all",
        one_of("first", "neighbours", "all"),
    )
    links: tuple[str, ...] = option(
        ",".join(LINKS), "initiator-other, of gpu-gpu, gpu-host and host-gpu", choice(*LINKS)
    )
    processes: tuple[int, ...] = option(
        "2,1",
        "2, 1 (one agent between memories of its own), or both",
        lambda text: tuple(map(int, _processes(text))),
    )
    host: tuple[str, ...] = option("pinned", "host memory: pinned, pageable, or both", choice("pinned", "pageable"))
    ucx: tuple[str, ...] = option(
        "default", "default, pipeline (UCX_RMA_PPLN_ENABLE=y), no peer errors, or several", choice(*WAYS_OF_UCX)
    )
    peer_access: tuple[str, ...] = option(
        "off", "between two GPUs of one process: off, on (as PyTorch does), or both", choice("off", "on")
    )

    def moves(self, gpus: int) -> list[Move]:
        """Between which memories, on so many GPUs; GPU to GPU inside one process only where there are two."""
        return [
            Move(link, count, host)
            for count in self.processes
            for link in self.links
            for host in (("",) if link == GPU_TO_GPU else self.host)
            if link != GPU_TO_GPU or count == 2 or gpus > 1
        ]


class Way(Case, frozen=True, kw_only=True):
    """What a launch varies; the GPUs are named but for the first two."""

    gpus: str = ""
    ucx: str = "default"
    peer_access: str = "off"


VramJob = Job[VramOptions, Way]


def launches(options: VramOptions, machine: Machine) -> tuple[Launch[Way], ...]:
    """Every way over every pair, the first two GPUs first; one launch of each way where there are fewer GPUs."""
    ways = [Way(ucx=way, peer_access=access) for way in options.ucx for access in options.peer_access]
    names = [gpu.id for gpu in usable_gpus(machine.topology)]
    if len(names) < 2:
        return tuple(Launch(case=way, ranks=2, gpus=tuple(names)) for way in ways)
    pairs = _pairs(options, names)
    return tuple(
        Launch(case=replace(way, gpus="" if pair == pairs[0] else ",".join(pair)), ranks=2, gpus=pair)
        for pair in pairs
        for way in ways
    )


def _pairs(options: VramOptions, names: list[str]) -> list[tuple[str, str]]:
    following = [(name, _next(names, name)) for name in names]
    if options.pairs == "first":
        return following[:1]
    if options.pairs == "neighbours" or GPU_TO_GPU not in options.links:
        return following
    return list(itertools.permutations(names, 2))


def _next(names: list[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]


def asked(job: VramJob) -> VramOptions:
    """The job's options, less what is not measured between its GPUs.

    The first two GPUs, which the launch's case does not name, have all. So have all pairs with `pairs=all`, but that
    each GPU and its host memory are measured once, with the next GPU's process. Otherwise it is what is written from
    process to process, at the least and the largest size.
    """
    options = job.options
    if not job.case.gpus:
        return options
    if options.pairs == "all":
        one, other = job.launch.gpus
        is_next = _next([gpu.id for gpu in usable_gpus(job.topology)], one) == other
        return options if is_next else replace(options, links=(GPU_TO_GPU,))
    return replace(
        options,
        sizes=tuple(dict.fromkeys((min(options.sizes), max(options.sizes)))),
        processes=(2,) if 2 in options.processes else options.processes,
        operations=("WRITE",) if "WRITE" in options.operations else options.operations,
    )
