"""MPI latency between two ranks: half the round trip of a blocking ping-pong, as osu_latency measures it."""

from __future__ import annotations

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.fabric import pings
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import AnyBuffer, PairJob, PairRank, Timed
from railwright.native.mpi import PointToPoint
from railwright.results.declarations import Declaration
from railwright.results.workload import Message, Unlimited

_ESTIMATE_BYTES_PER_S = 3e9
_ESTIMATE_MESSAGE_S = 5e-6
_ON_GPUS = {"memory": ("gpu",)}


def _plan(job: PairJob) -> Plan:
    messages = [(size, 2 * sum(pings(job, size))) for size in job.options.sizes]
    return pair.plan(job, messages, _ESTIMATE_MESSAGE_S, _ESTIMATE_BYTES_PER_S)


def _loop(rank: PairRank, between: PointToPoint, out: AnyBuffer, into: AnyBuffer, size: int) -> Timed:
    warm, iterations = pings(rank.job, size)
    samples = between.latency(out, into, size, warm=warm, iterations=iterations)
    return Timed(samples, size * (warm + iterations), {"iterations": iterations, "warm_up": warm})


BENCHMARK = pair.benchmark(
    name="mpi_latency",
    summary="MPI ping-pong between two ranks",
    method="OSU osu_latency 7.4: blocking ping-pong, timer inside the loop, half the round trip",
    results=(
        # The times of GPU copies would bound it, and would be measured for every run of it.
        Declaration("latency_s", Unlimited(why="no document gives the time of an MPI message between GPUs"), _ON_GPUS),
        Declaration("latency_s", Message(over="shm", one_at_a_time=True), {"transport": ("shm",)}),
        Declaration("latency_s", Message(over="tcp", one_at_a_time=True)),
    ),
    plan=_plan,
    loop=_loop,
)
