"""The two ways in which a drive reaches a GPU's memory: NVIDIA's nvidia-fs, and the kernel's own PCI P2PDMA.

nvidia-fs needs its module and an IOMMU that is off or passes addresses through; P2PDMA needs Linux 6.2, open kernel
modules, a GPU of Ampere or later, no NVMe multipathing, and on x86 a static BAR1 (NVIDIA, GPUDirect Storage
Troubleshooting Guide, also its NVMe P2PDMA Troubleshooting). `gdscheck -p` checks the same, and reads cufile.json.
"""

from __future__ import annotations

from railwright.checks.check import Prerequisite, Way
from railwright.checks.host_settings import is_arm, setting
from railwright.checks.ways import open_module, require_version, way
from railwright.limits.limit import Constant, Source
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import nvidia_gpus
from railwright.topology.settings import IOMMU_DOMAIN, IOMMU_OFF

_SOURCE = Source("NVIDIA, GPUDirect Storage Troubleshooting Guide", "NVMe P2PDMA Troubleshooting")
_LINUX = (Constant(6, "Linux version, major", _SOURCE), Constant(2, "Linux version, minor", _SOURCE))
_AMPERE = (Constant(8, "compute capability, major", _SOURCE), Constant(0, "compute capability, minor", _SOURCE))
_PASSED_THROUGH = frozenset({"identity", IOMMU_OFF})


def nvme_drives(topology: Topology) -> tuple[Device, ...]:
    """Return the NVMe drives that have a PCI address."""
    return tuple(drive for drive in topology.of_kind("drive") if drive.address and drive.id.startswith("nvme"))


def storage_ways(topology: Topology) -> tuple[Way, ...]:
    """Return both ways, nvidia-fs first; empty for a description or without an NVIDIA GPU and an NVMe drive."""
    gpus, drives = nvidia_gpus(topology), nvme_drives(topology)
    if topology.is_described or not gpus or not drives:
        return ()
    modules = setting(topology, "modules")
    loaded = "nvidia_fs" in str(modules or "").split()
    multipath, bar1 = (setting(topology, name) for name in ("nvme_multipath", "static_bar1"))
    capabilities = dict.fromkeys(gpu.facts.get("compute_capability") for gpu in gpus)
    return (
        way(
            "nvidia-fs",
            (
                Prerequisite(what="nvidia-fs is loaded", there=loaded if modules else None, seen="/proc/modules"),
                _require_no_translation((*gpus, *drives)),
            ),
        ),
        way(
            "PCI P2PDMA",
            (
                require_version("Linux", _LINUX, setting(topology, "kernel")),
                open_module(topology),
                *(require_version("compute capability", _AMPERE, capability) for capability in capabilities),
                Prerequisite(
                    what="NVMe multipathing is off",
                    there=None if multipath is None else multipath != "Y",
                    seen="/sys/module/nvme_core/parameters/multipath",
                ),
                *((_require_static_bar1(bar1),) if not is_arm(topology) else ()),
            ),
        ),
    )


def _require_static_bar1(has_static_bar1: object) -> Prerequisite:
    there = has_static_bar1 if isinstance(has_static_bar1, bool) else None
    return Prerequisite(what="NVIDIA's driver has a static BAR1", there=there, seen="/proc/driver/nvidia/params")


def _require_no_translation(devices: tuple[Device, ...]) -> Prerequisite:
    domains = [device.facts.get(IOMMU_DOMAIN) for device in devices]
    there = None if None in domains else set(domains) <= _PASSED_THROUGH
    return Prerequisite(
        what="the IOMMU is off or passes addresses through", there=there, seen="/sys/kernel/iommu_groups"
    )
