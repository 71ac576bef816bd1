"""MPI latency between two ranks: half the round trip of a blocking ping-pong, as osu_latency measures it."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.benchmarks.mpi import pair as mpi_pair
from railwright.benchmarks.mpi.pair import Timed
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.model import Result
from railwright.units import KIB, parse_sizes

_LARGE_BYTES = 8 * KIB
_ESTIMATE_BYTES_PER_S = 3e9
_ESTIMATE_MESSAGE_S = 20e-6


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) iterations: OSU 7.4's defaults."""
    return (10, 1000) if size > _LARGE_BYTES else (100, 10_000)


def _plan(job: Job) -> Plan:
    sizes = parse_sizes(job.options["sizes"])
    messages = [(size, 2 * sum(_repeats(size))) for size in sizes]
    seconds = 1 + sum(count * (_ESTIMATE_MESSAGE_S / 4 + size / _ESTIMATE_BYTES_PER_S) for size, count in messages)
    return mpi_pair.plan(job, seconds, sum(size * count for size, count in messages))


def _loop(pair: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    warm, iterations = _repeats(size)
    samples = pair.latency(out, into, size, warm=warm, iterations=iterations)
    return Timed(samples, size * (warm + iterations), {"iterations": iterations, "warm_up": warm})


def _run(rank: Rank) -> Iterator[Result]:
    return mpi_pair.run(rank, BENCHMARK, "latency_s", _loop)


BENCHMARK = Benchmark(
    name="mpi_latency",
    summary="MPI ping-pong between two ranks",
    method="OSU osu_latency 7.4: blocking ping-pong, timer inside the loop, half the round trip",
    quantities=("latency_s",),
    ranks=2,
    plan=_plan,
    run=_run,
    options=mpi_pair.OPTIONS,
    variants=mpi_pair.variants,
    between_hosts=mpi_pair.between_hosts,
    needs_mpi=True,
)
