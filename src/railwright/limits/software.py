"""Limits set by NCCL's rules rather than by hardware, reported as software."""

from __future__ import annotations

from railwright.limits.flow import solve
from railwright.limits.limit import Constant
from railwright.limits.sources import NCCL_2409, NCCL_PXN
from railwright.limits.traffic import build_problem, domains
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import PathKind, Topology
from railwright.topology.paths import KIND_ORDER, Affinity
from railwright.units import format_bandwidth

_STEP_US = (
    Constant(10, "us per step of one connection, fast", NCCL_2409),
    Constant(12, "us per step of one connection, slow", NCCL_2409),
)
_CHUNK_BYTES = Constant(128 * 1024, "bytes in flight for each step of a connection", NCCL_2409)
_NEAR_KINDS = KIND_ORDER[: KIND_ORDER.index("P2C") + 1]
"""The path kinds over which NCCL uses GPUDirect RDMA by default."""


def software_limits(cluster: Cluster, collective: str, algorithm: str) -> tuple[str, ...]:
    """Return a sentence with its source for each rule of the software that limits this collective."""
    if domains(cluster) < 2 or not ports(cluster.host):
        return ()
    found = []
    affinity = Affinity(cluster.host)
    far = [gpu.id for gpu in affinity.gpus if nearest_nic_kind(affinity, gpu.id) not in _NEAR_KINDS]
    if far and algorithm == "direct":
        found.append(
            f"receivers with no NIC under their PCIe switch ({_format_names(far)}) take their data through the CPU: PXN"
            f" helps the sender only ({NCCL_PXN}); expect less there than the limit"
        )
    if algorithm == "direct":
        without = solve(build_problem(cluster, collective, "direct", relay="none")).rate_bytes_per_s
        found.append(f"with PXN off (NCCL_PXN_DISABLE=1) the limit is {format_bandwidth(without)} algbw")
    if collective in ("send_recv", "all_to_all"):
        found.append(
            "one connection keeps a fixed number of bytes in flight, so its rate is at most those bytes over the time"
            f" of a step: {format_bandwidth(_CHUNK_BYTES.value / (_STEP_US[1].value * 1e-6))} to"
            f" {format_bandwidth(_CHUNK_BYTES.value / (_STEP_US[0].value * 1e-6))} for a connection of one channel"
            f" with 128 KiB chunks ({NCCL_2409}); NCCL_NCHANNELS_PER_NET_PEER and NCCL_P2P_NET_CHUNKSIZE raise it"
        )
    return tuple(found)


def nearest_nic_kind(affinity: Affinity, gpu: str) -> PathKind | None:
    """Return the kind of path from a GPU to its nearest NIC; None if it reaches none."""
    return next((affinity.kind(gpu, nic) for nic in affinity.nearest(gpu)), None)


def far_gpus(host: Topology) -> list[tuple[str, PathKind]]:
    """Return the GPUs whose nearest NIC is beyond the CPU, each with the kind of the path to it."""
    affinity = Affinity(host)
    kinds = ((gpu.id, nearest_nic_kind(affinity, gpu.id)) for gpu in affinity.gpus)
    return [(gpu, kind) for gpu, kind in kinds if kind is not None and kind not in _NEAR_KINDS]


def _format_names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:8])} ..."
