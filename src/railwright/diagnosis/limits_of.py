"""Which limit a measured point is held against.

Derived limits come from the path over the topology. Measured ceilings come from a simpler measurement of the same
resource in the same run:
    memory to memory of one host     one thread's memory copy of the same size or of half of it, whichever is faster
                                     (bandwidth), one cache line (latency)
    a KV cache's blocks              one thread's memory copy of as many bytes, or of the most that were copied
    drive to memory                  the raw device with the same reads
    a GPU's loads of other memory    its loads of its own
A drive's writes have no ceiling: what it reads does not hold for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from railwright.busbw import OPERATIONS
from railwright.diagnosis.gpu_limits import CHASE, GPU_BENCHMARKS, LATENCY_BENCHMARK, GpuLimits
from railwright.errors import RailwrightError
from railwright.faults.algorithm_forced import nvls_is_off
from railwright.limits.memory import copy_limit
from railwright.limits.model import Constant, Expected, Limit, NoLimit, Quantity, Source
from railwright.limits.path import link_limit, path_limit
from railwright.limits.sources import SAME_RUN, SINGLE_HOST_COPIES
from railwright.results.model import Result
from railwright.topology.model import MemoryLink, Path, Scalar, Topology
from railwright.topology.paths import Graph
from railwright.units import MIB, format_size

BIDIRECTIONAL_BENCHMARK = "mpi_bidirectional"
COLLECTIVES = frozenset(f"mpi_{operation}" for operation in OPERATIONS)
COPY_BENCHMARK = "memory_copy"
CORE_BENCHMARK = "core_latency"
DEVICE_BENCHMARK = "device_read"
WRITE_BENCHMARK = "file_write"
KV_CACHE_BENCHMARK = "kv_cache"
FILE_BENCHMARKS = frozenset({WRITE_BENCHMARK, "gpu_file_read", "gpu_file_write", "kv_file"})
"""What they measure ends at a drive, which may be slower than every link on the way to it."""

# Inside one host the worst sound way is two copies, one after the other: into a shared buffer and out of it.
# While caches hold the bytes, the second copy fetches each of them from the other core's cache, a third move: a copy
# by one thread finds them in its own.
TWO_COPIES = Constant(value=0.5, unit="of one thread's memory copy", source=SINGLE_HOST_COPIES)
THREE_MOVES = Constant(value=1 / 3, unit="of one thread's memory copy within its caches", source=SINGLE_HOST_COPIES)
NEXT_LAUNCH = Constant(
    value=0.5, unit="of the same memory copy in the launch before, where the pages lie worse", source=SINGLE_HOST_COPIES
)
MESSAGE_LINES = Constant(
    value=20,
    unit="times one cache line from core to core, a message of at most one line by MPI over shared memory",
    source=Source(title="Railwright docs/measured/2026-11-21-mpi-floor"),
)
CACHE_LINE_BYTES = Constant(value=64, unit="bytes", source=SINGLE_HOST_COPIES)
LARGEST_CACHE = Constant(
    value=1.25 * 2**30,
    unit="bytes, above the largest last-level cache of a socket",
    source=Source(title="AMD EPYC 9684X product page", section="L3 cache 1,152 MB"),
)
FILE_SYSTEM_SHARE = Constant(
    value=0.8,
    unit="of the raw device, direct random reads",
    source=Source(title="Railwright docs/limits.md", section="direct reads of a file"),
)
_WRITES_UNKNOWN = "what the raw device reads says nothing of what it writes"
_JUDGED_FROM_BYTES = MIB
"""Below this size the cost of a message, not of its bytes, decides a bandwidth."""

Bounds = tuple[Limit | NoLimit, Expected | None]


class Copies(NamedTuple):
    """One thread's memory copies of one size, in bytes/s."""

    slowest: float
    """The median of the slowest launch."""
    fastest: float
    """The median of the fastest one."""
    best: float
    """The best single sample: what the core has shown that it can do."""
    launches: int

    @property
    def low(self) -> float:
        """What a healthy launch may make: the slowest of several, and less than a single one."""
        return self.slowest if self.launches > 1 else NEXT_LAUNCH.value * self.slowest


class Ceilings(NamedTuple):
    """The simpler measurements of a run: median values by what they were measured with."""

    copies: dict[tuple[str, int], Copies]
    """By path and size in bytes."""
    lines: dict[str, tuple[float, float]]
    """path -> one cache line from core to core, seconds, in the slowest and the fastest launch."""
    devices: dict[tuple[str, Quantity, tuple[tuple[str, Scalar], ...]], tuple[float, float]]
    """(path, quantity, parameters) -> the raw device, in its slowest and its fastest launch."""
    functional: dict[str, str]
    """benchmark -> why its speed says nothing: its ranks shared cores."""
    loads: dict[tuple[str, Scalar], tuple[float, float]]
    """(GPU, region in bytes) -> one load of its own memory, seconds, in the slowest and the fastest launch."""


