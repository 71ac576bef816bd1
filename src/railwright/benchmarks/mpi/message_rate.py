"""MPI messages per second from one rank to another: osu_mbw_mr with one pair."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.benchmarks.mpi import pair as mpi_pair
from railwright.benchmarks.mpi.pair import Timed
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.model import Result
from railwright.units import KIB, parse_sizes

_WINDOW = 64
_LARGE_BYTES = 8 * KIB
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_MESSAGE_S = 2e-6


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) windows: the defaults of osu_mbw_mr for large messages; ten times as many small ones.

    A hundred windows of small messages are over in a millisecond, and tell more of one moment than of the path.
    """
    return (2, 20) if size > _LARGE_BYTES else (100, 1000)


def _plan(job: Job) -> Plan:
    messages = [(size, _WINDOW * sum(_repeats(size))) for size in parse_sizes(job.options["sizes"])]
    seconds = 1 + sum(count * (_ESTIMATE_MESSAGE_S + size / _ESTIMATE_BYTES_PER_S) for size, count in messages)
    return mpi_pair.plan(job, seconds, sum(size * count for size, count in messages))


def _loop(pair: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    warm, windows = _repeats(size)
    seconds = pair.window(out, into, size, window=_WINDOW, warm=warm, iterations=windows)
    # Rank 1 times nothing; its zeros never leave it.
    rates = tuple(_WINDOW / second if second else 0.0 for second in seconds)
    return Timed(
        [size * rate for rate in rates],
        _WINDOW * size * (warm + windows),
        {"window": _WINDOW, "windows": windows, "warm_up_windows": warm, "pairs": 1},
        messages_per_s=rates,
    )


def _run(rank: Rank) -> Iterator[Result]:
    return mpi_pair.run(rank, BENCHMARK, "bandwidth_bytes_per_s", _loop)


BENCHMARK = Benchmark(
    name="mpi_message_rate",
    summary="MPI messages per second from one rank to another",
    method="OSU osu_mbw_mr 7.4, one pair: windows of 64 non-blocking sends, then an answer; timer around each window",
    quantities=("messages_per_s", "bandwidth_bytes_per_s"),
    ranks=2,
    plan=_plan,
    run=_run,
    options=mpi_pair.OPTIONS,
    variants=mpi_pair.variants,
    between_hosts=mpi_pair.between_hosts,
    needs_mpi=True,
)
