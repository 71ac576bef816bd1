"""RCCL on AMD's GPUs: its tables of latencies for MI300X, and its choice of algorithms.

The tables are curves fitted to a cluster (src/graph/tuning.cc, tuning_model_5). The latency of Ring and Simple over
hosts, 320 us, exists to prevent their choice and is left out. LL128 is off on MI300X.
"""

from __future__ import annotations

from railwright.limits.limit import Constant
from railwright.limits.sources import RCCL_MEASURED, RCCL_POLLARA, RCCL_TUNING
from railwright.topology.cluster import Cluster

LATENCY_US: dict[tuple[str, str, str], Constant] = {
    (algorithm, medium, protocol): Constant(us, "us", RCCL_TUNING)
    for algorithm, medium, times in (
        ("tree", "base", {"LL": 12.0, "Simple": 17.0}),
        ("ring", "base", {"LL": 12.0, "Simple": 17.0}),
        ("tree", "NVLink", {"LL": 0.9, "Simple": 2.3}),
        ("ring", "NVLink", {"LL": 0.8, "Simple": 2.1}),
        ("tree", "PCIe", {"LL": 2.2, "Simple": 5.7}),
        ("ring", "PCIe", {"LL": 2.2, "Simple": 5.7}),
        ("tree", "network", {"LL": 10.5, "Simple": 25.0}),
        ("ring", "network", {"LL": 9.5, "Simple": 25.0}),
    )
    for protocol, us in times.items()
}
LL_SHARE = {
    "tree": Constant(0.06, "of the bandwidth, Tree and LL", RCCL_TUNING),
    "ring": Constant(0.08, "of the bandwidth, Ring and LL", RCCL_TUNING),
}
TREE_LOW = Constant(0.59, "of the ring's rate on the same links", RCCL_TUNING)
TREE_UP_TO_BYTES = Constant(256 * 2**20, "bytes, up to which a ring over hosts counts a tenth and RCCL takes the tree",
                            RCCL_TUNING)  # fmt: skip
LONGER = (
    Constant(0.7, "times as long over hosts, at least", RCCL_POLLARA),
    Constant(4.0, "times longer over hosts, at most", RCCL_MEASURED),
)


def is_used(cluster: Cluster) -> bool:
    """Report whether the GPUs are AMD's."""
    return cluster.host.has_amd_gpus
