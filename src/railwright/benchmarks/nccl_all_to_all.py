"""NCCL all-to-all over the GPUs of one host: a share from every rank to every rank."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark("all_to_all", "NCCL all-to-all: a share from every rank to every rank")
