"""NCCL broadcast over the GPUs of one host: the first rank's floats, on every rank."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark(
    "broadcast", "NCCL broadcast: the first rank's floats, on every rank", nccl_collective.ALL_SIZES
)
