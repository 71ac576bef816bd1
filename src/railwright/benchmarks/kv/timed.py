"""The repeats of NIXL's requests, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.job import Case
from railwright.benchmarks.record import complete, latencies, sample_stride
from railwright.native import nixl
from railwright.native.nixl_crew import CrewPass
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar
from railwright.units import GIB, KIB, MIB

_WARM, _ITERATIONS = 100, 1000
_LARGE_DIVISOR = 16
_MOST_BYTES_A_POINT = 16 * GIB
"""The bytes of a point above which it is timed less often, so that a sweep up to 1 GiB ends."""
_LEAST_ITERATIONS = 10
LATENCY_UP_TO_BYTES = 64 * KIB
"""Smaller blocks are reported by latency, larger ones by bandwidth, and blocks of this size by both."""


class Point(Case, frozen=True, kw_only=True):
    """A block size with the number of blocks moved at once."""

    size_bytes: int
    """The size of one block."""
    operation: nixl.Operation
    batch: int = 1
    """Blocks, and so descriptors, of one request."""
    threads: int = 1
    depth: int = 1
    """Requests in flight per thread."""

    @property
    def request_bytes(self) -> int:
        """The bytes that one request moves."""
        return self.size_bytes * self.batch

    @property
    def region_bytes(self) -> int:
        """The bytes of all requests in flight, each at its own place."""
        return self.request_bytes * self.threads * self.depth

    @property
    def is_plain(self) -> bool:
        """Whether one thread moves one block at a time."""
        return self.batch == self.threads == self.depth == 1

    def repeats(self) -> tuple[int, int]:
        """Return each thread's (warm-up, timed) requests: nixlbench's, 1/16 above 1 MiB, fewer for very large ones."""
        divisor = _LARGE_DIVISOR if self.request_bytes > MIB else 1
        most = max(_LEAST_ITERATIONS, _MOST_BYTES_A_POINT // (self.request_bytes * self.threads))
        timed = min(_ITERATIONS // divisor, most)
        return max(1, min(_WARM // divisor, timed // 10)), timed


class Timed(NamedTuple):
    """The measurements of a point's loops."""

    seconds: list[float]
    """The time from post to completion."""
    posts: list[float]
    rates: list[float]
    """Bytes/s of each request if one is in flight, of each pass otherwise."""
    requests: int
    """The number of posted requests, warm-up included."""

    def settings(self) -> dict[str, Scalar]:
        """Return the repeats and the time of the post call alone."""
        return {
            "iterations": len(self.seconds),
            "warm_up": self.requests - len(self.seconds),
            "post_median_s": summarise(self.posts).median,
        }


def combine_passes(passes: list[CrewPass], bytes_per_pass: int, warm: int = 0) -> Timed:
    """Combine several passes of a crew."""
    seconds = [second for one in passes for second in one.seconds]
    return Timed(
        seconds=seconds,
        posts=[post for one in passes for post in one.posts],
        rates=[bytes_per_pass / one.elapsed_s for one in passes],
        requests=warm + len(seconds),
    )


def time_alone(request: nixl.Request, size_bytes: int, warm: int, iterations: int, patience_s: float) -> Timed:
    """Time one request repeatedly."""
    seconds, posts = request.time(warm=warm, iterations=iterations, patience_s=patience_s)
    return Timed(seconds, posts, [size_bytes / second for second in seconds], warm + iterations)


def record_timed(blank: Result, timed: Timed, size_bytes: int, *, both: bool = False) -> Iterator[Result]:
    """Yield small blocks as latency, large ones as bandwidth, blocks of 64 KiB as both; with `both` always both."""
    if both or size_bytes <= LATENCY_UP_TO_BYTES:
        every = sample_stride(len(timed.seconds))
        kept = {"samples_kept": f"1 of {every}"} if every > 1 else {}
        yield latencies(blank, timed.seconds, settings={**blank.settings, **kept})
    if both or size_bytes >= LATENCY_UP_TO_BYTES:
        yield complete(blank, timed.rates, "bandwidth_bytes_per_s")
