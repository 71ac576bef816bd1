"""Names of the relevant PCI devices, for machines without the driver that would name them.

Facts from the PCI ID repository (pci-ids.ucw.cz, state of 2026-08); compute capabilities from NVIDIA's "CUDA GPU
Compute Capability" page (developer.nvidia.com/cuda-gpus).
Names are shown to people. Only `compute_capability` is used elsewhere, as NCCL's topology file requires it.
"""

from __future__ import annotations

NVIDIA = 0x10DE
AMD = 0x1002
VIRTIO = 0x1AF4

_VENDORS = {
    NVIDIA: "NVIDIA",
    AMD: "AMD",
    0x1000: "Broadcom",
    0x10B5: "PLX",
    0x11F8: "Microchip",
    0x14E4: "Broadcom",
    0x15AD: "VMware",
    0x15B3: "NVIDIA Mellanox",
    VIRTIO: "virtio",
    0x1AE0: "Google",
    0x1D0F: "Amazon",
    0x1DD8: "AMD Pensando",
    0x1022: "AMD",
    0x8086: "Intel",
    0x144D: "Samsung",
    0x1344: "Micron",
    0x1E0F: "KIOXIA",
    0x1414: "Microsoft",
}

_NVIDIA_GPUS: dict[str, dict[int, str]] = {
    "6.0": {0x15F8: "Tesla P100 PCIe 16GB", 0x15F9: "Tesla P100 SXM2 16GB"},
    "7.0": {
        0x1DB1: "Tesla V100 SXM2 16GB",
        0x1DB4: "Tesla V100 PCIe 16GB",
        0x1DB5: "Tesla V100 SXM2 32GB",
        0x1DB6: "Tesla V100 PCIe 32GB",
    },
    "7.5": {0x1EB8: "Tesla T4"},
    "8.0": {
        0x20B0: "A100 SXM4 40GB",
        0x20B2: "A100 SXM4 80GB",
        0x20B3: "A100 SXM 64GB",
        0x20B5: "A100 PCIe 80GB",
        0x20B7: "A30 PCIe",
        0x20F1: "A100 PCIe 40GB",
        0x20F3: "A800 SXM4 80GB",
    },
    "8.6": {0x2204: "GeForce RTX 3090", 0x2230: "RTX A6000", 0x2235: "A40", 0x2236: "A10", 0x25B6: "A2 / A16"},
    "9.0": {
        0x2321: "H100 NVL 94GB",
        0x2324: "H800",
        0x2329: "H20",
        0x2330: "H100 SXM5 80GB",
        0x2331: "H100 PCIe",
        0x2335: "H200 SXM 141GB",
        0x2342: "GH200 120GB / 480GB",
        0x2348: "GH200 144GB",
    },
    "8.9": {0x2684: "GeForce RTX 4090", 0x26B1: "RTX 6000 Ada Generation", 0x26B5: "L40", 0x26B9: "L40S", 0x27B8: "L4"},
    "10.0": {0x2901: "B200", 0x2909: "HGX B200", 0x2941: "HGX GB200"},
    "12.0": {0x2B85: "GeForce RTX 5090", 0x2BB5: "RTX PRO 6000 Blackwell Server Edition"},
    "10.3": {0x3182: "B300 SXM6", 0x31C2: "GB300"},
}
"""NVIDIA's GPUs by compute capability."""

_DEVICES: dict[int, dict[int, str]] = {
    NVIDIA: {
        0x1AF1: "A100 NVSwitch",
        0x22A3: "H100 NVSwitch",
        **{device: name for gpus in _NVIDIA_GPUS.values() for device, name in gpus.items()},
    },
    AMD: {
        0x738C: "Instinct MI100",
        0x7408: "Instinct MI250X",
        0x740C: "Instinct MI250",
        0x740F: "Instinct MI210",
        0x74A0: "Instinct MI300A",
        0x74A1: "Instinct MI300X",
        0x74A5: "Instinct MI325X",
        0x75A0: "Instinct MI350X",
    },
    0x1000: {
        0xC010: "PEX880xx PCIe 4.0 switch",
        0xC012: "PEX880xx PCIe 4.0 switch",
        0xC030: "PEX890xx PCIe 5.0 switch",
    },
    0x10B5: {
        0x8747: "PEX 8747 PCIe 3.0 switch",
        0x8764: "PEX 8764 PCIe 3.0 switch",
        0x8796: "PEX 8796 PCIe 3.0 switch",
        0x9765: "PEX 9765 PCIe 3.0 switch",
        0x9797: "PEX 9797 PCIe 3.0 switch",
    },
    0x11F8: {0x4000: "Switchtec PFX 100xG4 PCIe 4.0 switch", 0x4036: "Switchtec PFX 36xG4 PCIe 4.0 switch"},
    0x14E4: {0x1657: "BCM5719", 0x165F: "BCM5720", 0x16D7: "BCM57414", 0x1750: "BCM57508", 0x1760: "BCM57608"},
    0x15AD: {0x07B0: "VMXNET3"},
    0x15B3: {
        0x1003: "ConnectX-3",
        0x1013: "ConnectX-4",
        0x1015: "ConnectX-4 Lx",
        0x1017: "ConnectX-5",
        0x1018: "ConnectX-5 VF",
        0x1019: "ConnectX-5 Ex",
        0x101B: "ConnectX-6",
        0x101C: "ConnectX-6 VF",
        0x101D: "ConnectX-6 Dx",
        0x101E: "ConnectX VF",
        0x101F: "ConnectX-6 Lx",
        0x1021: "ConnectX-7",
        0x1023: "ConnectX-8",
        0x1025: "ConnectX-9",
        0xA2D6: "BlueField-2 (ConnectX-6 Dx)",
        0xA2DC: "BlueField-3 (ConnectX-7)",
    },
    VIRTIO: {0x1000: "network", 0x1001: "block", 0x1041: "network", 0x1042: "block"},
    0x1AE0: {0x0042: "gVNIC"},
    0x1D0F: {0x8061: "NVMe EBS", 0xCD01: "NVMe SSD", 0xEC20: "ENA", **dict.fromkeys(range(0xEFA0, 0xEFA5), "EFA")},
    0x8086: {
        0x1521: "I350",
        0x1563: "X550",
        0x1572: "X710",
        0x1583: "XL710",
        0x1592: "E810-C",
        0x1593: "E810-C",
        0x159B: "E810-XXV",
    },
}


def device_name(vendor: int, device: int) -> str:
    """Return a name like `NVIDIA H100 SXM5 80GB`; vendor and numbers if the device is not in the table."""
    name = _DEVICES.get(vendor, {}).get(device) or f"{vendor:04x}:{device:04x}"
    return f"{_VENDORS.get(vendor, '')} {name}".strip()


def compute_capability(vendor: int, device: int) -> str | None:
    """Return a CUDA compute capability like `9.0`, None for a GPU that is not in the table."""
    if vendor != NVIDIA:
        return None
    return next((capability for capability, gpus in _NVIDIA_GPUS.items() if device in gpus), None)
