"""Servers with eight PCIe GPUs."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

_DUAL_ROOT = (
    "Supermicro, 4U GPU System PCIe Root Architectures, SYS-4029GP-TRT (dual root: each CPU has half of the GPUs)"
)
_L40S = Shape(
    title="8 PCIe GPUs without NVLink, two sockets, four GPUs and a NIC for each PCIe switch",
    aliases=("l40s-8gpu",),
    layout=Layout(gpus_per_switch=4, switch_name="PCIe 4.0 switch", nics=2, drives=2),
    layout_source=f"{_DUAL_ROOT}; one switch per CPU and one NIC on it assumed",
    cpu=cpus.SAPPHIRE_RAPIDS,
    gpu=gpus.L40S,
    nic=nics.CONNECTX6_DX,
    drive=drives.U2_3T84,
)
_H100 = replace(
    _L40S,
    title="8x H100 PCIe without NVLink, two sockets, four GPUs and two NICs for each PCIe switch",
    aliases=("h100-pcie",),
    layout=replace(_L40S.layout, switch_name="PCIe 5.0 switch", nics=4),
    layout_source=f"{_DUAL_ROOT}; one PCIe 5.0 switch per CPU and two NICs on it assumed",
    gpu=gpus.H100_PCIE,
    nic=nics.ROCE_CONNECTX7,
)

_A100 = replace(
    _L40S,
    title="8x A100 PCIe without NVLink, two sockets, four GPUs and a NIC for each PCIe switch",
    aliases=("a100-pcie", "a100-pcie-80gb"),
    cpu=cpus.ROME,
    gpu=gpus.A100_PCIE_80GB,
)
_NO_P2P = " on root ports of their own, two sockets; the driver keeps them from each other's memory"
_CONSUMER = replace(
    _L40S,
    title=f"8x RTX 4090{_NO_P2P}",
    aliases=("rtx-4090",),
    layout=replace(_L40S.layout, gpus_per_switch=0),
    layout_source="assumed: every GPU and NIC on a root port of its own, as boxes with risers have them; makers differ",
    gpu=gpus.RTX_4090,
    peer_to_peer=False,  # NVIDIA Developer Forums, RTX 4090 P2P: the driver has none for GeForce since then
)

SHAPES: dict[str, Shape] = {
    "pcie-8gpu": _L40S,
    "h100-pcie-8gpu": _H100,
    "h100-pcie-8gpu-nvlink": replace(
        _H100,
        title="8x H100 PCIe in pairs joined by NVLink bridges, two sockets, four GPUs and two NICs for each switch",
        aliases=(),
        nvlink=gpus.NVLINK4_BRIDGES,
    ),
    "rtx-pro-6000-8gpu": replace(
        _L40S,
        title="8x RTX PRO 6000, two GPUs for each ConnectX-8, which is their PCIe switch and their NIC",
        aliases=("rtx-pro-6000",),
        layout=Layout(gpus_per_switch=2, switch_name="ConnectX-8 PCIe switch", uplink_assumed=True, nics=8, drives=2),
        layout_source="NVIDIA Technical Blog, NVIDIA ConnectX-8 SuperNICs Advance AI Platform Architecture with PCIe"
        " Gen6 Connectivity (two GPUs and one ConnectX-8 with its switch, 48 lanes); two sockets with the links to the"
        " CPU at PCIe 5.0 x16 assumed; makers differ",
        gpu=gpus.RTX_PRO_6000,
        nic=nics.CONNECTX8,
    ),
    "h100-nvl-8gpu": replace(
        _H100,
        title="8x H100 NVL in pairs joined by NVLink bridges, two sockets, four GPUs and two NICs for each switch",
        aliases=("h100-nvl",),
        gpu=gpus.H100_NVL,
        nvlink=gpus.NVLINK4_BRIDGES,
    ),
    "a100-pcie-40gb-8gpu": replace(_A100, aliases=("a100-pcie-40gb",), gpu=gpus.A100_PCIE_40GB),
    "a100-pcie-80gb-8gpu": _A100,
    "rtx-6000-ada-8gpu": replace(
        _L40S,
        title="8x RTX 6000 Ada, two sockets, four GPUs and a NIC for each PCIe switch",
        aliases=("rtx-6000-ada",),
        gpu=gpus.RTX_6000_ADA,
    ),
    "rtx-3090-8gpu": replace(_CONSUMER, title=f"8x RTX 3090{_NO_P2P}", aliases=("rtx-3090",), gpu=gpus.RTX_3090),
    "rtx-4090-8gpu": _CONSUMER,
    "rtx-5090-8gpu": replace(_CONSUMER, title=f"8x RTX 5090{_NO_P2P}", aliases=("rtx-5090",), gpu=gpus.RTX_5090),
}
