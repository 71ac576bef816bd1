"""Oracle Cloud Infrastructure: bare-metal GPU shapes with two RoCE ports on each card."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.amd import SHAPES as AMD
from railwright.topology.shapes.parts import Layout, Shape

SHAPES: dict[str, Shape] = {
    "oci-bm-gpu4-8": Shape(
        title="OCI BM.GPU4.8: 8x A100 40GB, two GPUs and two dual-port 100 Gb/s cards for each PCIe switch",
        aliases=("BM.GPU4.8",),
        layout=Layout(numa_per_socket=4, gpus_per_switch=2, switch_name="PCIe 4.0 switch", nics=16, drives=4),
        layout_source="oci-hpc, samples/gpu/topo-flattened.xml: four of eight NUMA nodes have a switch with two GPUs"
        " and two cards, all links at 16 GT/s x16; OCI compute shapes (4 drives)",
        cpu=cpus.OCI_ROME,
        gpu=gpus.A100_40GB,
        nvlink=gpus.NVLINK3,
        nic=nics.OCI_CONNECTX5,
        drive=drives.OCI_6T8,
    ),
    "oci-bm-gpu-a100-v2-8": Shape(
        title="OCI BM.GPU.A100-v2.8: 8x A100 80GB, two GPUs and two dual-port 100 Gb/s cards for each PCIe switch",
        aliases=("BM.GPU.A100-v2.8",),
        layout=Layout(numa_per_socket=4, gpus_per_switch=2, switch_name="PCIe 4.0 switch", nics=16, drives=4),
        layout_source="oci-hpc, samples/gpu/topo-flattened-b4.xml (of BM.GPU.B4.8; assumed for this machine, which has"
        " the same sockets and NICs): four NUMA nodes have a switch with two GPUs and two cards, all links at 16 GT/s"
        " x16; OCI compute shapes (4 drives)",
        cpu=cpus.OCI_MILAN,
        gpu=gpus.A100_80GB,
        nvlink=gpus.NVLINK3,
        nic=nics.OCI_CONNECTX6_DX,
        drive=drives.OCI_6T8,
    ),
    "oci-bm-gpu-h100-8": Shape(
        title="OCI BM.GPU.H100.8: 8x H100, a PCIe switch and a dual-port 200 Gb/s card for each GPU",
        aliases=("BM.GPU.H100.8",),
        layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=16, drives=16),
        layout_source="oci-hpc, samples/gpu/H100-topology.xml: four PEX switches a socket, each with one GPU and one"
        " dual-port card at 32 GT/s x16 (two levels taken as one, as NCCL src/graph/topo.cc does). A switch's uplink"
        " is shown there at the rate of the virtual port and is taken as 32 GT/s; OCI compute shapes (16 drives)",
        cpu=cpus.OCI_SAPPHIRE_RAPIDS,
        gpu=gpus.H100,
        nvlink=gpus.NVLINK4,
        nic=nics.OCI_CONNECTX7,
        drive=drives.OCI_3T84,
    ),
}
SHAPES["oci-bm-gpu-b4-8"] = replace(
    SHAPES["oci-bm-gpu4-8"],
    title="OCI BM.GPU.B4.8: 8x A100 40GB, two GPUs and two dual-port 100 Gb/s cards for each PCIe switch",
    aliases=("BM.GPU.B4.8",),
    layout_source="oci-hpc, samples/gpu/topo-flattened-b4.xml: four NUMA nodes have a switch with two GPUs and two"
    " cards, all links at 16 GT/s x16; oci-hpc, healthchecks (16 mlx5 devices, 4 NVMe drives)",
    cpu=cpus.OCI_MILAN,
    nic=nics.OCI_CONNECTX6_DX,
)
SHAPES["oci-bm-gpu-gm4-8"] = replace(
    SHAPES["oci-bm-gpu-a100-v2-8"],
    title="OCI BM.GPU.GM4.8: 8x A100 80GB, two GPUs and two dual-port 100 Gb/s cards for each PCIe switch",
    aliases=("BM.GPU.GM4.8",),
    layout_source="not verified: no document of BM.GPU.GM4.8 was found. It is taken as BM.GPU.A100-v2.8",
)
SHAPES["oci-bm-gpu-h200-8"] = replace(
    SHAPES["oci-bm-gpu-h100-8"],
    title="OCI BM.GPU.H200.8: 8x H200, a PCIe switch and a NIC of 400 Gb/s for each GPU",
    aliases=("BM.GPU.H200.8",),
    layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", nics=8, drives=8),
    layout_source="oci-hpc, healthchecks, BM.GPU.H200.8 (eight GPUs with 18 NVLinks of 25 GB/s, 8 mlx5 devices, 8 NVMe"
    " drives); PCIe tree assumed to be that of BM.GPU.H100.8 (oci-hpc, samples/gpu/H100-topology.xml)",
    gpu=gpus.H200,
    nic=nics.OCI_ROCE_400G,
    drive=drives.OCI_EIGHT_3T84,
)
SHAPES["oci-bm-gpu-b200-8"] = replace(
    SHAPES["oci-bm-gpu-h200-8"],
    title="OCI BM.GPU.B200.8: 8x B200, a PCIe switch and a NIC of 400 Gb/s for each GPU",
    aliases=("BM.GPU.B200.8",),
    layout_source="oci-hpc, healthchecks, BM.GPU.B200.8 (eight GPUs with 18 NVLinks of 50 GB/s, 8 mlx5 devices, 8 NVMe"
    " drives); PCIe tree assumed to be that of BM.GPU.H100.8 (oci-hpc, samples/gpu/H100-topology.xml)",
    cpu=cpus.EMERALD_RAPIDS,
    gpu=gpus.B200,
    nvlink=gpus.NVLINK5,
)
SHAPES["oci-bm-gpu-mi300x-8"] = replace(
    AMD["mi300x"],
    title="OCI BM.GPU.MI300X.8: 8x MI300X, a NIC of 400 Gb/s for each GPU",
    aliases=("BM.GPU.MI300X.8",),
    drive=drives.OCI_EIGHT_3T84,
)
