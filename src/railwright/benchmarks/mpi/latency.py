"""MPI latency between two ranks: half the round trip of a blocking ping-pong, as osu_latency measures it."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import PairJob, PairOptions, PairRank, Timed, Transport
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.bounds import CacheLine, Declaration
from railwright.results.model import Result

_ESTIMATE_BYTES_PER_S = 3e9
_ESTIMATE_MESSAGE_S = 20e-6


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) iterations: OSU 7.4's defaults."""
    return (10, 1000) if size > pair.LARGE_BYTES else (100, 10_000)


def _plan(job: PairJob) -> Plan:
    messages = [(size, 2 * sum(_repeats(size))) for size in job.options.sizes]
    seconds = 1 + sum(count * (_ESTIMATE_MESSAGE_S / 4 + size / _ESTIMATE_BYTES_PER_S) for size, count in messages)
    return pair.plan(job, seconds, sum(size * count for size, count in messages))


def _loop(between: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    warm, iterations = _repeats(size)
    samples = between.latency(out, into, size, warm=warm, iterations=iterations)
    return Timed(samples, size * (warm + iterations), {"iterations": iterations, "warm_up": warm})


def _run(rank: PairRank) -> Iterator[Result]:
    return pair.run(rank, BENCHMARK, _loop)


BENCHMARK = Benchmark(
    name="mpi_latency",
    summary="MPI ping-pong between two ranks",
    method="OSU osu_latency 7.4: blocking ping-pong, timer inside the loop, half the round trip",
    results=(
        Declaration("latency_s", CacheLine(for_messages=True), {"transport": ("shm",)}),
        Declaration("latency_s", CacheLine()),
    ),
    options=PairOptions,
    case=Transport,
    launches=pair.launches,
    plan=_plan,
    run=_run,
    spans_hosts=True,
)
