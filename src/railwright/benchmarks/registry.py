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
    gpu_copy,
    gpu_file_read,
    gpu_file_write,
    gpu_latency,
    kv_cache,
    kv_file,
    kv_transfer,
    kv_vram,
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
    nccl_all_gather,
    nccl_all_reduce,
    nccl_all_to_all,
    nccl_broadcast,
    nccl_reduce_scatter,
    nccl_send_recv,
    train_step,
)
from railwright.benchmarks.base import Benchmark
from railwright.errors import unknown_name

BENCHMARKS: tuple[Benchmark, ...] = (
    memory_stream.BENCHMARK,
    memory_copy.BENCHMARK,
    core_latency.BENCHMARK,
    gpu_copy.BENCHMARK,
    gpu_latency.BENCHMARK,
    mpi_latency.BENCHMARK,
    mpi_bandwidth.BENCHMARK,
    kv_transfer.BENCHMARK,
    kv_vram.BENCHMARK,
    device_read.BENCHMARK,
    file_read.BENCHMARK,
    nccl_all_reduce.BENCHMARK,
    nccl_all_gather.BENCHMARK,
    nccl_reduce_scatter.BENCHMARK,
    nccl_all_to_all.BENCHMARK,
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
    gpu_file_read.BENCHMARK,
    gpu_file_write.BENCHMARK,
    nccl_send_recv.BENCHMARK,
    nccl_broadcast.BENCHMARK,
    train_step.BENCHMARK,
)

EVERY = BENCHMARKS + ON_REQUEST


def find(name: str) -> Benchmark:
    """The benchmark of that name. Raises UsageError with the nearest names."""
    for benchmark in EVERY:
        if benchmark.name == name:
            return benchmark
    raise unknown_name("benchmark", name, [benchmark.name for benchmark in EVERY])
