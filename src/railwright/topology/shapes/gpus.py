"""The GPUs of the named machines, and the links between them."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.devices import NvlinkLink, XgmiLink
from railwright.topology.shapes.parts import GpuMemory, GpuPart, NvlinkPart, Pcie, XgmiPart
from railwright.units import GIB

_CAPABILITY = "compute capability: developer.nvidia.com/cuda-gpus"
_QUOTED = "as others quote it"
"""Marks a document that was not available: docs/shapes.md, What was checked."""
_NO_DATASHEET = "NVIDIA publishes no datasheet of it"

V100_32GB = GpuPart(
    name="Tesla V100-SXM2-32GB",
    compute_capability="7.0",
    memory=GpuMemory(32 * GIB, bytes_per_s=900e9),
    fp64_tensor_flop_per_s=7.8e12,
    pcie=Pcie(3, 16),
    source="NVIDIA V100 datasheet (SXM2: 32 GB HBM2, 900 GB/s, FP64 7.8 TFLOPS, none on tensor cores, PCIe Gen3);"
    f" {_CAPABILITY}",
)
A100_80GB = GpuPart(
    name="NVIDIA A100 SXM4 80GB",
    compute_capability="8.0",
    memory=GpuMemory(80 * GIB, bytes_per_s=2039e9),
    fp64_tensor_flop_per_s=19.5e12,
    pcie=Pcie(4, 16),
    source="NVIDIA A100 Tensor Core GPU Architecture, table 4 (PCIe Gen 4, compute capability 8.0); NVIDIA A100"
    " datasheet (80GB SXM: 2,039 GB/s, FP64 Tensor Core 19.5 TFLOPS)",
)
A100_40GB = replace(
    A100_80GB,
    name="NVIDIA A100 SXM4 40GB",
    memory=GpuMemory(40 * GIB, bytes_per_s=1555e9),
    source="NVIDIA A100 Tensor Core GPU Architecture, table 4 (40 GB, 1,555 GB/s, FP64 Tensor Core 19.5 TFLOPS, PCIe"
    " Gen 4, compute capability 8.0)",
)
H100 = GpuPart(
    name="NVIDIA H100 SXM5 80GB",
    compute_capability="9.0",
    memory=GpuMemory(80 * GIB, bytes_per_s=3350e9),
    fp64_tensor_flop_per_s=67e12,
    pcie=Pcie(5, 16),
    source="NVIDIA H100 Tensor Core GPU Architecture, table 3 (80 GB, PCIe Gen 5, compute capability 9.0); NVIDIA H100"
    " datasheet (SXM: 3.35 TB/s, FP64 Tensor Core 67 TFLOPS)",
)
H200 = replace(
    H100,
    name="NVIDIA H200 SXM 141GB",
    memory=GpuMemory(141 * GIB, bytes_per_s=4800e9),
    source="MLPerf Inference v4.1, NVIDIA, systems/H200-SXM-141GBx8_TRT_MaxQ.json (141 GB, PCIe Gen5 x16); NVIDIA H200"
    f" datasheet (SXM: 4.8 TB/s, FP64 Tensor Core 67 TFLOPS); {_CAPABILITY}",
)
B200 = GpuPart(
    name="NVIDIA B200 SXM 180GB",
    compute_capability="10.0",
    memory=GpuMemory(180 * GIB, bytes_per_s=8000e9),
    fp64_tensor_flop_per_s=37e12,
    pcie=Pcie(5, 16),
    source="NVIDIA DGX B200 datasheet (8 GPUs: 1,440 GB, 64 TB/s); NVIDIA HGX platform page, HGX B200 (FP64 Tensor Core"
    f" 296 TFLOPS of 8 GPUs); NVIDIA Blackwell Architecture Technical Brief (PCIe Gen 5); {_CAPABILITY}",
)
H100_PCIE = replace(
    H100,
    name="NVIDIA H100 PCIe",
    memory=GpuMemory(80 * GIB, bytes_per_s=2000e9),
    fp64_tensor_flop_per_s=51e12,
    source="NVIDIA H100 PCIe GPU Product Brief (80 GB, 2 TB/s, PCIe Gen5 x16); NVIDIA H100 datasheet, PCIe column (FP64"
    f" Tensor Core 51 TFLOPS); {_CAPABILITY}",
)
L40S = GpuPart(
    name="NVIDIA L40S",
    compute_capability="8.9",
    memory=GpuMemory(48 * GIB, bytes_per_s=864e9),
    pcie=Pcie(4, 16),
    source=f"NVIDIA L40S datasheet (48 GB GDDR6, 864 GB/s, PCIe Gen4 x16, no NVLink); {_CAPABILITY}",
)
RTX_PRO_6000 = GpuPart(
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    compute_capability="12.0",
    memory=GpuMemory(96 * GIB, bytes_per_s=1597e9),
    pcie=Pcie(5, 16),
    source="NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet (96 GB GDDR7, 1,597 GB/s, PCIe Gen 5 x16, no"
    f" NVLink); {_CAPABILITY}",
)
GH200 = GpuPart(
    name="NVIDIA GH200 480GB",
    compute_capability="9.0",
    memory=GpuMemory(96 * GIB, bytes_per_s=4000e9),
    fp64_tensor_flop_per_s=67e12,
    attachment="c2c",
    source="NVIDIA GH200 Grace Hopper Superchip datasheet (96 GB HBM3, 4 TB/s, FP64 Tensor Core 67 TFLOPS, NVLink-C2C"
    f" 900 GB/s); {_CAPABILITY}",
)
GH200_144GB = replace(
    GH200,
    name="NVIDIA GH200 144G HBM3e",
    memory=GpuMemory(144 * GIB, bytes_per_s=4900e9),
    source="NVIDIA Technical Blog, One Giant Superchip for LLMs: NVIDIA GH200 NVL32 (32 GPUs: 4.5 TB HBM3e); NVIDIA"
    " GH200 Grace Hopper Superchip datasheet (144 GB HBM3e: 4.9 TB/s, FP64 Tensor Core 67 TFLOPS, NVLink-C2C 900 GB/s);"
    f" {_CAPABILITY}",
)
GB200 = GpuPart(
    name="NVIDIA GB200",
    compute_capability="10.0",
    memory=GpuMemory(186 * GIB, bytes_per_s=8000e9),
    fp64_tensor_flop_per_s=40e12,
    attachment="c2c",
    c2c_bytes_per_s=225e9,  # the CPU's 900 GB/s both ways serve two GPUs
    source="NVIDIA GB200 NVL72 datasheet (72 GPUs: 13.4 TB HBM3e, 576 TB/s, FP64 Tensor Core 2,880 TFLOPS); MLPerf"
    " Inference v6.1, Crusoe, systems/GB200-NVL72_GB200-186GB_aarch64x16_Dynamo.json (186 GB, host over NVLink-C2C);"
    " NVIDIA GB200 Grace Blackwell Superchip (two GPUs and a CPU joined by NVLink-C2C of 900 GB/s);"
    f" {_CAPABILITY}",
)
MI300X = GpuPart(
    name="AMD Instinct MI300X",
    vendor="amd",
    memory=GpuMemory(192 * GIB, bytes_per_s=5300e9),
    fp64_tensor_flop_per_s=163.4e12,
    pcie=Pcie(5, 16),
    source="AMD Instinct MI300X data sheet (192 GB HBM3, 5.3 TB/s, peak FP64 matrix 163.4 TFLOPS); MLPerf Inference"
    " v4.1, AMD, systems/8xMI300X_2xEPYC-9374F.json (PCIe Gen5 x16)",
)

B300 = replace(
    B200,
    name="NVIDIA B300 SXM 270GB",
    compute_capability="10.3",
    memory=GpuMemory(275_040 * 2**20, bytes_per_s=8000e9),
    fp64_tensor_flop_per_s=1.25e12,
    pcie=Pcie(6, 16),
    source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b300: 275,040 MiB a GPU); NVIDIA Blackwell"
    f" Ultra datasheet, HGX B300 (270 GB, PCIe Gen6), {_QUOTED}; NVIDIA HGX platform page, HGX B300 (FP64 10 TFLOPS of"
    f" 8 GPUs), {_QUOTED}; 8 TB/s: NVIDIA's DGX B300 page, {_QUOTED}, where that datasheet says 7.7; {_CAPABILITY}",
)
H800 = replace(
    H100,
    name="NVIDIA H800 SXM5 80GB",
    fp64_tensor_flop_per_s=1e12,
    source=f"not verified: {_NO_DATASHEET}. Resellers list 80 GB, 3.35 TB/s, FP64 1 TFLOPS, PCIe Gen5; {_CAPABILITY}",
)
H20 = replace(
    H100,
    name="NVIDIA H20 SXM 96GB",
    memory=GpuMemory(96 * GIB, bytes_per_s=4000e9),
    fp64_tensor_flop_per_s=1e12,
    source=f"not verified: {_NO_DATASHEET}. The press and resellers list 96 GB, 4.0 TB/s, FP64 1 TFLOPS, NVLink 900"
    f" GB/s, PCIe Gen5 x16; {_CAPABILITY}",
)
A800 = replace(
    A100_80GB,
    name="NVIDIA A800 SXM4 80GB",
    source=f"not verified: {_NO_DATASHEET}. Cloud vendors list it as the A100 80GB but for NVLink; {_CAPABILITY}",
)
H100_NVL = replace(
    H100_PCIE,
    name="NVIDIA H100 NVL 94GB",
    memory=GpuMemory(94 * GIB, bytes_per_s=3900e9),
    fp64_tensor_flop_per_s=60e12,
    source="MLPerf Inference v5.1, Dell, systems/R7715-H100-NVL-94GBx3_TRT.json (94 GB HBM3); NVIDIA H100 datasheet,"
    f" NVL column (3.9 TB/s, FP64 Tensor Core 60 TFLOPS, PCIe Gen5, NVLink 600 GB/s), {_QUOTED}; {_CAPABILITY}",
)
A100_PCIE_40GB = replace(
    A100_40GB,
    name="NVIDIA A100 PCIe 40GB",
    source="NVIDIA A100 datasheet of June 2021, 40GB PCIe (1,555 GB/s, PCIe Gen4, FP64 Tensor Core 19.5 TFLOPS),"
    f" {_QUOTED}; {_CAPABILITY}",
)
A100_PCIE_80GB = replace(
    A100_80GB,
    name="NVIDIA A100 PCIe 80GB",
    memory=GpuMemory(80 * GIB, bytes_per_s=1935e9),
    source="NVIDIA A100 datasheet of June 2021, 80GB PCIe (1,935 GB/s, PCIe Gen4, FP64 Tensor Core 19.5 TFLOPS),"
    f" {_QUOTED}; {_CAPABILITY}",
)
RTX_6000_ADA = replace(
    L40S,
    name="NVIDIA RTX 6000 Ada Generation",
    memory=GpuMemory(48 * GIB, bytes_per_s=960e9),
    source=f"NVIDIA RTX 6000 Ada datasheet 2504660 (48 GB GDDR6, 960 GB/s), {_QUOTED}; no NVLink: NVIDIA Developer"
    f" Forums, RTX A6000 Ada; not verified: PCIe 4.0 x16, which cards of that generation have; {_CAPABILITY}",
)
RTX_3090 = replace(
    L40S,
    name="NVIDIA GeForce RTX 3090",
    compute_capability="8.6",
    memory=GpuMemory(24 * GIB, bytes_per_s=936e9),
    source="not verified: NVIDIA Ampere GA102 GPU Architecture was not at hand. Comparisons of cards list 24 GB GDDR6X,"
    f" 936 GB/s, PCIe Gen4 x16; {_CAPABILITY}",
)
RTX_4090 = replace(
    L40S,
    name="NVIDIA GeForce RTX 4090",
    memory=GpuMemory(24 * GIB, bytes_per_s=1008e9),
    source="MLPerf Inference v5.1, GATEOverflow, systems/rtx4090x2-nvidia-gpu-TensorRT-default_config.json (24 GB); not"
    f" verified: 1,008 GB/s, PCIe Gen4 x16, no NVLink, as comparisons of cards list them; {_CAPABILITY}",
)
RTX_5090 = replace(
    RTX_PRO_6000,
    name="NVIDIA GeForce RTX 5090",
    memory=GpuMemory(32 * GIB, bytes_per_s=1792e9),
    source=f"NVIDIA RTX Blackwell GPU Architecture (32 GB GDDR7, 1,792 GB/s), {_QUOTED}; not verified: PCIe Gen5 x16,"
    f" no NVLink; {_CAPABILITY}",
)
GB300 = replace(
    GB200,
    name="NVIDIA GB300",
    compute_capability="10.3",
    memory=GpuMemory(279 * GIB, bytes_per_s=8000e9),
    fp64_tensor_flop_per_s=1.39e12,
    source="MLPerf Inference v5.1, NVIDIA, systems/GB300-NVL72_GB300-288GB_aarch64x72_TRT.json (host over NVLink-C2C);"
    f" NVIDIA Blackwell Ultra datasheet, GB300 (279 GB HBM3E, 8 TB/s), {_QUOTED}; NVIDIA's GB300 NVL72 page (72"
    f" GPUs: 20 TB, 576 TB/s, FP64 100 TFLOPS), {_QUOTED}; {_CAPABILITY}",
)
GB10 = GpuPart(
    name="NVIDIA GB10",
    compute_capability="12.1",
    memory=GpuMemory(128 * GIB, bytes_per_s=273e9),
    integrated=True,
    source="NVIDIA NIM documentation, Deploy on DGX Spark (128 GB LPDDR5x, one memory of CPU and GPU); 273 GB/s:"
    f" NVIDIA's DGX Spark page, {_QUOTED}. It has no PCIe link to its CPU; {_CAPABILITY}",
)
MI325X = replace(
    MI300X,
    name="AMD Instinct MI325X",
    memory=GpuMemory(256 * GIB, bytes_per_s=6000e9),
    source="MLPerf Inference v5.1, AMD, systems/8xMI325X_2xEPYC_9575F_1.json (256 GB HBM3E, PCIe Gen5 x16); AMD's"
    f" MI325X page (6 TB/s, peak FP64 matrix 163.4 TFLOPS), {_QUOTED}",
)
MI355X = replace(
    MI300X,
    name="AMD Instinct MI355X",
    memory=GpuMemory(288 * GIB, bytes_per_s=8000e9),
    fp64_tensor_flop_per_s=78.6e12,
    source="MLPerf Inference v5.1, AMD, systems/8xMI355X_2xEPYC_9575F.json (288 GB HBM3E, PCIe Gen5 x16); AMD's"
    f" MI355X page (8 TB/s, peak FP64 vector and matrix 78.6 TFLOPS), {_QUOTED}",
)
MI250X = replace(
    MI300X,
    name="AMD Instinct MI250X, one of its two dies",
    memory=GpuMemory(64 * GIB, bytes_per_s=1638e9),
    fp64_tensor_flop_per_s=47.85e12,
    pcie=Pcie(5, 16, assumed=True),
    source="OLCF, Frontier User Guide (two dies that the system shows as GPUs, each 64 GB, 1.6 TB/s, FP64 47.9 TFLOPS"
    " on matrix cores); AMD's MI250X page (3,277 GB/s, peak FP64 matrix 95.7 TFLOPS together), as others quote it."
    " The link to the CPU is Infinity Fabric, 36 GB/s a direction by that guide; PCIe 5.0 x16 assumed in its place: 4.0"
    " is slower than it, and a limit must not be too low",
)
MI300A = replace(
    MI300X,
    name="AMD Instinct MI300A",
    memory=GpuMemory(128 * GIB, bytes_per_s=5300e9),
    integrated=True,
    fp64_tensor_flop_per_s=122.6e12,
    pcie=Pcie(),
    source="LLNL, El Capitan systems (128 GB shared with its CPU cores, eight stacks of HBM3: as many as MI300X, so its"
    " 5.3 TB/s); ROCm/rccl, tools/topo_expl/models/topo_4p_940.xml (228 compute units: 228/304 of the FP64 rate of"
    " MI300X, 122.6 TFLOPS). CPU and GPU are one package: there is no PCIe link between them",
)

# Two quads: each GPU has one or two links to the others of its quad and to its twin in the other quad.
_CUBE_MESH = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
    (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip
CUBE_MESH = NvlinkPart(
    link=NvlinkLink(generation=2, links=6),
    pairs=_CUBE_MESH,
    source="NVIDIA DGX-1 With Tesla V100 System Architecture white paper, hybrid cube-mesh; which pairs have two links:"
    " NCCL topology of a DGX-1V in NVIDIA/nccl issue 671",
)
NVLINK3 = NvlinkPart(
    link=NvlinkLink(generation=3, links=12),
    switch_chips=6,
    source="NVIDIA A100 Tensor Core GPU Architecture (12 third-generation links, 600 GB/s); DGX A100 User Guide"
    " (six NVSwitches)",
)
NVLINK4 = NvlinkPart(
    link=NvlinkLink(generation=4, links=18),
    switch_chips=4,
    source="MLPerf Inference v4.1, NVIDIA, systems/H200-SXM-141GBx8_TRT_MaxQ.json (18x 4th Gen NVLink, 900GB/s); NVIDIA"
    " H100 Tensor Core GPU Architecture (four NVSwitches)",
)
NVLINK5 = NvlinkPart(
    link=NvlinkLink(generation=5, links=18),
    switch_chips=2,
    source="NVIDIA DGX B200 User Guide, Hardware Overview (two NVSwitches); NVIDIA Blackwell Architecture Technical"
    " Brief (18 fifth-generation links, 1.8 TB/s)",
)
NVLINK4_BRIDGES = NvlinkPart(
    link=NvlinkLink(generation=4, links=12),
    pairs=((0, 1, 12), (2, 3, 12), (4, 5, 12), (6, 7, 12)),
    source="NVIDIA H100 PCIe GPU Product Brief (three NVLink bridges join two GPUs, 600 GB/s both ways: 12 links of"
    " 25 GB/s a direction)",
)
NVL32 = NvlinkPart(
    link=NvlinkLink(generation=4, links=18),
    switch_chips=18,
    domain_hosts=16,
    source="NVIDIA Technical Blog, One Giant Superchip for LLMs: NVIDIA GH200 NVL32 (32 GPUs, 16 dual Grace Hopper"
    " nodes, nine NVLink switch trays); two chips a tray assumed, as in the NVLink Switch System of the DGX GH200",
)
NVL72 = NvlinkPart(
    link=NvlinkLink(generation=5, links=18),
    switch_chips=18,
    domain_hosts=18,
    source="NVIDIA DGX GB200 User Guide, Hardware (18 compute trays, nine NVLink switch trays); NVIDIA GB200 NVL72"
    " datasheet (130 TB/s of NVLink over 72 GPUs: 18 links each); two chips a tray assumed, which gives each of 18"
    " links of a GPU a chip of its own",
)
XGMI4 = XgmiPart(
    link=XgmiLink(generation=4, links=1),
    most_gpus=8,
    source="AMD CDNA 3 Architecture white paper (eight MI300X fully connected: seven Infinity Fabric links a GPU, x16)",
)
NVLINK4_H800 = replace(
    NVLINK4,
    link=NvlinkLink(generation=4, links=8),
    source=f"not verified: {_NO_DATASHEET}. The press and resellers list 400 GB/s both ways: 8 links of 25 GB/s a"
    " direction; four NVSwitches assumed, as H100 has",
)
NVLINK3_A800 = replace(
    NVLINK3,
    link=NvlinkLink(generation=3, links=8),
    source="Red Hat hardware catalog, H3C UniServer R5500 G5 (HGX A800 8-GPU, six NVSwitches, 400 GB/s both ways), as"
    " others quote it: 8 links of 25 GB/s a direction",
)
QUAD_GH200 = NvlinkPart(
    link=NvlinkLink(generation=4, links=18),
    pairs=tuple((first, second, 6) for first in range(4) for second in range(first + 1, 4)),
    source="CSCS documentation, Alps hardware, gh200-schematic.svg (150 GB/s between two of the four GH200: 6 of the 18"
    " links)",
)
XGMI5 = XgmiPart(
    link=XgmiLink(generation=5, links=1),
    most_gpus=8,
    source="AMD's MI355X page (153 GB/s a link both ways), as others quote it; eight fully connected by seven links"
    " each: not verified, as MI300X are",
)
# Dies of one package have four links; the joined pairs of the others are from RCCL's model of such a node.
_MI250X_LINKS = (
    (0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4), (0, 6, 2), (2, 4, 2),
    (0, 2, 1), (4, 6, 1), (1, 3, 1), (1, 5, 1), (3, 7, 1), (5, 7, 1),
)  # fmt: skip
XGMI_MI250X = XgmiPart(
    link=XgmiLink(generation=3, links=1),
    most_gpus=8,
    pairs=_MI250X_LINKS,
    source="OLCF, Frontier User Guide (four links between the dies of a package, one or two between others); ROCm/rccl,"
    " tools/topo_expl/models/topo_8p_90a.xml (which dies are joined); two pairs have two links (ROCm documentation, AMD"
    " Instinct MI250 microarchitecture): that they are 0-6 and 2-4 in RCCL's numbering is assumed",
)
XGMI_MI300A = XgmiPart(
    link=XgmiLink(generation=4, links=2),
    most_gpus=4,
    source="LLNL, El Capitan systems (four MI300A fully connected, two Infinity Fabric links between two of them, 256"
    " GB/s both ways)",
)
