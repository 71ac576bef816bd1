"""MPI bandwidth between two ranks in both directions at once: windows of 64 sends each way, as osu_bibw measures it."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.benchmarks.mpi import pair as mpi_pair
from railwright.benchmarks.mpi.pair import Timed
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.model import Result
from railwright.topology.model import Scalar
from railwright.units import KIB, parse_sizes

_WINDOW = 64
_DIRECTIONS = 2
_LARGE_BYTES = 8 * KIB
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_MESSAGE_S = 2e-6


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) windows: OSU 7.4's defaults."""
    return (2, 20) if size > _LARGE_BYTES else (10, 100)


def _plan(job: Job) -> Plan:
    messages = [(size, _DIRECTIONS * _WINDOW * sum(_repeats(size))) for size in parse_sizes(job.options["sizes"])]
    seconds = 1 + sum(count * (_ESTIMATE_MESSAGE_S + size / _ESTIMATE_BYTES_PER_S) for size, count in messages)
    return mpi_pair.plan(job, seconds, sum(size * count for size, count in messages))


def _loop(pair: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    warm, windows = _repeats(size)
    seconds = pair.window(out, into, size, window=_WINDOW, warm=warm, iterations=windows, both_ways=True)
    moved = _DIRECTIONS * _WINDOW * size
    # Rank 1 times nothing; its zeros never leave it.
    samples = [moved / second if second else 0.0 for second in seconds]
    settings: dict[str, Scalar] = {"window": _WINDOW, "windows": windows, "warm_up_windows": warm}
    return Timed(samples, moved * (warm + windows), settings, both_ways=True)


def _run(rank: Rank) -> Iterator[Result]:
    return mpi_pair.run(rank, BENCHMARK, "bandwidth_bytes_per_s", _loop)


BENCHMARK = Benchmark(
    name="mpi_bidirectional",
    summary="MPI windows of 64 messages each way at once between two ranks",
    method="OSU osu_bibw 7.4: windows of 64 non-blocking sends and receives on both sides, both directions counted",
    quantities=("bandwidth_bytes_per_s",),
    ranks=2,
    plan=_plan,
    run=_run,
    options=mpi_pair.OPTIONS,
    variants=mpi_pair.variants,
    between_hosts=mpi_pair.between_hosts,
    needs_mpi=True,
)
