"""What is known of host paths: links of the topology, and the simpler measurements of the same run."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.busbw import factor
from railwright.diagnosis.ceilings import Ceiling, Ceilings, pages_of
from railwright.limits.limit import Bounds, Constant, Expected, Limit, NoLimit, Quantity, Source
from railwright.limits.memory import limit_inside
from railwright.limits.path import path_limit
from railwright.limits.sources import SAME_RUN, SINGLE_HOST_COPIES
from railwright.results.bounds import no_limit
from railwright.results.records import Result, size_of
from railwright.topology.devices import Path, Topology
from railwright.topology.paths import Graph
from railwright.units import KIB, MIB, format_size

# Inside one host the worst sound way is two copies, one after the other: into a shared buffer and out of it.
# While caches hold the bytes, the second copy fetches each of them from the other core's cache, a third move: a copy
# by one thread finds them in its own.
TWO_COPIES = Constant(0.5, "of one thread's memory copy", SINGLE_HOST_COPIES)
THREE_MOVES = Constant(1 / 3, "of one thread's memory copy within its caches", SINGLE_HOST_COPIES)
SMALL_PAGES_SHARE = Constant(0.3, "of what is expected on huge pages, between two processes", SINGLE_HOST_COPIES)
_MPI_FLOOR = Source("Railwright docs/measured/host-paths", "a small MPI message in cache lines")
MESSAGE_LINES = Constant(20, "times one cache line, a message of at most one by MPI over shared memory", _MPI_FLOOR)
CACHE_LINE_BYTES = Constant(64, "bytes", SINGLE_HOST_COPIES)
_EPYC_9684X = Source("AMD EPYC 9684X product page", "L3 cache 1,152 MB")
LARGEST_CACHE = Constant(1.25 * 2**30, "bytes, above the largest last-level cache of a socket", _EPYC_9684X)
_FILE_READS = Source("Railwright docs/limits.md", "direct reads of a file")
FILE_SYSTEM_SHARE = Constant(0.8, "of the raw device, direct random reads", _FILE_READS)
_NIXL_FLOOR = Source("Railwright docs/limits.md", "small transfers inside one host")
TRANSFER_LINES = Constant(40, "times one cache line, a small transfer by NIXL between two processes", _NIXL_FLOOR)
DOUBTFUL_LINES = Constant(100, "times one cache line, what such a transfer took on some healthy machine", _NIXL_FLOOR)
SMALL_BYTES = Constant(64 * KIB, "bytes, the largest transfer that is told by its latency", _NIXL_FLOOR)
_BLOCKS = Source("Railwright docs/measured/host-paths", "KV caches of real models")
BLOCKS_SHARE = Constant(0.15, "of one thread's largest copy, requests of small blocks or of several GiB", _BLOCKS)
LEAST_BLOCK = Constant(16 * KIB, "bytes, the smallest block that was measured, rounded", _BLOCKS)
_SOCKETS = Source("Railwright docs/limits.md", "TCP inside one host")
LIBRARY_LATENCY = Constant(4.0, "times the latency of a plain socket, by a library", _SOCKETS)
SMALL_MESSAGE = Constant(8 * KIB, "bytes, a message that libraries send at once", _SOCKETS)
LIBRARY_RATE = Constant(0.25, "of the rate of a plain socket, by a library", _SOCKETS)
_REDUCTIONS = Source("Railwright docs/limits.md", "collectives inside one host")
REDUCED = Constant(0.1, "of what a copy is expected to reach, where floats are summed", _REDUCTIONS)
_LINPACK = Source("Railwright docs/limits.md", "files and Linpack")
WHOLE_CORES = Constant(0.97, "of the time of a rank's cores, in which it computes or polls", _LINPACK)
_MOST_RANKS = 2**31 - 1
"""MPI counts ranks in an int."""
_JUDGED_FROM_BYTES = MIB
"""Below this size the cost of a message, not of its bytes, decides a bandwidth."""


def path_over(graph: Graph | None, path_id: str) -> Path | None:
    """The path of `source>target` over the topology, None where it has no such devices."""
    source, _, target = path_id.partition(">")
    if graph is None or not {source, target} <= graph.devices.keys():
        return None
    return graph.find(source, target)


class HostLimits:
    """Limits for the points of one run on one machine."""

    def __init__(self, topology: Topology, graph: Graph | None, ceilings: Ceilings) -> None:
        self._topology = topology
        self._graph = graph
        self._ceilings = ceilings

    def links(self, point: Result) -> Bounds:
        """The narrowest link of the path."""
        path = path_over(self._graph, point.path)
        if path is None:
            return no_limit(point, f"the topology has no path {point.path}")
        if point.quantity != "bandwidth_bytes_per_s":
            return no_limit(point, "no document gives a latency or a rate of operations here")
        return path_limit(path)

    def drive_links(self, point: Result) -> Bounds:
        """The links to a drive, as an upper limit alone.

        The drive is mostly narrower. Flash takes less than it gives, and unevenly; what it gives to host memory is
        another benchmark's to measure.
        """
        limit, _ = self.links(point)
        target = self._topology.device(point.path.partition(">")[2])
        is_read = target is not None and target.kind in ("gpu", "memory")
        why = (
            "no document gives the drive's own rate"
            if is_read
            else "what the raw device reads says nothing of what it writes"
        )
        if isinstance(limit, NoLimit):
            return replace(limit, why=f"{limit.why}; {why}"), None
        return replace(limit, because=f"{limit.because}: an upper limit alone, {why}"), None

    def memory_channels(self, point: Result) -> Bounds:
        """The memory's channels bound a copy only if no cache can hold it and one node's memory takes all of it.

        Between two nodes each byte is read from one memory and written to the other, so either's channels bound it.
        """
        memory, _, other = point.path.partition(">")
        size, threads = point.parameters.get("size_bytes", 0), point.parameters.get("threads", 1)
        touched = 2 * size * threads if isinstance(size, int) and isinstance(threads, int) else 0
        if memory != other:
            limit = self.links(point)[0] if touched > LARGEST_CACHE.value else None
            none = no_limit(point, "no document gives the rate between NUMA nodes")
            return (limit, None) if isinstance(limit, Limit) else none
        if touched <= LARGEST_CACHE.value:
            return no_limit(point, f"a copy that touches {format_size(touched)} may stay in the caches")
        if len(self._topology.of_kind("memory")) > 1 and threads != 1:
            return no_limit(point, "threads on several NUMA nodes use several memories")
        return limit_inside(self._topology, memory)

    def matrix_products(self, point: Result) -> Bounds:
        """What dgemm reached on the same ranks, as an upper limit alone: how near Linpack comes depends on its size."""
        product = self._ceilings.of("dgemm", point)
        if point.settings.get("functional") is True:
            return no_limit(point, f"a functional run, the threads of its {point.ranks} ranks shared cores")
        if product is None:
            return no_limit(point, "no product of matrices was measured in this run on the same ranks")
        because = (
            "the best dgemm on all ranks at once in this run: an upper limit alone, no peers of this CPU are known"
        )
        share = point.settings.get("cpu_share")
        if isinstance(share, int | float) and share < WHOLE_CORES.value:
            because += f"; a rank had {share:.0%} of the time of its cores, others had the rest".replace("%", " %")
        return _ceiling(point.quantity, product, product.best, because), None

    def message(self, point: Result) -> Bounds:
        """A message through shared memory: one cache line from core to core, or a copy of its bytes if that is longer.

        The band is that of messages of one line, and from 1 MiB up that of copies. Between the two nothing is expected.
        """
        limit, size = self._cache_line(point), size_of(point.parameters)
        if size is None or size <= CACHE_LINE_BYTES.value:
            line = self._ceilings.of("cache line", point)
            return limit, _message_band(line, point) if line is not None else None
        copied, band = _as_time(*self.thread_copies(point), float(size))
        if isinstance(copied, NoLimit) or (isinstance(limit, Limit) and limit.value > copied.value):
            return limit, None
        return copied, band

    def _cache_line(self, point: Result) -> Limit | NoLimit:
        """One cache line from core to core, as a floor."""
        line = self._ceilings.of("cache line", point)
        if line is None:
            why = "one cache line from core to core was not measured in this run"
            return NoLimit(quantity=point.quantity, why=why)
        because = "one cache line from core to core, measured in this run"
        return _ceiling(point.quantity, line, line.fastest, because)

    def thread_copies(self, point: Result, copies: int = 1, *, upper_only: bool = False) -> Bounds:
        """So many threads that copy at once: the most that they can reach, and no less than one of them."""
        size, pages = size_of(point.parameters), pages_of(point)
        found = self._ceilings.copies(point.path, size, pages) if size is not None else None
        largest = self._ceilings.largest_copies(point.path, pages)
        if size is None or found is None or largest is None:
            return no_limit(point, "one thread's memory copy was not measured in this run at such a size")
        near, copied = found
        best, of_size = self._best_copy(point.path, near, pages)
        kind = " on small pages" if pages == "small" else ""
        because = f"one thread's memory copy of {format_size(of_size)}{kind}, measured in this run"
        because = f"{copies} at once of {because}" if copies > 1 else because
        limit = _ceiling("bandwidth_bytes_per_s", best, best.best, because, times=copies)
        if size < _JUDGED_FROM_BYTES or upper_only:
            return limit, None
        _, of_memory = largest
        looked_up = SMALL_PAGES_SHARE.value if pages == "small" else 1.0
        because = "inside one host the worst sound way copies each byte twice, within caches it moves a third time"
        return limit, Expected(
            quantity="bandwidth_bytes_per_s",
            low=looked_up * _sound_share(copied.fastest, of_memory.fastest),
            doubtful_to=looked_up * _sound_share(copied.low, of_memory.low),
            because=f"{because}; the kernel looks up each small page" if pages == "small" else because,
            sources=(TWO_COPIES.source, THREE_MOVES.source),
        )

    def _best_copy(self, path: str, size_bytes: int, pages: str) -> tuple[Ceiling, int]:
        """The copies whose best is the most that a transfer of the size may reach, and their size in bytes.

        One thread touches twice the size in its core's caches. Each of two processes may touch only the size itself
        in its own, as a copy of half the size does.
        """
        both = (self._ceilings.copies(path, size, pages) for size in (size_bytes, size_bytes // 2))
        size, copied = max((found for found in both if found is not None), key=lambda found: (found[1].best, found[0]))
        return copied, size

    def copied_blocks(self, point: Result) -> Bounds:
        """Blocks of one request at the rate of a copy; a request larger than all copies is held against the largest.

        Where blocks are so small that their own cost counts, or the request so large that its pages do, less of a copy
        is expected.
        """
        size, layers = size_of(point.parameters), point.parameters.get("layers")
        found = self._ceilings.largest_copies(point.path)
        if size is None or found is None:
            return no_limit(point, "one thread's memory copy was not measured in this run")
        largest, _ = found
        limit, band = self.thread_copies(
            replace(point, parameters=point.parameters | {"size_bytes": min(size, largest)})
        )
        block = point.parameters.get("block_bytes")
        if not isinstance(block, int) or block < LEAST_BLOCK.value:
            band = None
        elif size > 2 * largest or block < _JUDGED_FROM_BYTES:
            band = _of_blocks(found[1])
        if point.quantity == "bandwidth_bytes_per_s" or isinstance(limit, NoLimit):
            return replace(limit, quantity=point.quantity), band
        awaited_bytes = float(size)
        if point.parameters.get("until") == "first layer" and isinstance(layers, int) and layers > 0:
            awaited_bytes /= layers
        return _as_time(limit, band, awaited_bytes)

    def raw_device(self, point: Result) -> Bounds:
        """The raw device with the same reads, else the links to it."""
        device = self._ceilings.of("raw device", point)
        if device is None:
            limit, _ = self.links(point)
            own = self._ceilings.reads.bounds(point)
            if own is not None and not self._ceilings.reads.is_best(point):
                return own
            if isinstance(limit, NoLimit):
                return replace(limit, why=f"the raw device was not measured in this run, and {limit.why}"), None
            return limit, None
        value, share = device.fastest, FILE_SYSTEM_SHARE.value
        is_latency = point.quantity == "latency_s"
        low, high = (value, value / share) if is_latency else (share * value, value)
        because = "the same blocks read from the raw device, in this run"
        return _ceiling(point.quantity, device, value, because), Expected(
            quantity=point.quantity,
            low=low,
            high=high,
            doubtful_to=device.slowest / share if is_latency else share * device.slowest,
            because="a file system adds a look-up of extents to each direct read",
            sources=(FILE_SYSTEM_SHARE.source,),
        )

    def is_best_read(self, point: Result) -> bool:
        """Whether it is the best of the run's own reads, and the raw device is closed."""
        return self._ceilings.of("raw device", point) is None and self._ceilings.reads.is_best(point)

    def plain_socket(self, point: Result, times: int = 1) -> Bounds:
        """A plain socket between the same ends at the same size, or several of them at once."""
        socket = self._ceilings.of("plain socket", point)
        if socket is None and point.quantity == "bandwidth_bytes_per_s":
            return self.thread_copies(point, times, upper_only=True)
        if socket is None:
            return no_limit(point, "plain sockets were not measured in this run at such a size")
        because = "a plain socket between the same ends, measured in this run"
        is_latency = point.quantity == "latency_s"
        share = LIBRARY_LATENCY.value if is_latency else LIBRARY_RATE.value
        value = (self._ceilings.fastest_message(point) if is_latency else None) or socket.best
        because = f"{times} at once of {because}" if times > 1 else because
        limit = _ceiling(point.quantity, socket, value, because, times=1 if is_latency else times)
        size = size_of(point.parameters) or 0
        # Between the two a library changes its protocol, and what that costs no document says.
        if size < _JUDGED_FROM_BYTES and not (is_latency and size <= SMALL_MESSAGE.value):
            return limit, None
        return limit, Expected(
            quantity=point.quantity,
            low=value if is_latency else share * socket.fastest,
            high=share * socket.fastest if is_latency else None,
            doubtful_to=share * socket.slowest if is_latency else share * socket.low,
            because="a library adds its protocol and its copies to the socket's",
            sources=(LIBRARY_RATE.source,),
        )

    def small_transfer(self, point: Result) -> Bounds:
        """A cache line from core to core and a copy of the bytes: what a library's small transfer cannot do without.

        The floor is the line alone, because a copy in caches may overlap it.
        """
        limit = self._cache_line(point)
        line, size = self._ceilings.of("cache line", point), size_of(point.parameters)
        found = self._ceilings.copies(point.path, size) if size is not None else None
        if line is None or found is None or size is None or size > SMALL_BYTES.value:
            return limit, None
        moves_s = (size / (THREE_MOVES.value * found[1].fastest), size / (THREE_MOVES.value * found[1].low))
        socket = self._ceilings.smallest_message(point.path)
        by_socket = (socket.fastest, socket.slowest) if socket is not None else (0.0, 0.0)
        return limit, Expected(
            quantity="latency_s",
            low=line.fastest,
            high=max(TRANSFER_LINES.value * line.fastest, by_socket[0]) + moves_s[0],
            doubtful_to=max(DOUBTFUL_LINES.value * line.slowest, by_socket[1]) + moves_s[1],
            because="a system call moves them, in less time than a plain socket takes for 8 bytes; NIXL's own part is"
            " 15 to 80 cache lines; within caches bytes move three times",
            sources=(TRANSFER_LINES.source, THREE_MOVES.source),
        )

    def collective(self, operation: str, point: Result, *, upper_only: bool = False) -> Bounds:
        """The copies that a collective of one host needs; a latency of at most one line in cache lines.

        Out of place every rank's own thread writes its part of the result: the whole of it, or its share after a
        reduce_scatter. A linear algorithm sends all through one rank, so what is expected falls with their number.
        """
        size, ranks = size_of(point.parameters), point.ranks
        if not 1 < ranks <= _MOST_RANKS:
            return no_limit(point, "a collective is of two ranks or more, and its record says other")
        if point.quantity == "latency_s":
            line = self._ceilings.of("cache line", point)
            limit = self._cache_line(point)
            if line is None or size is None or upper_only or size > CACHE_LINE_BYTES.value * ranks:
                return limit, None
            times = MESSAGE_LINES.value * 2 * (ranks - 1)
            return limit, Expected(
                quantity="latency_s",
                low=line.fastest,
                high=times * line.fastest,
                doubtful_to=times * line.slowest,
                because=f"{2 * (ranks - 1)} messages one after the other, there and back",
                sources=(MESSAGE_LINES.source,),
            )
        written = size // ranks if size is not None and operation == "reduce_scatter" else size
        limit, band = self.thread_copies(replace(point, parameters=point.parameters | {"size_bytes": written or 0}))
        if isinstance(limit, NoLimit) or size is None or written is None:
            return limit, None
        scale = (size / written if written else 1.0) * (
            float(factor(operation, ranks)) if point.parameters.get("rate") == "busbw" else 1.0
        )
        because = f"each rank's thread writes {format_size(written)}, at the rate of {limit.because}"
        limit = replace(limit, value=limit.value * scale, because=because)
        if band is None or upper_only:
            return limit, None
        share = scale * (REDUCED.value if "reduce" in operation else 1.0) * 2 / ranks
        doubtful_to = band.doubtful_to if band.doubtful_to is None else band.doubtful_to * share
        return limit, replace(
            band, low=band.low * share, doubtful_to=doubtful_to, sources=(*band.sources, REDUCED.source)
        )


