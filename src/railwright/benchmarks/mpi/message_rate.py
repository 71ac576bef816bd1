"""MPI messages per second from one rank to another: osu_mbw_mr with one pair.

A hundred windows of small messages are over in a millisecond, and tell more of one moment than of the path. So there
are ten times as many of them as in osu_mbw_mr; large messages have its defaults.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import PairOptions, PairRank, Timed, Transport, Windows
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.bounds import Declaration, Nothing
from railwright.results.model import Result

_WINDOWS = Windows(small=(100, 1000))


def _loop(between: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    timed = _WINDOWS.loop(between, out, into, size)
    rates = tuple(sample / size for sample in timed.samples)
    return timed._replace(messages_per_s=rates, settings={**timed.settings, "pairs": 1})


def _run(rank: PairRank) -> Iterator[Result]:
    return pair.run(rank, BENCHMARK, _loop)


BENCHMARK = Benchmark(
    name="mpi_message_rate",
    summary="MPI messages per second from one rank to another",
    method="OSU osu_mbw_mr 7.4, one pair: windows of 64 non-blocking sends, then an answer; timer around each window",
    results=(Declaration("messages_per_s", Nothing(why="no document gives a rate of messages")), *pair.bandwidth()),
    options=PairOptions,
    case=Transport,
    launches=pair.launches,
    plan=_WINDOWS.plan,
    run=_run,
    spans_hosts=True,
)
