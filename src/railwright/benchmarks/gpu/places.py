"""The ends of GPU copies: memory of each GPU, and host memory on NUMA nodes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.job import cpus_by_node, find_node
from railwright.benchmarks.record import waived
from railwright.errors import CannotJudge
from railwright.native import cuda, memory
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer
from railwright.native.cuda_copies import Place
from railwright.native.memory import Buffer
from railwright.results.records import Evidence, Result, Verification
from railwright.units import MIB, format_size

NUMA_CHOICES = ("near", "each")
_KEPT_FREE_BYTES = 128 * MIB
"""Memory left for the kernels that the driver loads and for its streams."""
_POISON = 0xA5
"""A target's content before a copy. A byte that was not copied matches by chance once in 256 places."""


class Gpu(NamedTuple):
    """An open GPU of the topology."""

    id: str
    number: int
    device: Device


class HostNode(NamedTuple):
    """A NUMA node for host memory; `bound` is its number if the memory is to be bound explicitly."""

    id: str
    cpu: int
    bound: int | None


Measure = Callable[[list[Gpu], dict[str, "BufferPair"], int], Iterator[Result]]
"""Yields the results of GPUs with their buffers by id, up to a largest size in bytes."""


def measure_gpus(rank: AnyRank, blank: Result, sizes: Sequence[int], measure: Measure) -> Iterator[Result]:
    """Yield the results of `measure` on the job's GPUs, or `blank` as waived without a GPU or for sizes too large."""
    rank.step("CUDA")
    if reason := cuda.explain_missing_gpu():
        yield waived(blank, reason)
        return
    with ExitStack() as stack:
        job = rank.job
        gpus = [Gpu(gpu.id, number, stack.enter_context(Device(gpu.address))) for number, gpu in enumerate(job.gpus)]
        unfit = find_unfit_sizes(gpus, sizes)
        for size, reason in unfit.items():
            yield waived(blank, reason, {"size_bytes": size})
        if most := max((size for size in sizes if size not in unfit), default=0):
            rank.step(f"{blank.benchmark} memory of GPUs")
            yield from measure(gpus, {gpu.id: allocate_on_gpu(stack, gpu, most) for gpu in gpus}, most)


def peer_evidence(*, direct: bool) -> tuple[Evidence, ...]:
    """Return evidence of direct access between two GPUs' memories."""
    value = "direct" if direct else "none: through the host"
    return (Evidence(claim="peer_access", value=value, seen="cuDeviceCanAccessPeer"),)


def enable_peers(gpus: list[Gpu]) -> set[tuple[str, str]]:
    """Enable peer access wherever GPUs allow it. Returns the enabled (accessor, owner) pairs."""
    pairs = {(one.id, other.id): (one, other) for one in gpus for other in gpus if one is not other}
    reached = {ids: pair for ids, pair in pairs.items() if pair[0].device.can_access(pair[1].device)}
    for one, other in reached.values():
        one.device.enable_peer(other.device)
    return set(reached)


def find_near_memory(job: AnyJob, index: int) -> str:
    """Return the id of the memory near the index-th GPU."""
    return f"memory{find_node(job.topology, job.find_cpu(index))}"


def host_nodes(job: AnyJob, index: int, wanted: str) -> list[HostNode]:
    """List the nodes for host memory of the index-th GPU: the one `near` it, or `each` with a usable CPU."""
    if wanted == "near":
        return [HostNode(find_near_memory(job, index), job.find_cpu(index), None)]
    nodes = sorted(cpus_by_node(job.machine).items())
    return [HostNode(f"memory{node}", cpus[0], node) for node, cpus in nodes]


def find_unfit_sizes(gpus: list[Gpu], sizes: Iterable[int]) -> dict[int, str]:
    """Return the sizes for which two buffers do not fit in every GPU's free memory, with reasons.

    Raises NativeError.
    """
    free, where = min((gpu.device.free_bytes(), gpu.id) for gpu in gpus)
    return {
        size: f"2 x {format_size(size)} do not fit in the memory of {where}: {format_size(free)} is free"
        for size in sizes
        if 2 * size + _KEPT_FREE_BYTES > free
    }


class BufferPair:
    """Two buffers in one place: `out` holds the pattern of `seed` and stays unchanged, `into` receives."""

    def __init__(self, name: str, out: Place, into: Place, seed: int) -> None:
        self.name = name
        self.out = out
        self.into = into
        self.seed = seed
        out.fill(seed)


def allocate_on_gpu(stack: ExitStack, gpu: Gpu, size_bytes: int) -> BufferPair:
    """Allocate both buffers in a GPU's memory."""
    out, into = (stack.enter_context(DeviceBuffer(gpu.device, size_bytes)) for _ in range(2))
    return BufferPair(gpu.id, out, into, seed=gpu.number + 1)


def allocate_in_host(stack: ExitStack, node: HostNode, gpu: Gpu, size_bytes: int, *, pinned: bool) -> BufferPair:
    """Allocate both buffers in host memory. Leaves the calling thread bound to a CPU of their node."""
    memory.pin(node.cpu)

    def buffer() -> Buffer:
        if pinned:
            return PinnedBuffer(gpu.device, size_bytes, node=node.bound)
        return Buffer(size_bytes, node=node.bound)

    out, into = (stack.enter_context(buffer()) for _ in range(2))
    return BufferPair(node.id, out, into, seed=1000 + gpu.number)


def poison(place: Place, size_bytes: int) -> None:
    """Overwrite the result of a copy, so that old data cannot pass for new."""
    if isinstance(place, DeviceBuffer):
        place.set_bytes(_POISON, size_bytes)
    else:
        ctypes.memset(place.address, _POISON, size_bytes)


def verify(target: BufferPair, source: BufferPair, size_bytes: int) -> Verification:
    """Check the data of a copy from `source` to `target`."""
    return target.into.verify(source.seed, size_bytes)


def placement_evidence(host: BufferPair) -> tuple[Evidence, ...]:
    """Return evidence of the host memory's NUMA nodes, empty if the kernel does not report them."""
    place = host.out
    if isinstance(place, DeviceBuffer):
        return ()
    try:
        there = place.pages_on(int(host.name.removeprefix("memory")))
    except CannotJudge:
        return ()
    said = f"{there} of {place.pages} pages on {host.name}"
    return (Evidence(claim="host_memory", value=said, seen="the kernel's move_pages"),)
