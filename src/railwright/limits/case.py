"""The cluster that a collective is computed for, with the choices of its software."""

from __future__ import annotations

import math

import msgspec

from railwright.limits.flow_graph import Relay
from railwright.topology.cluster import Cluster


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with the choices of its software. A fault is a changed case, with the limits that it would leave."""

    cluster: Cluster
    algorithm: str = "auto"
    """`ring`, `tree` ..., or `auto` for NCCL's best algorithm there."""
    relay: Relay = "sender"
    """The side whose GPUs may hand data to a peer nearer to a NIC: `sender` with NCCL's PXN, `none` with PXN off."""
    port_cap_bytes_per_s: float = math.inf
    """The maximum rate at which software lets one NIC port run, whatever its line rate."""
    gpu_cap_bytes_per_s: float = math.inf
    """The maximum rate at which software lets one GPU exchange data with others of its host."""
    through_memory: bool = False
    """Whether data between GPUs of a host passes through host memory, as it does without peer-to-peer access."""
    to_memory: bool = False
    """Whether copies between GPUs and host memory count as well. They cross PCIe even with NVLink."""
