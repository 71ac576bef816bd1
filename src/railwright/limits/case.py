"""What a collective is computed for: the cluster, and what the software does there."""

from __future__ import annotations

import math

import msgspec

from railwright.limits.flow_graph import Relay
from railwright.topology.cluster import Cluster


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with the choices of the software. Faults change it to say what would be measured if they were there."""

    cluster: Cluster
    algorithm: str = "auto"
    """`ring`, `tree` ..., or `auto` for the best that NCCL has there."""
    relay: Relay = "sender"
    """Who may hand data to a peer nearer to a NIC: NCCL's PXN is `sender`, switched off it is `none`."""
    port_cap_bytes_per_s: float = math.inf
    """What one NIC carries at most because of the software, whatever its line rate."""
    gpu_cap_bytes_per_s: float = math.inf
    """What one GPU carries to others of its host at most because of the software."""
    through_memory: bool = False
    """Whether GPUs of a host pass on their data through its memory, as where they may not reach each other."""
    to_memory: bool = False
    """Whether copies between GPUs and their host's memory count as well, which cross PCIe wherever there is NVLink."""
