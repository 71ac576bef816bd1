"""The GPUs that the named machines have, and the links between them."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.devices import NvlinkLink, XgmiLink
from railwright.topology.shapes.parts import GpuMemory, GpuPart, NvlinkPart, Pcie, XgmiPart
from railwright.units import GIB

_CAPABILITY = "compute capability: developer.nvidia.com/cuda-gpus"

V100_32GB = GpuPart(
    name="Tesla V100-SXM2-32GB",
    compute_capability="7.0",
    memory=GpuMemory(32 * GIB, bytes_per_s=900e9),
    pcie=Pcie(3, 16),
    source=f"NVIDIA V100 datasheet (SXM2: 32 GB HBM2, 900 GB/s, no FP64 on tensor cores, PCIe Gen3); {_CAPABILITY}",
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
    source="NVIDIA GB200 NVL72 datasheet (72 GPUs: 13.4 TB HBM3e, 576 TB/s, FP64 Tensor Core 2,880 TFLOPS); MLPerf"
    " Inference v6.1, Crusoe, systems/GB200-NVL72_GB200-186GB_aarch64x16_Dynamo.json (186 GB, host over NVLink-C2C);"
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
