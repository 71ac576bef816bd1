"""NCCL all_reduce over the GPUs of one host: the sum of all ranks' floats, on every rank."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark("all_reduce", "NCCL all_reduce: the sum of all ranks' floats, on every rank")