def _message_band(line: Ceiling, point: Result) -> Expected | None:
    """The band of a message of at most one cache line through shared memory. Larger messages have none."""
    size = size_of(point.parameters)
    if size is None or size > CACHE_LINE_BYTES.value:
        return None
    return Expected(
        quantity="latency_s",
        low=line.fastest,
        high=MESSAGE_LINES.value * line.fastest,
        doubtful_to=MESSAGE_LINES.value * line.slowest,
        because="Open MPI takes about 4 and MPICH about 12 times one cache line",
        sources=(MESSAGE_LINES.source,),
    )


def _of_blocks(copied: Ceiling) -> Expected:
    """What a request of many blocks is expected to reach of the largest copy."""
    return Expected(
        quantity="bandwidth_bytes_per_s",
        low=BLOCKS_SHARE.value * copied.fastest,
        doubtful_to=BLOCKS_SHARE.value * copied.low,
        because="blocks of 18 to 64 KiB moved at 0.25 to 0.5 of a copy of 64 MiB",
        sources=(BLOCKS_SHARE.source,),
    )


def _as_time(limit: Limit | NoLimit, band: Expected | None, awaited_bytes: float) -> Bounds:
    """The times in which so many bytes arrive at the rates of a limit and its band."""
    if isinstance(limit, NoLimit):
        return replace(limit, quantity="latency_s"), None
    because = f"{format_size(awaited_bytes)} at the rate of {limit.because}"
    floor = replace(limit, quantity="latency_s", value=awaited_bytes / limit.value, because=because)
    if band is None:
        return floor, None
    doubtful_to = awaited_bytes / band.doubtful_to if band.doubtful_to else None
    high = awaited_bytes / band.low
    return floor, replace(band, quantity="latency_s", low=floor.value, high=high, doubtful_to=doubtful_to)


def _ceiling(quantity: Quantity, measured: Ceiling, value: float, because: str, *, times: int = 1) -> Limit:
    """So many times the value as a limit, which varies as the launches of what was measured do."""
    return Limit(
        quantity=quantity,
        value=times * value,
        kind="measured_ceiling",
        because=because,
        varies=measured.varies_beyond(value),
        sources=(SAME_RUN,),
    )


def _sound_share(copied: float, of_memory: float) -> float:
    """What two processes reach by the worst sound way, in bytes/s, from a copy of the same size and of the largest.

    The largest copy is one of memory. One that is faster than that found its bytes in caches.
    """
    return max(THREE_MOVES.value * copied, TWO_COPIES.value * min(copied, of_memory))
