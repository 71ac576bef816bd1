"""The latency of a cache line between two cores: the lower limit for any message between them."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import Options
from railwright.benchmarks.record import complete
from railwright.native import memory
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.results.workload import Unlimited

_ROUND_TRIPS_PER_SAMPLE = 100
_SAMPLES = 1000


def _plan(job: Job[Options, Case]) -> Plan:
    waived = "" if len(job.cpus) > 1 else "at least 2 usable CPUs are needed, got 1"
    return Plan(path=job.rank_path(), seconds=0.3, memory_bytes=4096, waived=waived)


def _run(rank: Rank[Options, Case]) -> Iterator[Result]:
    job = rank.job
    cpu, partner = job.find_cpu(0), job.find_cpu(1)
    rank.step(f"core_latency CPU {cpu} to CPU {partner}")
    samples = memory.core_latency(cpu, partner, inner=_ROUND_TRIPS_PER_SAMPLE, samples=_SAMPLES)
    trips = 2 * _ROUND_TRIPS_PER_SAMPLE * _SAMPLES
    yield complete(
        BENCHMARK.blank(job.rank_path()),  # between the CPUs of ranks 0 and 1, whose messages it bounds from below
        samples,
        settings={"round_trips_per_sample": _ROUND_TRIPS_PER_SAMPLE, "cpus": f"{cpu},{partner}"},
        # Each thread continues only after it reads exactly the number that the other sends next.
        verification=Verification(
            method="each received counter must be one higher", bytes_checked=4 * trips, bytes_wrong=0
        ),
    )


BENCHMARK = Benchmark(
    name="core_latency",
    summary="one cache line from core to core",
    method="two bound threads pass a counter back and forth; half the round trip, mean of 100",
    results=(
        Declaration(
            "latency_s",
            Unlimited(why="no document gives the latency between two cores"),
            supplies="cache line",
            is_reference=True,
        ),
    ),
    options=Options,
    plan=_plan,
    run=_run,
)
