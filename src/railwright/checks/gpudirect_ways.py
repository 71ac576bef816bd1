"""The two ways in which a NIC reaches a GPU's memory, PeerDirect and dma-buf, with their prerequisites.

PeerDirect: nvidia-peermem registers with an RDMA core that accepts peer clients, as those of MLNX_OFED, DOCA-OFED
and some distributions do (NVIDIA GPU Operator, GPUDirect RDMA and GPUDirect Storage; nv_peer_mem's README).
dma-buf: the kernel exports GPU memory, which needs Linux 5.12, open kernel modules, CUDA 11.7 and a GPU of Turing or
later (same page). The CUDA driver's CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED decides if it was read.
The RDMA core counts the regions of each peer client, which shows the use of PeerDirect; only a library's own log
shows the use of dma-bufs.
"""

from __future__ import annotations

from railwright.checks.check import Prerequisite, Way
from railwright.checks.host_settings import nonnegative_integer, setting
from railwright.checks.ways import open_module, require_version, way
from railwright.limits.limit import Constant, Source
from railwright.topology.devices import Topology
from railwright.topology.gpus import is_nvidia
from railwright.topology.settings import NONE

_SOURCE = Source(
    "NVIDIA GPU Operator, GPUDirect RDMA and GPUDirect Storage",
    "DMA-BUF needs Linux 5.12 or later, the open kernel modules, CUDA 11.7 and a GPU of Turing or later",
)
LINUX = (Constant(5, "Linux version, major", _SOURCE), Constant(12, "Linux version, minor", _SOURCE))
CUDA = (Constant(11, "CUDA version, major", _SOURCE), Constant(7, "CUDA version, minor", _SOURCE))
TURING = (Constant(7, "compute capability, major", _SOURCE), Constant(5, "compute capability, minor", _SOURCE))
PEERMEM = frozenset({"nvidia_peermem", "nv_peer_mem"})


def gpudirect_ways(topology: Topology) -> tuple[Way, ...]:
    """Return both ways, PeerDirect first; empty for a description or without an NVIDIA GPU."""
    gpus = [gpu for gpu in topology.of_kind("gpu") if is_nvidia(gpu)]
    if topology.is_described or not gpus or not topology.of_kind("host"):
        return ()
    attributes = {gpu.facts.get("dma_buf") for gpu in gpus}
    exports = None if None in attributes else attributes == {True}
    capabilities = [gpu.facts.get("compute_capability") for gpu in gpus]
    return (
        way("PeerDirect", _list_peer_direct_needs(topology), used=_describe_regions(topology)),
        way(
            "dma-buf",
            (
                require_version("Linux", LINUX, setting(topology, "kernel")),
                open_module(topology),
                require_version("a driver for CUDA", CUDA, setting(topology, "cuda")),
                *(
                    require_version("compute capability", TURING, capability)
                    for capability in dict.fromkeys(capabilities)
                ),
                Prerequisite(
                    what="the CUDA driver exports GPU memory as dma-buf",
                    there=exports,
                    seen="CUDA device attribute",
                ),
            ),
            decided=exports,
        ),
    )


def _describe_regions(topology: Topology) -> str:
    """Return the evidence that PeerDirect is in use, or an empty string. The use of dma-bufs is not counted."""
    count = nonnegative_integer(setting(topology, "peer_regions"))
    return f"{count} regions of GPU memory are registered now" if count else ""


def _list_peer_direct_needs(topology: Topology) -> tuple[Prerequisite, ...]:
    modules = setting(topology, "modules")
    loaded = set(str(modules or "").split()) & PEERMEM
    ofed = setting(topology, "ofed")
    released = ofed if isinstance(ofed, str) and ofed != NONE else ""
    clients = setting(topology, "peer_clients")
    listed = clients if isinstance(clients, str) and clients != NONE else ""
    core = f"its clients: {listed}" if listed else f"MLNX_OFED or DOCA-OFED {released}" if released else ""
    return (
        Prerequisite(
            what="nvidia-peermem is loaded",
            there=bool(loaded) if modules else None,
            seen=f"/proc/modules{': ' + ', '.join(sorted(loaded)) if loaded else ''}",
        ),
        # The module loads only if the RDMA core accepts peer clients, as some distributions' own cores also do.
        Prerequisite(
            what="the RDMA core accepts peer clients (ib_register_peer_memory_client)",
            there=True if core or loaded else None,
            seen=core or ("nvidia-peermem was loaded" if loaded else ""),
        ),
    )
