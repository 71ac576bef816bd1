"""MPI latency between two ranks: half the round trip of a blocking ping-pong, as osu_latency measures it."""

from __future__ import annotations

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import PairJob, Timed
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint
from railwright.results.bounds import CacheLine, Declaration, PlainSockets

_ESTIMATE_BYTES_PER_S = 3e9
_ESTIMATE_MESSAGE_S = 5e-6


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) iterations: OSU 7.4's defaults."""
    return (10, 1000) if size > pair.LARGE_BYTES else (100, 10_000)


def _plan(job: PairJob) -> Plan:
    messages = [(size, 2 * sum(_repeats(size))) for size in job.options.sizes]
    return pair.plan(job, messages, _ESTIMATE_MESSAGE_S, _ESTIMATE_BYTES_PER_S)


def _loop(between: PointToPoint, out: Buffer, into: Buffer, size: int) -> Timed:
    warm, iterations = _repeats(size)
    samples = between.latency(out, into, size, warm=warm, iterations=iterations)
    return Timed(samples, size * (warm + iterations), {"iterations": iterations, "warm_up": warm})


BENCHMARK = pair.benchmark(
    name="mpi_latency",
    summary="MPI ping-pong between two ranks",
    method="OSU osu_latency 7.4: blocking ping-pong, timer inside the loop, half the round trip",
    results=(
        Declaration("latency_s", CacheLine(for_messages=True), {"transport": ("shm",)}),
        Declaration("latency_s", PlainSockets()),
    ),
    plan=_plan,
    loop=_loop,
)
