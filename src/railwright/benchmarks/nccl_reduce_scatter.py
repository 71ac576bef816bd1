"""NCCL reduce_scatter over the GPUs of one host: the sum of all ranks' floats, a share on each rank."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark(
    "reduce_scatter", "NCCL reduce_scatter: the sum of all ranks' floats, a share on each rank"
)
