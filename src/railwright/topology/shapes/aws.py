"""Amazon EC2: instances that fill a whole machine.

AWS publishes little of the PCIe tree: these shapes have what its NCCL topology files say and leave out the rest.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes import cpus, drives, gpus, nics
from railwright.topology.shapes.parts import GpuPart, Layout, Pcie, Shape


def _at_8_gt_per_s(gpu: GpuPart, file: str) -> GpuPart:
    source = f"{gpu.source}; here at 8 GT/s x16: aws-ofi-nccl, topology/{file}"
    return replace(gpu, pcie=Pcie(3, 16), source=source)


_P4D = Shape(
    title="EC2 p4d.24xlarge: 8x A100 40GB, two GPUs and an EFA of 100 Gb/s for each PCIe switch",
    aliases=("p4d", "p4d.24xlarge"),
    layout=Layout(gpus_per_switch=2, nics=4, drives=8),
    layout_source="aws-ofi-nccl, topology/p4d-24xl-topo.xml: two switches a socket, each with two GPUs and one NIC,"
    " all links at 8 GT/s x16",
    cpu=cpus.AWS_P4D,
    gpu=_at_8_gt_per_s(gpus.A100_40GB, "p4d-24xl-topo.xml"),
    nvlink=gpus.NVLINK3,
    nic=nics.EFA_100G_GEN3,
    drive=drives.AWS_1T,
)
_P5 = Shape(
    title="EC2 p5.48xlarge: 8x H100, a PCIe switch and four EFAs of 100 Gb/s for each GPU",
    aliases=("p5", "p5.48xlarge"),
    layout=Layout(gpus_per_switch=1, switch_name="PCIe 5.0 switch", uplink_generation=4, nics=32, drives=8),
    layout_source="aws-ofi-nccl, topology/p5.48xl-topo.xml: four switches a socket, each with one GPU and four NICs at"
    " 32 GT/s x16; from switch to CPU PCIe 4.0, all that third-generation EPYC has (AMD EPYC 7003 series), x16 assumed",
    cpu=cpus.AWS_P5,
    gpu=gpus.H100,
    nvlink=gpus.NVLINK4,
    nic=nics.EFA_P5,
    drive=drives.AWS_3T84,
)

SHAPES: dict[str, Shape] = {
    "aws-p3dn": Shape(
        title="EC2 p3dn.24xlarge: 8x V100 32GB in a hybrid cube mesh, one EFA of 100 Gb/s",
        aliases=("p3dn", "p3dn.24xlarge"),
        layout=Layout(gpus_per_switch=0, nics=1, drives=2),
        layout_source="assumed: every GPU and the NIC on a root port of its own, as the instance shows them. AWS"
        " publishes no PCIe tree, and EFA has no GPUDirect RDMA there (NVIDIA/nccl issue 398)",
        cpu=cpus.AWS_P3DN,
        gpu=gpus.V100_32GB,
        nvlink=gpus.CUBE_MESH,
        nic=nics.EFA_P3DN,
        drive=drives.AWS_900G,
    ),
    "aws-p4d": _P4D,
    "aws-p4de": replace(
        _P4D,
        title="EC2 p4de.24xlarge: 8x A100 80GB, two GPUs and an EFA of 100 Gb/s for each PCIe switch",
        aliases=("p4de", "p4de.24xlarge"),
        layout_source="aws-ofi-nccl, topology/p4de-24xl-topo.xml, the same as that of p4d",
        gpu=_at_8_gt_per_s(gpus.A100_80GB, "p4de-24xl-topo.xml"),
    ),
    "aws-p5": _P5,
    "aws-p5e": replace(
        _P5,
        title="EC2 p5e.48xlarge: 8x H200, a PCIe switch and four EFAs of 100 Gb/s for each GPU",
        aliases=("p5e", "p5e.48xlarge"),
        layout_source="Amazon EC2 P5 instances (p5e: 3200 Gb/s of second-generation EFA, third-generation EPYC); PCIe"
        " tree assumed to be that of p5 (aws-ofi-nccl, topology/p5.48xl-topo.xml)",
        gpu=gpus.H200,
    ),
    "aws-p5en": replace(
        _P5,
        title="EC2 p5en.48xlarge: 8x H200, a PCIe 5.0 switch and two EFAs of 200 Gb/s for each GPU",
        aliases=("p5en", "p5en.48xlarge"),
        layout=replace(_P5.layout, uplink_generation=None, nics=16),
        layout_source="Amazon EC2 P5 instances (p5en: PCIe 5.0 between CPU and GPU, 16 NICs); a switch with two NICs"
        " for each GPU assumed, as p5 has one with four. H200 of p5en measure 55.43 GB/s host to device, so PCIe 5.0"
        " x16 all the way",
        cpu=cpus.AWS_P5EN,
        gpu=gpus.H200,
        nic=nics.EFA_P5EN,
    ),
    "aws-p6-b200": replace(
        _P5,
        title="EC2 p6-b200.48xlarge: 8x B200, a PCIe 5.0 switch and an EFA of 400 Gb/s for each GPU",
        aliases=("p6-b200", "p6-b200.48xlarge"),
        layout=replace(_P5.layout, uplink_generation=None, nics=8),
        layout_source="dailiuyao/ncclgauge-works, aws/2026-summer-intern, NUMA_TOPOLOGY.md (p6-b200: four EFAs a NUMA"
        " node, two of them); a switch for each GPU and its NIC assumed, as p5en has them",
        cpu=cpus.AWS_P6_B200,
        gpu=gpus.B200,
        nvlink=gpus.NVLINK5,
        nic=nics.EFA_P6,
        drive=drives.AWS_P6_3T8,
    ),
    "aws-p6-b300": replace(
        _P5,
        title="EC2 p6-b300.48xlarge: 8x B300, a PCIe switch and two EFAs of 400 Gb/s for each GPU",
        aliases=("p6-b300", "p6-b300.48xlarge"),
        layout=replace(_P5.layout, uplink_generation=5, uplink_assumed=True, nics=16),
        layout_source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b300: 6.4 Tb/s); a switch for"
        " each GPU and two NICs assumed, links to the CPU at PCIe 5.0 x16 assumed",
        cpu=cpus.AWS_P6_B300,
        gpu=gpus.B300,
        nvlink=gpus.NVLINK5,
        nic=nics.EFA_P6,
        drive=drives.AWS_P6_3T8,
    ),
}
