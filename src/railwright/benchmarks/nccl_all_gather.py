"""NCCL all_gather over the GPUs of one host: every rank's share, on every rank."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark("all_gather", "NCCL all_gather: every rank's share, on every rank")