def ceilings(results: Iterable[Result]) -> Ceilings:
    """Collect them from verified results; the best launch is the ceiling: that is what the resource can do.

    The same copy can be half as fast in the next process, by where its pages lie. So the band has two edges: ok is
    against the fastest launch, slow against the slowest, and between them nothing can be said. A single launch does
    not show how slow the next one is: half as fast is allowed for.
    """
    found = Ceilings({}, {}, {}, {}, {})
    for result in results:
        if result.settings.get("functional") is True:
            found.functional[result.benchmark] = f"a functional run, its {result.ranks} ranks shared cores"
        if result.outcome != "measured" or result.summary is None:
            continue
        if result.verification is None or result.verification.bytes_wrong or not result.verification.bytes_checked:
            continue
        value = result.summary.median
        size = result.parameters.get("size_bytes")
        if result.benchmark == COPY_BENCHMARK and result.parameters.get("threads") == 1 and isinstance(size, int):
            best = result.summary.maximum
            known = found.copies.get((result.path, size), Copies(value, value, best, 0))
            found.copies[(result.path, size)] = Copies(
                min(known.slowest, value), max(known.fastest, value), max(known.best, best), known.launches + 1
            )
        elif result.benchmark == CORE_BENCHMARK:
            slowest, fastest = found.lines.get(result.path, (value, value))
            found.lines[result.path] = (max(slowest, value), min(fastest, value))
        elif result.benchmark == LATENCY_BENCHMARK and result.parameters.get("kind") == CHASE:
            gpu, _, reader = result.path.partition(">")
            if gpu == reader:
                slowest, fastest = found.loads.get((gpu, size or 0), (value, value))
                found.loads[(gpu, size or 0)] = (max(slowest, value), min(fastest, value))
        elif result.benchmark == DEVICE_BENCHMARK:
            key = (result.path, result.quantity, tuple(sorted(result.parameters.items())))
            worse, better = (max, min) if result.quantity == "latency_s" else (min, max)
            slowest, fastest = found.devices.get(key, (value, value))
            found.devices[key] = (worse(slowest, value), better(fastest, value))
    return found


