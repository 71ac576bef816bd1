"""The limit of messages and collectives inside one host: through shared memory, plain sockets, or a transfer library.

No document gives their rates. They are compared with simpler measurements of the same run.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from railwright.busbw import busbw_factor
from railwright.expected.bands import limit_from_baseline
from railwright.expected.baselines import Baselines, Ceiling, find_pages
from railwright.limits.limit import Bounds, Constant, Expected, Limit, NoLimit, Source
from railwright.limits.sources import SINGLE_HOST_COPIES
from railwright.results.declarations import no_limit
from railwright.results.workload import Collective, Message, Workload
from railwright.units import KIB, MIB, format_size

# The slowest sound method inside one host makes two copies in turn: into a shared buffer and out of it.
# While caches hold the bytes, the second copy fetches each of them from the other core's cache, a third move: a copy
# by one thread finds them in its own.
TWO_COPIES = Constant(0.5, "of one thread's memory copy", SINGLE_HOST_COPIES)
THREE_MOVES = Constant(1 / 3, "of one thread's memory copy within its caches", SINGLE_HOST_COPIES)
SMALL_PAGES_SHARE = Constant(0.3, "of the expected rate on huge pages, between two processes", SINGLE_HOST_COPIES)
_MPI_FLOOR = Source("Railwright docs/measured/host-paths", "a small MPI message in cache lines")
MESSAGE_LINES = Constant(20, "times one cache line, an MPI message of at most one line over shared memory", _MPI_FLOOR)
CACHE_LINE_BYTES = Constant(64, "bytes", SINGLE_HOST_COPIES)
_NIXL_FLOOR = Source("Railwright docs/limits.md", "small transfers inside one host")
TRANSFER_LINES = Constant(40, "times one cache line, a small transfer by NIXL between two processes", _NIXL_FLOOR)
DOUBTFUL_LINES = Constant(100, "times one cache line, a small NIXL transfer on some healthy machines", _NIXL_FLOOR)
SMALL_BYTES = Constant(64 * KIB, "bytes, the largest transfer reported by its latency", _NIXL_FLOOR)
_BLOCKS = Source("Railwright docs/measured/host-paths", "KV caches of real models")
BLOCKS_SHARE = Constant(0.15, "of one thread's largest copy, requests of small blocks or of several GiB", _BLOCKS)
MIN_BLOCK = Constant(16 * KIB, "bytes, the smallest block that was measured, rounded", _BLOCKS)
_SOCKETS = Source("Railwright docs/limits.md", "TCP inside one host")
LIBRARY_LATENCY = Constant(4.0, "times the latency of a plain socket, by a library", _SOCKETS)
SMALL_MESSAGE = Constant(8 * KIB, "bytes, a message that libraries send at once", _SOCKETS)
LIBRARY_RATE = Constant(0.25, "of the rate of a plain socket, by a library", _SOCKETS)
_REDUCTIONS = Source("Railwright docs/limits.md", "collectives inside one host")
REDUCED = Constant(0.1, "of the expected rate of a copy, if floats are summed", _REDUCTIONS)
HANDSHAKE = Constant(3, "small messages in a large one: a request, an answer, the end", _MPI_FLOOR)
_MAX_RANKS = 2**31 - 1
"""MPI counts ranks in a C int."""
_LARGE_BYTES = MIB
"""From this size bytes alone decide, whatever a library does before it moves them."""


_TIME_AND_BYTES = "the time of a message is its latency plus its bytes over a rate"


class _Edges(NamedTuple):
    """The two edges of a band, both seconds or both bytes/s: by the fastest launch and by the slowest."""

    low: float
    doubtful_to: float

    def times(self, factor: float) -> _Edges:
        """Return both edges multiplied by `factor`."""
        return _Edges(factor * self.low, factor * self.doubtful_to)


def _message_times(start: _Edges, size: float, rates: _Edges) -> _Edges:
    """Return the times of a message: its start, and its bytes over the rates."""
    return _Edges(start.low + size / rates.low, start.doubtful_to + size / rates.doubtful_to)


def _message_rates(start: _Edges, size: float, rates: _Edges) -> _Edges:
    """Return the rates of messages that take those times."""
    seconds = _message_times(start, size, rates)
    return _Edges(size / seconds.low, size / seconds.doubtful_to)


def bound_message(baselines: Baselines, workload: Message) -> Bounds:
    """Return the bounds of a message through shared memory: a cache line from core to core, or a copy of its bytes if
    longer.

    The band is the time of a small message, of the messages that announce a larger one, and of the bytes as two copies.
    """
    limit, size = _cache_line(baselines, workload), workload.size_bytes
    line = baselines.find("cache line", workload)
    if line is None:
        return limit, None
    start = _message_start(line, size or 0)
    if size is None or size <= CACHE_LINE_BYTES.value:
        return limit, _time_band(line.fastest, start, "Open MPI takes about 4 and MPICH about 12 times one cache line")
    copied, _ = bound_by_copies(baselines, workload)
    rates = _two_process_rates(baselines, workload)
    if isinstance(copied, NoLimit) or rates is None:
        return limit, None
    floor, _ = _arrival_time(copied, None, float(size))
    if isinstance(floor, Limit) and isinstance(limit, Limit) and floor.value > limit.value:
        limit = floor
    minimum = limit.value if isinstance(limit, Limit) else line.fastest
    return limit, _time_band(minimum, _message_times(start, size, rates), _TIME_AND_BYTES)


def _message_start(line: Ceiling, size: int) -> _Edges:
    """Return the longest time until the bytes of a message begin to move, in seconds."""
    messages = 1 if size <= CACHE_LINE_BYTES.value else HANDSHAKE.value
    return _Edges(line.fastest, line.slowest).times(MESSAGE_LINES.value * messages)


def _time_band(minimum: float, longest: _Edges, because: str) -> Expected:
    """Return the band of a time, in seconds."""
    return Expected(
        quantity="latency_s",
        low=minimum,
        high=max(minimum, longest.low),
        doubtful_to=max(minimum, longest.low, longest.doubtful_to),
        because=because,
        sources=(MESSAGE_LINES.source,),
    )


def _cache_line(baselines: Baselines, workload: Workload) -> Limit | NoLimit:
    """Return the time of one cache line from core to core as a floor."""
    line = baselines.find("cache line", workload)
    if line is None:
        why = "one cache line from core to core was not measured in this run"
        return NoLimit(quantity=workload.quantity, why=why)
    because = "one cache line from core to core, measured in this run"
    return limit_from_baseline(workload.quantity, line, line.fastest, because)


def bound_by_copies(baselines: Baselines, workload: Workload, copies: int = 1, *, upper_only: bool = False) -> Bounds:
    """Return the bounds of `copies` threads that copy at once: at most the rate of all, at least that of one."""
    size, pages = workload.size_bytes, find_pages(workload)
    found = baselines.copies(workload.path, size, pages) if size is not None else None
    largest = baselines.largest_copies(workload.path, pages)
    if size is None or found is None or largest is None:
        return no_limit(workload, "one thread's memory copy was not measured in this run at such a size")
    near, _ = found
    best, of_size = _best_copy(baselines, workload.path, near, pages)
    kind = " on small pages" if pages == "small" else ""
    because = f"one thread's memory copy of {format_size(of_size)}{kind}, measured in this run"
    because = f"{copies} at once of {because}" if copies > 1 else because
    limit = limit_from_baseline("bandwidth_bytes_per_s", best, best.best, because, times=copies)
    edges = _two_process_rates(baselines, workload)
    if edges is None or upper_only:
        return limit, None
    because = "the slowest sound method inside one host copies each byte twice, and within caches moves it a third time"
    because = f"{because}; the kernel looks up each small page" if pages == "small" else because
    if size < _LARGE_BYTES:
        line = baselines.find("cache line", workload)
        if line is None or size <= 0:
            return limit, None
        is_request = isinstance(workload, Message) and workload.one_sided
        start = _request_start(baselines, workload, line) if is_request else _message_start(line, size)
        edges = _message_rates(start, size, edges)
        because = f"{_TIME_AND_BYTES}; {because}"
    return limit, Expected(
        quantity="bandwidth_bytes_per_s",
        low=edges.low,
        doubtful_to=min(edges),
        because=because,
        sources=(TWO_COPIES.source, THREE_MOVES.source),
    )


def _two_process_rates(baselines: Baselines, workload: Workload) -> _Edges | None:
    """Return the rates of two processes by the slowest sound method, in bytes/s; None without such a copy."""
    size, pages = workload.size_bytes, find_pages(workload)
    found = baselines.copies(workload.path, size, pages) if size is not None else None
    largest = baselines.largest_copies(workload.path, pages)
    if found is None or largest is None:
        return None
    looked_up = SMALL_PAGES_SHARE.value if pages == "small" else 1.0
    (measured, copied), (_, of_memory) = found, largest
    if size is not None and size < measured / 2:  # such a message takes as long as the smallest copy
        looked_up *= size / measured
    fastest, slowest = _sound_rate(copied.fastest, of_memory.fastest), _sound_rate(copied.low, of_memory.low)
    return _Edges(fastest, slowest).times(looked_up)


def _request_start(baselines: Baselines, workload: Workload, line: Ceiling) -> _Edges:
    """Return the longest time of a NIXL request besides its bytes, in seconds."""
    socket = baselines.smallest_message(workload.path)
    fastest, slowest = (socket.fastest, socket.slowest) if socket is not None else (0.0, 0.0)
    return _Edges(max(TRANSFER_LINES.value * line.fastest, fastest), max(DOUBTFUL_LINES.value * line.slowest, slowest))


def _best_copy(baselines: Baselines, path: str, size_bytes: int, pages: str) -> tuple[Ceiling, int]:
    """Return (ceiling, size in bytes) of the copies whose best sample bounds a transfer of `size_bytes`.

    One thread touches twice the size in its core's caches. Each of two processes may touch only the size itself in its
    own caches, as a copy of half the size does.
    """
    both = (baselines.copies(path, size, pages) for size in (size_bytes, size_bytes // 2))
    size, copied = max((found for found in both if found is not None), key=lambda found: (found[1].best, found[0]))
    return copied, size


def bound_blocks(baselines: Baselines, workload: Message) -> Bounds:
    """Return the bounds of a request's blocks at the rate of a copy; a request beyond all copies uses the largest.

    The share of a copy is lower if blocks are so small that their own cost counts, or the request so large that its
    pages do.
    """
    size, layers = workload.size_bytes, workload.layers
    found = baselines.largest_copies(workload.path)
    if size is None or found is None:
        return no_limit(workload, "one thread's memory copy was not measured in this run")
    largest, _ = found
    limit, band = bound_by_copies(baselines, replace(workload, size_bytes=min(size, largest)))
    block = workload.block_bytes
    if block < MIN_BLOCK.value:
        band = None
    elif size > 2 * largest or block < _LARGE_BYTES:
        band = _block_band(found[1])
    if workload.quantity == "bandwidth_bytes_per_s" or isinstance(limit, NoLimit):
        return replace(limit, quantity=workload.quantity), band
    awaited_bytes = float(size)
    if workload.until == "first layer" and layers > 0:
        awaited_bytes /= layers
    return _arrival_time(limit, band, awaited_bytes)


def bound_by_socket(baselines: Baselines, workload: Message) -> Bounds:
    """Return the bounds by a plain socket between the same ends at the same size, one for each sending direction of
    each pair.
    """
    times = workload.pairs * (1 + workload.both_ways)
    socket = baselines.find("plain socket", workload)
    if socket is None and workload.quantity == "bandwidth_bytes_per_s":
        return bound_by_copies(baselines, workload, times, upper_only=True)
    if socket is None:
        return no_limit(workload, "plain sockets were not measured in this run at such a size")
    because = "a plain socket between the same ends, measured in this run"
    is_latency = workload.quantity == "latency_s"
    share = LIBRARY_LATENCY.value if is_latency else LIBRARY_RATE.value
    value = (baselines.fastest_message(workload) if is_latency else None) or socket.best
    because = f"{times} at once of {because}" if times > 1 else because
    limit = limit_from_baseline(workload.quantity, socket, value, because, times=1 if is_latency else times)
    edges = _Edges(share * socket.fastest, share * (socket.slowest if is_latency else socket.low))
    because = "a library adds its protocol and copies to the socket"
    size = workload.size_bytes or 0
    if size < _LARGE_BYTES and not (is_latency and size <= SMALL_MESSAGE.value):
        # Libraries change their protocol at these sizes: they announce a message before they send its bytes.
        small = baselines.smallest_message(workload.path)
        if small is None or size <= 0:
            return limit, None
        start = _Edges(small.fastest, small.slowest).times(HANDSHAKE.value * LIBRARY_LATENCY.value)
        because = f"{because}; {_TIME_AND_BYTES}"
        if is_latency:
            edges = _Edges(start.low + edges.low, start.doubtful_to + edges.doubtful_to)
        else:
            edges = _message_rates(start, size, edges)
    return limit, Expected(
        quantity=workload.quantity,
        low=value if is_latency else edges.low,
        high=max(value, edges.low) if is_latency else None,
        doubtful_to=max(value, *edges) if is_latency else min(edges),
        because=because,
        sources=(LIBRARY_RATE.source,),
    )


def bound_small_transfer(baselines: Baselines, workload: Workload) -> Bounds:
    """Return the bounds of a library's small transfer: a cache line from core to core and a copy of the bytes.

    The floor is the line alone, because a copy in caches may overlap it.
    """
    limit = _cache_line(baselines, workload)
    line, size = baselines.find("cache line", workload), workload.size_bytes
    found = baselines.copies(workload.path, size) if size is not None else None
    if line is None or found is None or size is None or size > SMALL_BYTES.value:
        return limit, None
    moves = _Edges(found[1].fastest, found[1].low).times(THREE_MOVES.value)
    longest = _message_times(_request_start(baselines, workload, line), size, moves)
    return limit, Expected(
        quantity="latency_s",
        low=line.fastest,
        high=longest.low,
        doubtful_to=longest.doubtful_to,
        because="a system call moves the bytes in less time than a plain socket takes for 8 bytes; NIXL's own part is"
        " 15 to 80 cache lines; within caches each byte moves three times",
        sources=(TRANSFER_LINES.source, THREE_MOVES.source),
    )


def bound_collective(baselines: Baselines, workload: Collective) -> Bounds:
    """Return the bounds of a collective of one host by its copies; of a latency, by its messages and copies.

    Out of place every rank's own thread writes its part of the result: the whole of it, or its share after a
    reduce_scatter.
    A linear algorithm sends all through one rank, so the band falls with the number of ranks.
    """
    size, ranks, operation = workload.size_bytes, workload.ranks or 1, workload.operation
    upper_only = workload.over == "tcp"  # work other than copying decides there
    if not 1 < ranks <= _MAX_RANKS:
        return no_limit(workload, f"a collective must have 2 to {_MAX_RANKS} ranks, and its record has another number")
    part = (REDUCED.value if "reduce" in operation else 1.0) * 2 / ranks
    if workload.quantity == "latency_s":
        line = baselines.find("cache line", workload)
        limit = _cache_line(baselines, workload)
        if line is None or size is None or upper_only:
            return limit, None
        messages = 2 * (ranks - 1)
        start = _message_start(line, 0 if size <= CACHE_LINE_BYTES.value * ranks else size)
        longest = start.times(messages)
        because = f"{messages} messages one after the other, there and back"
        if size > CACHE_LINE_BYTES.value * ranks:
            rates = _two_process_rates(baselines, workload)
            if rates is None:
                return limit, None
            longest = _message_times(longest, size, rates.times(part))
            because = f"{because}; {_TIME_AND_BYTES}"
        return limit, _time_band(line.fastest, longest, because)
    written = size // ranks if size is not None and operation == "reduce_scatter" else size
    limit, band = bound_by_copies(baselines, replace(workload, size_bytes=written or 0))
    if isinstance(limit, NoLimit) or size is None or written is None:
        return limit, None
    scale = (size / written if written else 1.0) * (
        float(busbw_factor(operation, ranks)) if workload.rate == "busbw" else 1.0
    )
    because = f"each rank's thread writes {format_size(written)}, at the rate of {limit.because}"
    limit = replace(limit, value=limit.value * scale, because=because)
    if band is None or upper_only:
        return limit, None
    share = scale * part
    doubtful_to = band.doubtful_to if band.doubtful_to is None else band.doubtful_to * share
    return limit, replace(band, low=band.low * share, doubtful_to=doubtful_to, sources=(*band.sources, REDUCED.source))


def _block_band(copied: Ceiling) -> Expected:
    """Return the band of a request of many blocks, from the largest copy."""
    return Expected(
        quantity="bandwidth_bytes_per_s",
        low=BLOCKS_SHARE.value * copied.fastest,
        doubtful_to=BLOCKS_SHARE.value * copied.low,
        because="blocks of 18 to 64 KiB moved at 0.25 to 0.5 of a copy of 64 MiB",
        sources=(BLOCKS_SHARE.source,),
    )


def _arrival_time(limit: Limit | NoLimit, band: Expected | None, awaited_bytes: float) -> Bounds:
    """Return the times in which `awaited_bytes` arrive at the rates of a limit and its band."""
    if isinstance(limit, NoLimit):
        return replace(limit, quantity="latency_s"), None
    because = f"{format_size(awaited_bytes)} at the rate of {limit.because}"
    floor = replace(limit, quantity="latency_s", value=awaited_bytes / limit.value, because=because)
    if band is None:
        return floor, None
    doubtful_to = awaited_bytes / band.doubtful_to if band.doubtful_to else None
    high = awaited_bytes / band.low
    return floor, replace(band, quantity="latency_s", low=floor.value, high=high, doubtful_to=doubtful_to)


def _sound_rate(copied: float, of_memory: float) -> float:
    """Return the rate of two processes by the slowest sound method, in bytes/s, from a copy of the same size and the
    largest.

    The largest copy is a copy in memory. A faster copy finds its bytes in caches.
    """
    return max(THREE_MOVES.value * copied, TWO_COPIES.value * min(copied, of_memory))
