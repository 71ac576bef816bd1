"""Microsoft Azure: ND sizes that fill a whole machine."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.amd import SHAPES as AMD
from railwright.topology.shapes.grace import SHAPES as GRACE
from railwright.topology.shapes.parts import Layout, Shape

MI300X_HOST, GB200_TRAY = AMD["mi300x"], GRACE["gb200-nvl72"]

_ND_A100 = Shape(
    title="Azure ND96asr_v4: 8x A100 40GB, two GPUs and two NICs for each PCIe switch",
    aliases=("Standard_ND96asr_v4", "ND96asr_v4", "ND96asr_A100_v4"),
    layout=Layout(numa_per_socket=2, gpus_per_switch=2, switch_name="PCIe 4.0 switch", nics=8, drives=0),
    layout_source="azhpc-images, topology/ndv4-topo.xml: four NUMA nodes, each with a switch of two GPUs and two NICs,"
    " all links at 16 GT/s x16. The local drives are left out: how they hang is not published",
    cpu=cpus.AZURE_ROME,
    gpu=gpus.A100_40GB,
    nvlink=gpus.NVLINK3,
    nic=nics.AZURE_HDR,
)
_ND_H100 = Shape(
    title="Azure ND96isr_H100_v5: 8x H100, a PCIe switch and a NIC for each GPU",
    aliases=("Standard_ND96isr_H100_v5", "ND96isr_H100_v5"),
    layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=8, drives=8),
    layout_source="azhpc-images, topology/ndv5-topo.xml: two NUMA nodes, each with four switches of one GPU and one"
    " NIC, all links at 32 GT/s x16",
    cpu=cpus.AZURE_SAPPHIRE_RAPIDS,
    gpu=gpus.H100,
    nvlink=gpus.NVLINK4,
    nic=nics.AZURE_NDR,
    drive=drives.AZURE_3T5,
)

SHAPES: dict[str, Shape] = {
    "azure-nd-a100-v4": _ND_A100,
    "azure-ndm-a100-v4": replace(
        _ND_A100,
        title="Azure ND96amsr_A100_v4: 8x A100 80GB, two GPUs and two NICs for each PCIe switch",
        aliases=("Standard_ND96amsr_A100_v4", "ND96amsr_A100_v4"),
        cpu=cpus.AZURE_ROME_LARGE,
        gpu=gpus.A100_80GB,
    ),
    "azure-nd-h100-v5": _ND_H100,
    "azure-nd-h200-v5": replace(
        _ND_H100,
        title="Azure ND96isr_H200_v5: 8x H200, a PCIe switch and a NIC for each GPU",
        aliases=("Standard_ND96isr_H200_v5", "ND96isr_H200_v5"),
        layout_source="Azure, ND H200 v5 series (one NIC a GPU); PCIe tree assumed to be that of ND H100 v5"
        " (azhpc-images, topology/ndv5-topo.xml), the same host",
        gpu=gpus.H200,
    ),
    "azure-nd-mi300x-v5": replace(
        MI300X_HOST,
        title="Azure ND96isr_MI300X_v5: 8x MI300X, a PCIe switch and a NIC for each GPU",
        aliases=("Standard_ND96isr_MI300X_v5", "ND96isr_MI300X_v5"),
        layout_source="MicrosoftDocs, ND MI300X v5 series (eight MI300X, 8x 400 Gb/s InfiniBand, 8 drives); a switch"
        " for each GPU and its NIC: ROCm/rccl, tools/topo_expl/models/topo_8p_940.xml, a host of the same kind",
        cpu=cpus.AZURE_SAPPHIRE_RAPIDS,
        nic=nics.AZURE_NDR,
        drive=drives.AZURE_MI300X_3T5,
    ),
    "azure-nd-gb200-v6": replace(
        GB200_TRAY,
        title="Azure ND128isr_NDR_GB200_v6: a compute tray of GB200 NVL72, four GPUs and four NICs",
        aliases=("Standard_ND128isr_NDR_GB200_v6", "ND128isr_GB200_v6"),
        layout_source="MicrosoftDocs/azure-compute-docs, ND GB200 v6 series (two Grace, four GPUs, 4x 400 Gb/s CX7"
        " InfiniBand, 4 drives); the rest as in NVIDIA DGX GB200 User Guide, Hardware",
        drive=drives.AZURE_GB200_4T,
    ),
}
