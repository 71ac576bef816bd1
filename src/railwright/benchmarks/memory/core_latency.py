"""One cache line between two cores: the least time in which any message can pass from one core to another."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.native import memory
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise

_ROUND_TRIPS_PER_SAMPLE = 100
_SAMPLES = 1000


def _plan(job: Job) -> Plan:
    waived = "" if len(job.cpus) > 1 else "only one CPU may be used, and the line needs two"
    return Plan(path=_path(job), seconds=0.3, memory_bytes=4096, waived=waived)


def _path(job: Job) -> str:
    """Between the CPUs of ranks 0 and 1, whose messages this is the floor of."""
    return f"{job.memory_of(0)}>{job.memory_of(1)}"


def _run(rank: Rank) -> Iterator[Result]:
    job = rank.job
    cpu, partner = job.cpu_of(0), job.cpu_of(1)
    rank.step(f"core_latency CPU {cpu} to CPU {partner}")
    samples = memory.core_latency(cpu, partner, inner=_ROUND_TRIPS_PER_SAMPLE, samples=_SAMPLES)
    trips = 2 * _ROUND_TRIPS_PER_SAMPLE * _SAMPLES
    yield Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        path=_path(job),
        method=BENCHMARK.method,
        settings={"round_trips_per_sample": _ROUND_TRIPS_PER_SAMPLE, "cpus": f"{cpu},{partner}"},
        samples=tuple(samples),
        summary=summarise(samples),
        # Both threads go on only when they see the very number that the other has to send next.
        verification=Verification(
            method="the counter must arrive raised by one", bytes_checked=4 * trips, bytes_wrong=0
        ),
    )


BENCHMARK = Benchmark(
    name="core_latency",
    summary="one cache line from core to core",
    method="two bound threads pass a counter back and forth; half the round trip, mean of 100",
    quantities=("latency_s",),
    ranks=1,
    plan=_plan,
    run=_run,
)
