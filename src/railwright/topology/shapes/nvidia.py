"""HGX boards in servers of many makers, and NVIDIA's own DGX."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import Layout, Shape

# PEX switches show themselves as two levels (nvidia-smi calls that PXB), but forward at full rate: NCCL flattens them
# into one (src/graph/topo.cc), and so do these layouts.
_HGX_H100 = Shape(
    title="8x H100 SXM with NVLink, a PCIe switch and a NIC for each GPU",
    layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=8, drives=8),
    layout_source="nvidia-smi topo -m of an 8x H100 machine in deepseek-ai/DeepEP issue 128: each GPU is PIX to one NIC"
    " of its own, four GPUs per NUMA node; the same in LY Corporation's lspci -tv (techblog.lycorp.co.jp, GPU servers)",
    cpu=cpus.SAPPHIRE_RAPIDS,
    gpu=gpus.H100,
    nvlink=gpus.NVLINK4,
    nic=nics.CONNECTX7,
    drive=drives.U2_3T84,
)
_HGX_H200 = replace(_HGX_H100, title="8x H200 SXM with NVLink, a PCIe switch and a NIC for each GPU", gpu=gpus.H200)
_HGX_B200 = replace(
    _HGX_H100,
    title="8x B200 SXM with NVLink, a PCIe switch and a NIC for each GPU",
    layout_source="nvidia-smi topo -m of an 8x B200 machine in vllm-project/vllm issue 16336: each GPU is PXB to one"
    " NIC of its own, four GPUs per NUMA node; PXB is the two levels of one PEX switch (NCCL src/graph/topo.cc)",
    cpu=cpus.EMERALD_RAPIDS,
    gpu=gpus.B200,
    nvlink=gpus.NVLINK5,
)
_HGX_A100 = Shape(
    title="8x A100 SXM with NVLink, two GPUs and two NICs for each PCIe switch",
    layout=Layout(gpus_per_switch=2, switch_name="PCIe 4.0 switch", nics=8, drives=4),
    layout_source="nvidia-smi topo -m of a DGX A100 in NVIDIA/nccl issue 1505: pairs of GPUs share two NICs; one NUMA"
    " node per socket assumed (that machine has four, numa-per-socket=4)",
    cpu=cpus.ROME,
    gpu=gpus.A100_80GB,
    nvlink=gpus.NVLINK3,
    nic=nics.CONNECTX6,
    drive=drives.U2_3T84,
)

_HGX_B300 = replace(
    _HGX_B200,
    title="8x B300 SXM with NVLink, a ConnectX-8 of 800 Gb/s for each GPU, which is its PCIe switch and its NIC",
    layout=Layout(
        gpus_per_switch=1,
        switch_name="ConnectX-8 PCIe switch",
        uplink_generation=5,
        uplink_assumed=True,
        nics=8,
        drives=8,
    ),
    layout_source="NVIDIA's DGX B300 page (eight GPUs, eight ConnectX-8), as others quote it; NVIDIA Technical Blog,"
    " NVIDIA ConnectX-8 SuperNICs Advance AI Platform Architecture with PCIe Gen6 Connectivity (the NIC is the switch);"
    " links to the CPU at PCIe 5.0 x16 assumed",
    cpu=cpus.DGX_B300_GRANITE_RAPIDS,
    gpu=gpus.B300,
    nic=nics.B300_CONNECTX8,
)

SHAPES: dict[str, Shape] = {
    "hgx-h100": _HGX_H100,
    "hgx-h200": _HGX_H200,
    "hgx-b200": _HGX_B200,
    "hgx-a100": _HGX_A100,
    "dgx-h100": replace(_HGX_H100, title="DGX H100: 8x H100, a PCIe switch and a NIC for each GPU"),
    "dgx-h200": replace(_HGX_H200, title="DGX H200: 8x H200, a PCIe switch and a NIC for each GPU"),
    "dgx-b200": replace(
        _HGX_B200, title="DGX B200: 8x B200, a PCIe switch and a NIC for each GPU", drive=drives.DGX_B200_3T84
    ),
    "dgx-a100": replace(
        _HGX_A100,
        title="DGX A100 640GB: 8x A100, two GPUs and two NICs for each PCIe switch",
        layout=replace(_HGX_A100.layout, numa_per_socket=4, drives=8),
        layout_source="nvidia-smi topo -m of a DGX A100 in NVIDIA/nccl issue 1505 and NVIDIA/DCGM issue 149: pairs of"
        " GPUs share two NICs, each pair on a NUMA node of its own, four nodes a socket; DGX A100 User Guide (8"
        " drives)",
        cpu=cpus.DGX_A100_ROME,
        drive=drives.DGX_A100_3T84,
    ),
    "hgx-b300": _HGX_B300,
    "dgx-b300": replace(_HGX_B300, title="DGX B300: 8x B300, a ConnectX-8 of 800 Gb/s for each GPU"),
    "hgx-h800": replace(
        _HGX_H100, title="8x H800 SXM, NVLink with 8 of 18 links", gpu=gpus.H800, nvlink=gpus.NVLINK4_H800
    ),
    "hgx-h20": replace(_HGX_H100, title="8x H20 SXM with NVLink, a PCIe switch and a NIC for each GPU", gpu=gpus.H20),
    "hgx-a800": replace(
        _HGX_A100, title="8x A800 SXM, NVLink with 8 of 12 links", gpu=gpus.A800, nvlink=gpus.NVLINK3_A800
    ),
    "dgx-1-v100": Shape(
        title="DGX-1: 8x V100 32GB in a hybrid cube mesh, two GPUs and a NIC for each PCIe switch",
        aliases=("dgx-1",),
        layout=Layout(gpus_per_switch=2, switch_name="PCIe 3.0 switch", nics=4, drives=0),
        layout_source="NVIDIA/nccl issue 671, topology of a DGX-1V (two GPUs below a switch, 8 GT/s x16); not"
        " verified: NVIDIA DGX-1 With Tesla V100 System Architecture white paper (one InfiniBand card on each of the"
        " four PCIe switches); the local SSDs are left out",
        cpu=cpus.DGX1_BROADWELL,
        gpu=gpus.V100_32GB,
        nvlink=gpus.CUBE_MESH,
        nic=nics.DGX1_CONNECTX4,
    ),
}
