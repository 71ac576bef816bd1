"""Creates jobs as the parent does, for tests that plan or run a job directly."""

from __future__ import annotations

from typing import Any

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob
from railwright.benchmarks.job import Job, Machine
from railwright.topology.devices import Topology


def jobs_of(
    benchmark: AnyBenchmark, topology: Topology, cpus: tuple[int, ...] = (0, 1), given: dict[str, str] | None = None,
    **machine: Any,
) -> list[AnyJob]:  # fmt: skip
    """Return a job for each launch of a benchmark with these options."""
    where = Machine(topology=topology, cpus=cpus, **machine)
    options = benchmark.parse(given or {})
    return [
        Job(benchmark=benchmark.name, options=options, launch=launch, machine=where)
        for launch in benchmark.launches(options, where)
    ]


def job_of(
    benchmark: AnyBenchmark, topology: Topology, cpus: tuple[int, ...] = (0, 1), given: dict[str, str] | None = None,
    **machine: Any,
) -> AnyJob:  # fmt: skip
    """Return the first of `jobs_of`."""
    return jobs_of(benchmark, topology, cpus, given, **machine)[0]
