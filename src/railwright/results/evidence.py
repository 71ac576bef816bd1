"""Claims of evidence that several layers know by name."""

from __future__ import annotations

from railwright.results.records import Result

NETWORK = "network"
"""NCCL's networks between hosts, such as `NET/IB` or `NET/Socket`."""
UCX_PROTOCOL = "ucx_protocol"
"""The transport that UCX chose, such as `rc_mlx5/mlx5_0:1`."""
RDMA_COUNTERS = "rdma_counters"
"""Whether counters of loss, congestion or damage moved on RDMA ports: `clean`, `moved` or `unknown`."""
GPU_REGISTRATION = "gpu_registration"
"""The ways in which a NIC could register GPU memory: `dma-buf`, `peermem`, both, or `none`."""
RDMA_DEVICES = "rdma_devices"
"""RDMA devices that NCCL listed."""


def find_claim(result: Result, claim: str) -> str:
    """Return the value of a claim, or an empty string if the result has no evidence of it."""
    return next((item.value for item in result.evidence if item.claim == claim), "")
