"""NCCL send and receive in a ring over the GPUs of one host: each rank sends to the next."""

from __future__ import annotations

from railwright.benchmarks import nccl_collective

BENCHMARK = nccl_collective.benchmark(
    "send_recv", "NCCL send and receive in a ring: each rank sends to the next", nccl_collective.ALL_SIZES
)
