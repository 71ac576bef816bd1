"""The one registry of benchmarks, in the order in which `prove` runs them: ceilings before what they hold up."""

from __future__ import annotations

from railwright.benchmarks import (
    core_latency,
    device_read,
    file_read,
    kv_transfer,
    memory_copy,
    memory_stream,
    mpi_bandwidth,
    mpi_latency,
)
from railwright.benchmarks.base import Benchmark
from railwright.errors import unknown_name

BENCHMARKS: tuple[Benchmark, ...] = (
    memory_stream.BENCHMARK,
    memory_copy.BENCHMARK,
    core_latency.BENCHMARK,
    mpi_latency.BENCHMARK,
    mpi_bandwidth.BENCHMARK,
    kv_transfer.BENCHMARK,
    device_read.BENCHMARK,
    file_read.BENCHMARK,
)


def find(name: str) -> Benchmark:
    """The benchmark of that name. Raises UsageError with the nearest names."""
    for benchmark in BENCHMARKS:
        if benchmark.name == name:
            return benchmark
    raise unknown_name("benchmark", name, [benchmark.name for benchmark in BENCHMARKS])