class LimitFinder:
    """Limits for the points of one run."""

    def __init__(
        self, topology: Topology, run_ceilings: Ceilings, environment: Mapping[str, str] | None = None
    ) -> None:
        self._topology = topology
        self._environment = environment or {}
        self._ceilings = run_ceilings
        try:
            self._graph: Graph | None = Graph(topology)
        except RailwrightError:
            self._graph = None
        self._gpu_limits = GpuLimits(topology, self._graph, run_ceilings.loads)

    def path(self, path_id: str) -> Path | None:
        """The path of `source>target` over the topology, None where it has no such devices."""
        source, _, target = path_id.partition(">")
        if self._graph is None or not {source, target} <= set(self._graph.devices):
            return None
        return self._graph.find(source, target)

    def find(
        self,
        benchmark: str,
        quantity: Quantity,
        path_id: str,
        parameters: dict[str, Scalar],
        settings: Mapping[str, Scalar] | None = None,
    ) -> Bounds:
        """The limit and the expected band of one point, which was measured with those settings."""
        source, _, target = path_id.partition(">")
        if "@" in path_id:  # `memory0@0>memory0@1`
            return NoLimit(quantity=quantity, why="the ranks were on several hosts, the topology is of one"), None
        if benchmark in GPU_BENCHMARKS:
            off = nvls_is_off(settings or {}, self._environment)
            return self._gpu_limits.find(benchmark, quantity, path_id, parameters, nvls_is_off=off)
        if benchmark in self._ceilings.functional:
            return NoLimit(quantity=quantity, why=self._ceilings.functional[benchmark]), None
        if benchmark in COLLECTIVES:
            return NoLimit(quantity=quantity, why="no document says what a collective reaches inside one host"), None
        if benchmark == CORE_BENCHMARK:
            return NoLimit(quantity=quantity, why="no document gives the latency between two cores"), None
        if _is_memory(source) and _is_memory(target):
            if benchmark == COPY_BENCHMARK:
                return self._copy(quantity, path_id, parameters)
            if benchmark == KV_CACHE_BENCHMARK:
                return self._kv_cache(quantity, path_id, parameters)
            threads = parameters.get("threads", 1)
            copies = 2 if benchmark == BIDIRECTIONAL_BENCHMARK else threads if isinstance(threads, int) else 1
            return self._within_host(quantity, path_id, parameters, copies)
        if _is_memory(target) and benchmark != DEVICE_BENCHMARK:
            return self._above_device(quantity, path_id, parameters)
        if benchmark in FILE_BENCHMARKS:
            return self._of_file(quantity, path_id)
        return self._derived(quantity, path_id)

    def _derived(self, quantity: Quantity, path_id: str) -> Bounds:
        path = self.path(path_id)
        if path is None:
            return NoLimit(quantity=quantity, why=f"the topology has no path {path_id}"), None
        if quantity != "bandwidth_bytes_per_s":
            return NoLimit(quantity=quantity, why="no document gives a latency or a rate of operations here"), None
        return path_limit(path)

    def _of_file(self, quantity: Quantity, path_id: str) -> Bounds:
        """The links to a drive bound what it gives and takes, but nothing is expected: the drive is mostly narrower.

        Flash takes less than it gives, and unevenly; and what it gives to host memory by itself is another benchmark's.
        """
        limit, _ = self._derived(quantity, path_id)
        target = self._topology.device(path_id.partition(">")[2])
        is_read = target is not None and target.kind == "gpu"
        why = "no document gives the drive's own rate" if is_read else _WRITES_UNKNOWN
        if isinstance(limit, NoLimit):
            return replace(limit, why=f"{limit.why}; {why}"), None
        return replace(limit, because=f"{limit.because}: an upper limit alone, {why}"), None

    def _copy(self, quantity: Quantity, path_id: str, parameters: dict[str, Scalar]) -> Bounds:
        """The memory's channels bound a copy only if no cache can hold it and one node's memory takes all of it.

        Between two nodes each byte is read from one memory and written to the other: either's channels bound it.
        """
        memory, _, other = path_id.partition(">")
        size, threads = parameters.get("size_bytes", 0), parameters.get("threads", 1)
        touched = 2 * size * threads if isinstance(size, int) and isinstance(threads, int) else 0
        if memory != other:
            limit = self._derived(quantity, path_id)[0] if touched > LARGEST_CACHE.value else None
            none = NoLimit(quantity=quantity, why="no document gives the rate between NUMA nodes")
            return limit if isinstance(limit, Limit) else none, None
        if touched <= LARGEST_CACHE.value:
            why = f"a copy that touches {format_size(touched)} may stay in the caches"
            return NoLimit(quantity=quantity, why=why), None
        if len(self._topology.of_kind("memory")) > 1 and threads != 1:
            return NoLimit(quantity=quantity, why="threads on several NUMA nodes use several memories"), None
        for link in self._topology.links:
            if isinstance(link.protocol, MemoryLink) and memory in (link.a, link.b):
                limit, _ = link_limit(link)
                return (copy_limit(limit) if isinstance(limit, Limit) else limit), None
        return NoLimit(quantity=quantity, why=f"the topology does not say how {memory} is attached"), None

    def _within_host(self, quantity: Quantity, path_id: str, parameters: dict[str, Scalar], copies: int = 1) -> Bounds:
        """Each thread and direction is a core's copying: n cannot do more than n copies, nor should they do less than
        one.
        """
        if quantity in ("messages_per_s", "operations_per_s"):  # of messages as well, in records until 0.1
            return NoLimit(quantity=quantity, why="no document gives a rate of messages"), None
        if quantity == "latency_s":
            lines = self._ceilings.lines.get(path_id)
            if lines is None:
                return NoLimit(quantity=quantity, why="core_latency was not measured in this run"), None
            limit = _ceiling(quantity, lines[1], "one cache line from core to core, measured in this run")
            return limit, _message_band(lines, parameters)
        size = parameters.get("size_bytes")
        near = _nearest_size(self._ceilings.copies, path_id, size) if isinstance(size, int) else None
        if near is None:
            return NoLimit(quantity=quantity, why="memory_copy was not measured in this run at such a size"), None
        copied = self._ceilings.copies[path_id, near]
        best, of_size = self._best_copy(path_id, near)
        because = f"one thread's memory copy of {format_size(of_size)}, measured in this run"
        because = f"{copies} at once of {because}" if copies > 1 else because
        limit = _ceiling(quantity, copies * best, because)
        if not isinstance(size, int) or size < _JUDGED_FROM_BYTES or parameters.get("transport") == "tcp":
            return limit, None
        of_memory = self._ceilings.copies[path_id, self._largest_copy(path_id)]
        return limit, Expected(
            quantity=quantity,
            low=_sound_share(copied.fastest, of_memory.fastest),
            doubtful_to=_sound_share(copied.low, of_memory.low),
            because="inside one host the worst sound way copies each byte twice, within caches it moves a third time",
            sources=(TWO_COPIES.source, THREE_MOVES.source),
        )

    def _best_copy(self, path_id: str, size: int) -> tuple[float, int]:
        """The most that a transfer of the size may reach, and which copy's rate that is.

        One thread touches twice the size in its core's caches. Of two processes each may touch no more than the size
        in its own, as does a copy of half of it.
        """
        half = _nearest_size(self._ceilings.copies, path_id, size // 2)
        return max((self._ceilings.copies[path_id, one].best, one) for one in (size, half) if one is not None)

    def _largest_copy(self, path_id: str) -> int:
        """In bytes; 0 where none was measured."""
        return max((known for path, known in self._ceilings.copies if path == path_id), default=0)

    def _kv_cache(self, quantity: Quantity, path_id: str, parameters: dict[str, Scalar]) -> Bounds:
        """Blocks of one request at the rate of a copy; a request larger than all copies is held against the largest.

        A band only where a copy of that size was measured and no block is so small that its own cost decides.
        """
        size, layers = parameters.get("size_bytes"), parameters.get("layers")
        largest = self._largest_copy(path_id)
        if not isinstance(size, int) or not largest:
            return NoLimit(quantity=quantity, why="memory_copy was not measured in this run"), None
        copied = parameters | {"size_bytes": min(size, largest)}
        limit, band = self._within_host("bandwidth_bytes_per_s", path_id, copied)
        block = parameters.get("block_bytes")
        if size > 2 * largest or not isinstance(block, int) or block < _JUDGED_FROM_BYTES:
            band = None
        if quantity == "bandwidth_bytes_per_s":
            return limit, band
        if isinstance(limit, NoLimit):
            return replace(limit, quantity=quantity), None
        awaited_bytes = float(size)
        if parameters.get("until") == "first layer" and isinstance(layers, int) and layers > 0:
            awaited_bytes /= layers
        because = f"{format_size(awaited_bytes)} at the rate of {limit.because}"
        floor = _ceiling(quantity, awaited_bytes / limit.value, because)
        return floor, _as_latency(band, awaited_bytes, floor.value) if band else None

    def _above_device(self, quantity: Quantity, path_id: str, parameters: dict[str, Scalar]) -> Bounds:
        device = self._ceilings.devices.get((path_id, quantity, tuple(sorted(parameters.items()))))
        if device is None:
            limit, _ = self._derived(quantity, path_id)
            if isinstance(limit, NoLimit):
                why = f"the raw device was not measured in this run, and {limit.why}"
                return NoLimit(quantity=quantity, why=why, missing=limit.missing), None
            return limit, None
        slowest, value = device
        because = "the same blocks read from the raw device, in this run"
        limit = _ceiling(quantity, value, because)
        share = FILE_SYSTEM_SHARE.value
        is_latency = quantity == "latency_s"
        low, high = (value, value / share) if is_latency else (share * value, value)
        doubtful_to = slowest / share if is_latency else share * slowest
        reason = "a file system adds a look-up of extents to each direct read"
        sources = (FILE_SYSTEM_SHARE.source,)
        return limit, Expected(
            quantity=quantity, low=low, high=high, doubtful_to=doubtful_to, because=reason, sources=sources
        )


def _message_band(lines_s: tuple[float, float], parameters: dict[str, Scalar]) -> Expected | None:
    """What a message of at most one cache line takes through shared memory; nothing is known of larger ones."""
    size = parameters.get("size_bytes")
    if parameters.get("transport") != "shm" or not isinstance(size, int) or size > CACHE_LINE_BYTES.value:
        return None
    return Expected(
        quantity="latency_s",
        low=lines_s[1],
        high=MESSAGE_LINES.value * lines_s[1],
        doubtful_to=MESSAGE_LINES.value * lines_s[0],
        because="Open MPI takes about 4 and MPICH about 12 times one cache line",
        sources=(MESSAGE_LINES.source,),
    )


def _as_latency(band: Expected, awaited_bytes: float, floor_s: float) -> Expected:
    """The times in which so many bytes arrive at the rates of a band."""
    doubtful_to = awaited_bytes / band.doubtful_to if band.doubtful_to else None
    return replace(band, quantity="latency_s", low=floor_s, high=awaited_bytes / band.low, doubtful_to=doubtful_to)


def _ceiling(quantity: Quantity, value: float, because: str) -> Limit:
    return Limit(quantity=quantity, value=value, kind="measured_ceiling", because=because, sources=(SAME_RUN,))


def _is_memory(device: str) -> bool:
    return device.startswith("memory")


def _sound_share(copied: float, of_memory: float) -> float:
    """What two processes reach by the worst sound way: of a copy of the same size and of the largest one, bytes/s.

    The largest copy is one of memory. One that is faster than that found its bytes in caches.
    """
    return max(THREE_MOVES.value * copied, TWO_COPIES.value * min(copied, of_memory))


def _nearest_size(copies: dict[tuple[str, int], Copies], path_id: str, size: int) -> int | None:
    """The measured copy size nearest to `size` by ratio, at most a factor of two away."""
    sizes = [known for path, known in copies if path == path_id and size / 2 <= known <= size * 2]
    return min(sizes, key=lambda known: abs(math.log(known / size)), default=None)
