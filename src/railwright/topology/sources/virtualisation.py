"""Virtual machine and container detection, and the kernel settings that change data paths."""

from __future__ import annotations

import re

from railwright.topology.devices import Scalar
from railwright.topology.sources import text
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import Root, Unreadable

_DMI = "sys/devices/virtual/dmi/id"
_ACPI_FACP = "sys/firmware/acpi/tables/FACP"

# Text in the DMI vendor, product or BIOS fields -> hypervisor, cloud ("" = unknown).
_DMI_VENDORS: tuple[tuple[str, str, str], ...] = (
    ("Amazon EC2", "kvm", "aws"),
    ("Google Compute Engine", "kvm", "gcp"),
    ("OracleCloud", "kvm", "oci"),
    ("Alibaba Cloud", "kvm", "alibaba"),
    ("KubeVirt", "kvm", ""),
    ("OpenStack", "kvm", ""),
    ("Microsoft Corporation Virtual Machine", "hyperv", ""),
    ("VMware", "vmware", ""),
    ("QEMU", "kvm", ""),
    ("Bochs", "kvm", ""),
    ("Xen", "xen", ""),
    ("VirtualBox", "virtualbox", ""),
    ("Parallels", "parallels", ""),
    ("Apple Virtualization", "apple", ""),
)
_FIRECRACKER_OEM = b"FIRECK"  # ACPI OEM id that Firecracker's own tables carry
CONTAINERS = ("docker", "kubepods", "lxc", "libpod", "crio", "garden")

# Words of the kernel command line that change the rate of a data path.
PARAMETER = re.compile(
    r"(?:intel_iommu|amd_iommu|iommu|iommu\.\w+|pci|pcie_\w+|numa_balancing|default_hugepagesz|hugepagesz|hugepages"
    r"|transparent_hugepage|isolcpus|nohz_full|intel_idle\.max_cstate|processor\.max_cstate|idle|mitigations"
    r"|nvme\.\w+|nvme_core\.\w+|swiotlb|pci=\w+)(?:=[\w.,:-]{1,100})?"
)
MODULE = re.compile(
    r"nvidia(_\w+)?|nv_peer_mem|gdrdrv|amdgpu|mlx5_\w+|mlx4_\w+|ib_\w+|rdma_\w+|irdma|bnxt_\w+|efa|ena|ice|nvme_rdma"
    r"|openvswitch|vfio_pci|smc"
)


def read_virtualisation(root: Root, notes: Notes, *, cpu_says_virtual: bool) -> dict[str, Scalar | None]:
    """Return facts of the host: `is_virtual`, `hypervisor`, `cloud`, `container`, `product` and kernel settings."""
    names = ("sys_vendor", "product_name", "bios_vendor", "chassis_asset_tag")
    vendor, product_name, bios, tag = (text.word(root.read(f"{_DMI}/{name}")) for name in names)
    product = f"{vendor} {product_name}".strip()
    if not product:
        notes.missing("machine model", f"the firmware shows no DMI data (/{_DMI})")
    everything = " ".join((product, bios, tag if tag in ("OracleCloud.com", "Amazon EC2") else ""))
    hypervisor, cloud = next(((found, where) for word, found, where in _DMI_VENDORS if word in everything), ("", ""))
    acpi = root.read_bytes(_ACPI_FACP)
    if isinstance(acpi, bytes) and acpi[10:16] == _FIRECRACKER_OEM:
        hypervisor = "firecracker"
    xen = text.word(root.read("sys/hypervisor/type"))
    hypervisor = hypervisor or re.sub(r"[^a-z0-9]", "", xen.lower())
    # An EC2 `.metal` machine has the cloud's name in its firmware and no hypervisor under it.
    is_virtual = cpu_says_virtual or bool(hypervisor and not cloud)
    if is_virtual and not hypervisor and isinstance(acpi, Unreadable):
        notes.unreadable("hypervisor", acpi)
    return {
        "is_virtual": is_virtual or None,
        "hypervisor": (hypervisor or "unknown") if is_virtual else None,
        "cloud": cloud,
        "container": _container(root),
        "product": product,
        "kernel": _kernel(root),
        "kernel_parameters": " ".join(_select_words(root, "proc/cmdline", PARAMETER)),
        "modules": " ".join(_select_words(root, "proc/modules", MODULE)),
    }


def _container(root: Root) -> str:
    """Return the container system: Docker leaves a file, others a name in the control group of process 1."""
    for path, name in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if not isinstance(root.read(path), Unreadable):
            return name
    groups = root.text("proc/1/cgroup")
    return next((name for name in CONTAINERS if name in groups), "")


def _kernel(root: Root) -> str:
    match = re.match(r"Linux version (\S{1,80})", text.word(root.read("proc/version")))
    return match.group(1) if match else ""


def _select_words(root: Root, path: str, wanted: re.Pattern[str]) -> list[str]:
    content = root.text(path)
    candidates = content.split() if path == "proc/cmdline" else [line.split(" ")[0] for line in content.splitlines()]
    return [word for word in candidates[:4096] if wanted.fullmatch(word)]
