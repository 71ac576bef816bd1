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

SHAPES: dict[str, Shape] = {
    "pcie-8gpu": _L40S,
    "h100-pcie-8gpu": _H100,
    "h100-pcie-8gpu-nvlink": replace(
        _H100,
        title="8x H100 PCIe in pairs joined by NVLink bridges, two sockets, four GPUs and two NICs for each switch",
        aliases=(),
        nvlink=gpus.NVLINK4_BRIDGES,
    ),
    "rtx-pro-6000-8gpu": Shape(
        title="8x RTX PRO 6000, two GPUs for each ConnectX-8, which is their PCIe switch and their NIC",
        aliases=("rtx-pro-6000",),
        layout=Layout(gpus_per_switch=2, switch_name="ConnectX-8 PCIe switch", nics=8, drives=2),
        layout_source="NVIDIA Technical Blog, NVIDIA ConnectX-8 SuperNICs Advance AI Platform Architecture with PCIe"
        " Gen6 Connectivity (two GPUs and one ConnectX-8 with its switch, 48 lanes); two sockets with the links to the"
        " CPU at PCIe 5.0 x16 assumed; makers differ",
        cpu=cpus.SAPPHIRE_RAPIDS,
        gpu=gpus.RTX_PRO_6000,
        nic=nics.CONNECTX8,
        drive=drives.U2_3T84,
    ),
}
