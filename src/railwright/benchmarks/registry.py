"""The one registry of benchmarks, in the order in which they run: ceilings before what they hold up.

`prove` runs BENCHMARKS; those ON_REQUEST only `run NAME` does, because they take long, wear something out, or have no
limit inside one host and so would keep every `prove` from being all ok.
"""

from __future__ import annotations

from railwright.benchmarks import (
    core_latency,
    device_read,
    file_read,
    file_write,
    kv_cache,
    kv_file,
    kv_transfer,
    memory_copy,
    memory_stream,
    mpi_all_gather,
    mpi_all_reduce,
    mpi_all_to_all,
    mpi_bandwidth,
    mpi_bidirectional,
    mpi_latency,
    mpi_message_rate,
    mpi_reduce_scatter,
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

ON_REQUEST: tuple[Benchmark, ...] = (
    mpi_message_rate.BENCHMARK,
    mpi_bidirectional.BENCHMARK,
    mpi_all_reduce.BENCHMARK,
    mpi_all_gather.BENCHMARK,
    mpi_reduce_scatter.BENCHMARK,
    mpi_all_to_all.BENCHMARK,
    kv_cache.BENCHMARK,
    kv_file.BENCHMARK,
    file_write.BENCHMARK,
)

EVERY = BENCHMARKS + ON_REQUEST


def find(name: str) -> Benchmark:
    """The benchmark of that name. Raises UsageError with the nearest names."""
    for benchmark in EVERY:
        if benchmark.name == name:
            return benchmark
    raise unknown_name("benchmark", name, [benchmark.name for benchmark in EVERY])
