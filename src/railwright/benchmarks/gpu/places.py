"""Where copies of GPUs begin and end: memory of each GPU, and host memory on the NUMA nodes that it is copied from."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.job import cpus_by_node, node_of
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
"""For the kernels, which the driver loads, and what it keeps for streams."""
_POISON = 0xA5
"""What a target holds before a copy. A byte that was not copied is right by chance once in 256 places."""


class Gpu(NamedTuple):
    """A GPU of the topology, opened."""

    id: str
    number: int
    device: Device


class HostNode(NamedTuple):
    """A NUMA node as a place for host memory; `bound` is its number where memory shall be bound to it by name."""

    id: str
    cpu: int
    bound: int | None


Measure = Callable[[list[Gpu], dict[str, "Ends"], int], Iterator[Result]]
"""Yields the results of GPUs with their buffers by id, for sizes up to so many bytes."""


def over_gpus(rank: AnyRank, blank: Result, sizes: Sequence[int], measure: Measure) -> Iterator[Result]:
    """What `measure` yields for the GPUs of the job; `blank` waived with the reason where it, or a size, cannot be."""
    rank.step("CUDA")
    if reason := cuda.problem():
        yield waived(blank, reason)
        return
    with ExitStack() as stack:
        job = rank.job
        gpus = [Gpu(gpu.id, number, stack.enter_context(Device(gpu.address))) for number, gpu in enumerate(job.gpus)]
        unfit = too_large(gpus, sizes)
        for size, reason in unfit.items():
            yield waived(blank, reason, {"size_bytes": size})
        if most := max((size for size in sizes if size not in unfit), default=0):
            rank.step(f"{blank.benchmark} memory of GPUs")
            yield from measure(gpus, {gpu.id: ends_on(stack, gpu, most) for gpu in gpus}, most)


def peer_evidence(*, direct: bool) -> tuple[Evidence, ...]:
    """Whether one GPU reaches another's memory."""
    value = "direct" if direct else "none: through the host"
    return (Evidence(claim="peer_access", value=value, seen="cuDeviceCanAccessPeer"),)


def enable_peers(gpus: list[Gpu]) -> set[tuple[str, str]]:
    """Lets every GPU reach every other one's memory where it can; the pairs (who, whose) that it was done for."""
    pairs = {(one.id, other.id): (one, other) for one in gpus for other in gpus if one is not other}
    reached = {ids: pair for ids, pair in pairs.items() if pair[0].device.can_access(pair[1].device)}
    for one, other in reached.values():
        one.device.enable_peer(other.device)
    return set(reached)


def near_memory(job: AnyJob, index: int) -> str:
    """The id of the memory that is near the index-th GPU."""
    return f"memory{node_of(job.topology, job.cpu_of(index))}"


def host_nodes(job: AnyJob, index: int, wanted: str) -> list[HostNode]:
    """Where host memory for the index-th GPU shall lie: `near` it, or on `each` node that has a CPU we may use."""
    if wanted == "near":
        return [HostNode(near_memory(job, index), job.cpu_of(index), None)]
    nodes = sorted(cpus_by_node(job.machine).items())
    return [HostNode(f"memory{node}", cpus[0], node) for node, cpus in nodes]


def too_large(gpus: list[Gpu], sizes: Iterable[int]) -> dict[int, str]:
    """The sizes of which two buffers do not fit in every GPU's free memory, and why. Raises NativeError."""
    free, where = min((gpu.device.free_bytes(), gpu.id) for gpu in gpus)
    return {
        size: f"2 x {format_size(size)} do not fit in the memory of {where}: {format_size(free)} are free"
        for size in sizes
        if 2 * size + _KEPT_FREE_BYTES > free
    }


class Ends:
    """Two buffers in one place: `out` holds the pattern of `seed` and is never written again, `into` receives."""

    def __init__(self, name: str, out: Place, into: Place, seed: int) -> None:
        self.name = name
        self.out = out
        self.into = into
        self.seed = seed
        out.fill(seed)


def ends_on(stack: ExitStack, gpu: Gpu, size_bytes: int) -> Ends:
    """Both buffers in a GPU's memory."""
    out, into = (stack.enter_context(DeviceBuffer(gpu.device, size_bytes)) for _ in range(2))
    return Ends(gpu.id, out, into, seed=gpu.number + 1)


def ends_in_host(stack: ExitStack, node: HostNode, gpu: Gpu, size_bytes: int, *, pinned: bool) -> Ends:
    """Both buffers in host memory; the calling thread stays bound to the node's CPU, near which they lie."""
    memory.pin(node.cpu)

    def buffer() -> Buffer:
        if pinned:
            return PinnedBuffer(gpu.device, size_bytes, node=node.bound)
        return Buffer(size_bytes, node=node.bound)

    out, into = (stack.enter_context(buffer()) for _ in range(2))
    return Ends(node.id, out, into, seed=1000 + gpu.number)


def poison(place: Place, size_bytes: int) -> None:
    """Overwrite what a copy left there, so that old data cannot pass for new."""
    if isinstance(place, DeviceBuffer):
        place.set_bytes(_POISON, size_bytes)
    else:
        ctypes.memset(place.address, _POISON, size_bytes)


def verified(target: Ends, source: Ends, size_bytes: int) -> Verification:
    """The data check of a copy from `source` to `target`."""
    return target.into.verify(source.seed, size_bytes)


def placement(host: Ends) -> tuple[Evidence, ...]:
    """On which node the kernel has the pages of host memory; nothing where it does not say."""
    place = host.out
    if isinstance(place, DeviceBuffer):
        return ()
    try:
        there = place.pages_on(int(host.name.removeprefix("memory")))
    except CannotJudge:
        return ()
    said = f"{there} of {place.pages} pages on {host.name}"
    return (Evidence(claim="host_memory", value=said, seen="the kernel's move_pages"),)
