"""How often NIXL's requests are timed, and the records that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.job import Case
from railwright.benchmarks.record import every_nth, latencies, measured
from railwright.native import nixl
from railwright.native.nixl_crew import CrewPass
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar
from railwright.units import GIB, KIB, MIB

_WARM, _ITERATIONS = 100, 1000
_LARGE_DIVISOR = 16
_MOST_BYTES_A_POINT = 16 * GIB
"""Above it a point is timed less often, so that a sweep up to 1 GiB ends."""
_LEAST_ITERATIONS = 10
LATENCY_UP_TO_BYTES = 64 * KIB
"""Smaller blocks are told by their latency, larger ones by their bandwidth, blocks of this size by both."""


class Point(Case, frozen=True, kw_only=True):
    """Blocks of one size, and how many of them are moved at once."""

    size_bytes: int
    """Of one block."""
    operation: nixl.Operation
    batch: int = 1
    """Blocks, so descriptors, of one request."""
    threads: int = 1
    depth: int = 1
    """Requests in flight, of each thread."""

    @property
    def request_bytes(self) -> int:
        """What one request moves."""
        return self.size_bytes * self.batch

    @property
    def region_bytes(self) -> int:
        """What all requests that may be in flight move, each to its own place."""
        return self.request_bytes * self.threads * self.depth

    @property
    def is_plain(self) -> bool:
        """One thread with one block at a time."""
        return self.batch == self.threads == self.depth == 1

    def repeats(self) -> tuple[int, int]:
        """(warm-up, timed) requests of each thread: nixlbench's, a sixteenth above 1 MiB a request, fewer far above."""
        divisor = _LARGE_DIVISOR if self.request_bytes > MIB else 1
        most = max(_LEAST_ITERATIONS, _MOST_BYTES_A_POINT // (self.request_bytes * self.threads))
        timed = min(_ITERATIONS // divisor, most)
        return max(1, min(_WARM // divisor, timed // 10)), timed


class Timed(NamedTuple):
    """What the loops of one point measured."""

    seconds: list[float]
    """Post to done."""
    posts: list[float]
    rates: list[float]
    """Bytes/s: of each request where one is in flight, of each pass otherwise."""
    requests: int
    """How many were posted in all, warm-up included."""

    def settings(self) -> dict[str, Scalar]:
        """How often it was repeated, and how long the post call alone takes."""
        return {
            "iterations": len(self.seconds),
            "warm_up": self.requests - len(self.seconds),
            "post_median_s": summarise(self.posts).median,
        }


def of_passes(passes: list[CrewPass], bytes_per_pass: int, warm: int = 0) -> Timed:
    """What several passes of a crew measured."""
    seconds = [second for one in passes for second in one.seconds]
    return Timed(
        seconds=seconds,
        posts=[post for one in passes for post in one.posts],
        rates=[bytes_per_pass / one.elapsed_s for one in passes],
        requests=warm + len(seconds),
    )


def time_alone(request: nixl.Request, size_bytes: int, warm: int, iterations: int, patience_s: float) -> Timed:
    """One request again and again."""
    seconds, posts = request.time(warm=warm, iterations=iterations, patience_s=patience_s)
    return Timed(seconds, posts, [size_bytes / second for second in seconds], warm + iterations)


def results_of(blank: Result, timed: Timed, size_bytes: int, *, both: bool = False) -> Iterator[Result]:
    """Small blocks as latency, large ones as bandwidth, those of 64 KiB as both; `both` always."""
    if both or size_bytes <= LATENCY_UP_TO_BYTES:
        every = every_nth(len(timed.seconds))
        kept = {"samples_kept": f"1 of {every}"} if every > 1 else {}
        yield latencies(blank, timed.seconds, settings={**blank.settings, **kept})
    if both or size_bytes >= LATENCY_UP_TO_BYTES:
        yield measured(blank, timed.rates, "bandwidth_bytes_per_s")
