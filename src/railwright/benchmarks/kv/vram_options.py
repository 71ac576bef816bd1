"""Options of `kv_vram`: the memories, the posting side and the GPUs.

Each pair of GPUs has its own launch: UCX's log then covers no other pair, both processes are bound near their GPUs, and
a pair that hangs does not affect the others.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.kv.between_hosts import MetadataOptions, NicCase, list_cases
from railwright.benchmarks.options import choice, option, single_choice
from railwright.errors import UsageError
from railwright.native import nixl
from railwright.results.readers.ucx.protocols import Memories
from railwright.topology.gpus import usable_gpus
from railwright.units import parse_sizes

WAYS_OF_UCX: dict[str, dict[str, str]] = {
    "default": {},
    "pipeline": {"UCX_RMA_PPLN_ENABLE": "y"},
    "no peer errors": {},
}
"""The environment of NIXL's UCX by way. UCX 1.22 and later have the pipeline, off by default."""

GPU_TO_GPU = "gpu-gpu"
LINKS = (GPU_TO_GPU, "gpu-host", "host-gpu")
"""The initiator's memory and the other one; the side named first posts."""


class VramCase(Case, frozen=True, kw_only=True):
    """The parameters of a point in a record; has the kind of host memory only if host memory takes part."""

    size_bytes: int
    operation: nixl.Operation
    initiator: str
    processes: int
    host: str = ""


class Move(NamedTuple):
    """Two memories, and the side that moves data between them."""

    link: str
    processes: int
    host: str
    """`pinned` or `pageable`; empty if both are GPUs."""

    @property
    def ours(self) -> str:
        """The initiator's memory: `gpu` or the kind of host memory."""
        return self.host if self.link == "host-gpu" else "gpu"

    @property
    def theirs(self) -> str:
        """The other memory: on rank 1, or in the same process on rank 0."""
        return self.host if self.link == "gpu-host" else "gpu" if self.link == "host-gpu" else "other gpu"

    @property
    def memories(self) -> Memories:
        """The local and the remote memory in UCX's terms."""
        return "host" if self.ours == self.host else "cuda", "host" if self.theirs == self.host else "cuda"

    def place(self, job: AnyJob, buffer: str, rank: int) -> str:
        """Return the id of the device with a rank's buffer. Between hosts each rank has its own GPU."""
        if buffer == self.host:
            return job.find_memory(rank)
        if job.hosts:
            return f"{job.find_gpu(rank).id}@{rank}"
        return job.find_gpu(1 if buffer == "other gpu" else 0).id

    def path(self, job: AnyJob, operation: nixl.Operation) -> str:
        """Return the data's path."""
        other = 1 if self.processes == 2 else 0
        ours, theirs = self.place(job, self.ours, 0), self.place(job, self.theirs, other)
        return f"{ours}>{theirs}" if operation == "WRITE" else f"{theirs}>{ours}"

    def case(self, job: AnyJob, size_bytes: int, operation: nixl.Operation) -> VramCase:
        """Return the parameters of a point."""
        return VramCase(
            size_bytes=size_bytes,
            operation=operation,
            initiator=self.place(job, self.ours, 0),
            processes=self.processes,
            host=self.host,
        )


_processes = choice("2", "1")


class VramOptions(MetadataOptions, frozen=True):
    """Options of transfers of GPU memory."""

    sizes: tuple[int, ...] = option("4K,1M,256M", "block sizes, like 4K,1M,256M", parse_sizes)
    operations: tuple[nixl.Operation, ...] = option("WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ"))
    # The choices of `gpu_copy`, with fewer points for each pair, because every point takes seconds here.
    pairs: str = option(
        "neighbours",
        "first (the first two GPUs), neighbours (also writes from each GPU to the next), or all; between hosts each GPU"
        " is paired with the one in its place",
        single_choice("first", "neighbours", "all"),
    )
    links: tuple[str, ...] = option(
        ",".join(LINKS), "the initiator's memory and the other: gpu-gpu, gpu-host, host-gpu, or several", choice(*LINKS)
    )
    processes: tuple[int, ...] = option(
        "2,1",
        "2, 1 (one agent between memories of its own), or both; 2 between hosts",
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
        """List the moves between memories on `gpus` GPUs; GPU to GPU inside one process needs two."""
        return [
            Move(link, count, host)
            for count in self.processes
            for link in self.links
            for host in (("",) if link == GPU_TO_GPU else self.host)
            if link != GPU_TO_GPU or count == 2 or gpus > 1
        ]


class Way(NicCase, frozen=True, kw_only=True):
    """The parameters that a launch varies; the first two GPUs are not named."""

    gpus: str = ""
    ucx: str = "default"
    peer_access: str = "off"


VramJob = Job[VramOptions, Way]


def launches(options: VramOptions, machine: Machine) -> tuple[Launch[Way], ...]:
    """Return a launch per way and pair, the first pair first; one per way if there are fewer GPUs.

    Raises UsageError for options that need one host.
    """
    if machine.hosts and 2 not in options.processes:
        raise UsageError("processes must include 2 between hosts, got 1", hint="leave out -o processes=")
    ways = [
        Way(ucx=way, peer_access=access, nic=case.nic, between=case.between)
        for way in options.ucx
        for access in options.peer_access
        for case in list_cases(options, machine)
    ]
    names = [gpu.id for gpu in usable_gpus(machine.topology)]
    pairs = _list_rails(options, names) if machine.hosts else _list_pairs(options, names)
    if machine.hosts_share_gpus:  # each of the two namespaces has one GPU of the machine
        pairs = [(names[0], names[-1])] if names else []
    if not pairs:
        return tuple(Launch(case=way, ranks=2, gpus=tuple(names)) for way in ways)
    return tuple(
        Launch(case=replace(way, gpus="" if pair == pairs[0] else ",".join(pair)), ranks=2, gpus=pair)
        for pair in pairs
        for way in ways
    )


def _list_rails(options: VramOptions, names: list[str]) -> list[tuple[str, str]]:
    """Return the GPUs of two hosts to pair: those in the same place, or all with all."""
    if options.pairs == "all":
        return list(itertools.product(names, names))
    return [(name, name) for name in names[: 1 if options.pairs == "first" else None]]


def _list_pairs(options: VramOptions, names: list[str]) -> list[tuple[str, str]]:
    if len(names) < 2:
        return []
    following = [(name, _find_next(names, name)) for name in names]
    if options.pairs == "first":
        return following[:1]
    if options.pairs == "neighbours" or GPU_TO_GPU not in options.links:
        return following
    return list(itertools.permutations(names, 2))


def _find_next(names: list[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]


def reduce_options(job: VramJob) -> VramOptions:
    """Return the options for the job's GPUs.

    The first two GPUs, which the launch's case does not name, keep all options. With `pairs=all` all pairs do, except
    that each GPU and its host memory are measured once, with the next GPU's process. Between hosts that is with the
    GPU in the same place. Otherwise only writes between
    processes remain, at the smallest and the largest size.
    """
    options = job.options
    if job.hosts:
        options = replace(options, processes=(2,))
    if not job.case.gpus:
        return options
    if options.pairs == "all":
        one, other = job.launch.gpus
        if job.hosts:
            return options if one == other else replace(options, links=(GPU_TO_GPU,))
        is_next = _find_next([gpu.id for gpu in usable_gpus(job.topology)], one) == other
        return options if is_next else replace(options, links=(GPU_TO_GPU,))
    return replace(
        options,
        sizes=tuple(dict.fromkeys((min(options.sizes), max(options.sizes)))),
        processes=(2,) if 2 in options.processes else options.processes,
        operations=("WRITE",) if "WRITE" in options.operations else options.operations,
    )
