"""The sockets of the named machines. Memory sizes are those of one maker's machine."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.devices import SmpLink
from railwright.topology.parts import Cpuid
from railwright.topology.shapes.parts import CpuPart, Memory
from railwright.units import GIB

SAPPHIRE_RAPIDS = CpuPart(
    name="Intel Xeon Platinum 8480C",
    cpuid=Cpuid("GenuineIntel", family=6, model=143),
    cores=56,
    memory=Memory(1024 * GIB, channels=8, transfers_per_s=4.8e9),
    smp=SmpLink(name="UPI", links=4, gt_per_s=16.0),
    source="MLPerf Inference v4.1, NVIDIA, systems/H200-SXM-141GBx8_TRT_MaxQ.json (two 8480C, 56 cores, 32x 64 GB);"
    " Intel ARK, Xeon Platinum 8480+ (8 channels DDR5-4800, 4 UPI links of 16 GT/s), the same die",
)
EMERALD_RAPIDS = replace(
    SAPPHIRE_RAPIDS,
    name="INTEL(R) XEON(R) PLATINUM 8570",
    cpuid=Cpuid("GenuineIntel", family=6, model=207),
    memory=Memory(1024 * GIB, channels=8, transfers_per_s=5.6e9),
    smp=SmpLink(name="UPI", links=4, gt_per_s=20.0),
    source="NVIDIA DGX B200 User Guide, Hardware Overview (two Xeon Platinum 8570, 112 cores, 2 TB); Intel ARK, Xeon"
    " Platinum 8570 (8 channels DDR5-5600, 4 UPI links of 20 GT/s)",
)
ROME = CpuPart(
    name="AMD EPYC 7742 64-Core Processor",
    cpuid=Cpuid("AuthenticAMD", family=23, model=49),
    cores=64,
    memory=Memory(512 * GIB, channels=8, transfers_per_s=3.2e9),
    smp=SmpLink(name="xGMI"),
    source="NVIDIA DGX A100 User Guide, Introduction (two EPYC 7742, 1 TB); AMD EPYC 7742 product page (8 channels"
    " DDR4-3200). Boards differ in how many xGMI links they wire, so that is left open",
)
DGX_A100_ROME = replace(
    ROME,
    memory=Memory(1024 * GIB, channels=8, transfers_per_s=3.2e9),
    source="NVIDIA DGX A100 User Guide, Introduction (640 GB system: two EPYC 7742, 2 TB); AMD EPYC 7742 product page"
    " (8 channels DDR4-3200)",
)
GENOA_9374F = CpuPart(
    name="AMD EPYC 9374F 32-Core Processor",
    cpuid=Cpuid("AuthenticAMD", family=25, model=17),
    cores=32,
    memory=Memory(768 * GIB, channels=12, transfers_per_s=4.8e9),
    smp=SmpLink(name="xGMI"),
    source="MLPerf Inference v4.1, AMD, systems/8xMI300X_2xEPYC-9374F.json (two EPYC 9374F, 24x 64 GB); AMD EPYC 9374F"
    " product page (12 channels DDR5-4800)",
)
GRACE = CpuPart(
    name="NVIDIA Grace",
    cpuid=Cpuid("0x41", architecture="arm64"),
    cores=72,
    memory=Memory(480 * GIB),
    source="NVIDIA GH200 Grace Hopper Superchip datasheet (72 Neoverse V2 cores, up to 480 GB LPDDR5X). Its memory"
    " bandwidth depends on the capacity (NVIDIA Grace Performance Tuning Guide, Basic System Health Checks), and no"
    " document gives the data rate of this one: left open",
)

AWS_P3DN = CpuPart(
    name="Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz",
    cpuid=Cpuid("GenuineIntel", family=6, model=85),
    cores=24,
    memory=Memory(384 * GIB, channels=6, transfers_per_s=2.666e9),
    smp=SmpLink(name="UPI"),
    source="Amazon EC2 P3 instances (p3dn.24xlarge: 96 vCPUs of Skylake 8175, 768 GiB); Intel ARK, Xeon Platinum 8100"
    " series (6 channels DDR4-2666). The 8175M is made for AWS: its UPI links are not published",
)
AWS_P4D = replace(
    AWS_P3DN,
    name="Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz",
    memory=Memory(576 * GIB, channels=6, transfers_per_s=2.933e9),
    source="AWS Compute Blog, Amazon EC2 P4d instances deep dive (two Cascade Lake 8275CL, 96 vCPUs, 1.1 TB); Intel"
    " ARK, Xeon Platinum 8200 series (6 channels DDR4-2933). The 8275CL is made for AWS: its UPI links are not"
    " published",
)
AWS_P5 = CpuPart(
    name="AMD EPYC 7R13 Processor",
    cpuid=Cpuid("AuthenticAMD", family=25, model=1),
    cores=48,
    memory=Memory(1024 * GIB, channels=8, transfers_per_s=3.2e9),
    smp=SmpLink(name="xGMI"),
    source="Amazon EC2 P5 instances (third-generation EPYC, 192 vCPUs, 2 TiB); AMD EPYC 7003 series (8 channels"
    " DDR4-3200, PCIe 4.0)",
)
AWS_P5EN = replace(
    SAPPHIRE_RAPIDS,
    name="Intel(R) Xeon(R) Platinum 8488C",
    cores=48,
    smp=SmpLink(name="UPI"),
    source="Amazon EC2 P5 instances (p5en: fourth-generation Xeon Scalable, PCIe 5.0, 192 vCPUs, 2 TiB); Intel ARK,"
    " fourth-generation Xeon Scalable (8 channels DDR5-4800). That AWS's part is the 8488C is assumed from its other"
    " machines of that generation, and the UPI links of it are not published",
)

AZURE_ROME = replace(
    ROME,
    name="AMD EPYC 7V12 64-Core Processor",
    cores=48,
    memory=Memory(450 * GIB, channels=8, transfers_per_s=3.2e9),
    source="Azure, ND A100 v4 series (96 cores of EPYC 7V12, 900 GiB), so 48 of a socket's 64 cores; AMD EPYC 7002"
    " series (8 channels DDR4-3200)",
)
AZURE_ROME_LARGE = replace(
    AZURE_ROME,
    memory=Memory(950 * GIB, channels=8, transfers_per_s=3.2e9),
    source="Azure, NDm A100 v4 series (96 cores of EPYC 7V12, 1900 GiB), so 48 of a socket's 64 cores; AMD EPYC 7002"
    " series (8 channels DDR4-3200)",
)
AZURE_SAPPHIRE_RAPIDS = replace(
    SAPPHIRE_RAPIDS,
    name="Intel(R) Xeon(R) Platinum 8480C",
    cores=48,
    memory=Memory(950 * GIB, channels=8, transfers_per_s=4.8e9),
    source="Azure, ND H100 v5 series (96 cores of fourth-generation Xeon, 1900 GiB), so 48 of a socket's 56 cores;"
    " Intel ARK, Xeon Platinum 8480+ (8 channels DDR5-4800, 4 UPI links of 16 GT/s)",
)

OCI_ROME = replace(
    ROME,
    name="AMD EPYC 7542 32-Core Processor",
    cores=32,
    memory=Memory(1024 * GIB, channels=8, transfers_per_s=3.2e9),
    source="OCI compute shapes, BM.GPU4.8 (EPYC 7542, 64 OCPUs, 2048 GB); AMD EPYC 7542 product page (8 channels"
    " DDR4-3200)",
)
OCI_MILAN = replace(
    AWS_P5,
    name="AMD EPYC 7J13 64-Core Processor",
    cores=64,
    source="OCI compute shapes, BM.GPU.A100-v2.8 (EPYC 7J13, 128 OCPUs, 2048 GB); AMD EPYC 7003 series (8 channels"
    " DDR4-3200)",
)
OCI_SAPPHIRE_RAPIDS = replace(
    SAPPHIRE_RAPIDS,
    name="Intel(R) Xeon(R) Platinum 8480+",
    source="OCI compute shapes, BM.GPU.H100.8 (Xeon Platinum 8480+, 112 OCPUs, 2048 GB); Intel ARK, Xeon Platinum 8480+"
    " (8 channels DDR5-4800, 4 UPI links of 16 GT/s)",
)

GCP_EMERALD_RAPIDS = replace(
    EMERALD_RAPIDS,
    name="Intel Xeon, fifth generation (Emerald Rapids)",
    memory=Memory(1476 * GIB, channels=8, transfers_per_s=5.6e9),
    smp=SmpLink(name="UPI"),
    source="Google Cloud, Accelerator-optimized machine family, A3 Ultra (224 vCPUs of Emerald Rapids, 2952 GB); Intel"
    " ARK, fifth-generation Xeon Scalable (8 channels DDR5-5600)",
)
GCP_SAPPHIRE_RAPIDS = replace(
    SAPPHIRE_RAPIDS,
    name="Intel Xeon, fourth generation (Sapphire Rapids)",
    cores=52,
    memory=Memory(936 * GIB, channels=8, transfers_per_s=4.8e9),
    smp=SmpLink(name="UPI"),
    source="Google Cloud, Accelerator-optimized machine family, A3 Mega (208 vCPUs of Sapphire Rapids, 1872 GB); Intel"
    " ARK, fourth-generation Xeon Scalable (8 channels DDR5-4800)",
)

RAPTOR_LAKE_H = CpuPart(
    name="Intel Core i7-13700H",
    cpuid=Cpuid("GenuineIntel", family=6, model=186),
    cores=14,
    memory=Memory(32 * GIB, channels=2, transfers_per_s=5.2e9),
    source="Intel ARK, Core i7-13700H (14 cores, 2 channels DDR5-5200); 32 GiB assumed",
)
DGX1_BROADWELL = CpuPart(
    name="Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz",
    cpuid=Cpuid("GenuineIntel", family=6, model=79),
    cores=20,
    memory=Memory(256 * GIB, channels=4, transfers_per_s=2.133e9),
    smp=SmpLink(name="QPI", links=2, gt_per_s=9.6),
    source="NVIDIA/nccl issue 671, topology of a DGX-1V (family 6, model 79); NVIDIA Technical Blog, NVIDIA DGX-1 (512"
    " GB DDR4-2133), as others quote it; not verified: E5-2698 v4, its 4 channels and 2 QPI links of 9.6 GT/s",
)
TRENTO = replace(
    AWS_P5,
    name="AMD EPYC 7A53 64-Core Processor",
    cores=64,
    memory=Memory(512 * GIB, channels=8, transfers_per_s=3.2e9),
    source="OLCF, Frontier User Guide (one 64-core third-generation EPYC, 512 GB DDR4); AMD EPYC 7003 series (8"
    " channels DDR4-3200)",
)
MI300A_CORES = replace(
    GENOA_9374F,
    name="AMD Instinct MI300A, its 24 cores",
    cores=24,
    memory=Memory(128 * GIB),
    source="LLNL, El Capitan systems (128 GB HBM3 a socket, which the GPU shares); TOP500, El Capitan (24 cores). The"
    " links between packages are those of its GPUs",
)
SPARK_ARM = replace(
    GRACE,
    name="NVIDIA GB10, its 20 Arm cores",
    cores=20,
    memory=Memory(128 * GIB),
    source="NVIDIA NIM documentation, Deploy on DGX Spark (128 GB LPDDR5x, which the GPU shares); owners count 20 Arm"
    " cores",
)
DGX_B300_GRANITE_RAPIDS = replace(
    EMERALD_RAPIDS,
    name="Intel(R) Xeon(R) 6776P",
    cpuid=Cpuid("GenuineIntel", family=6, model=173),
    cores=64,
    memory=Memory(1024 * GIB),
    smp=SmpLink(name="UPI"),
    source="NVIDIA's DGX B300 page (two Xeon 6776P), as others quote it; not verified: 64 cores, 2 TB. Memory"
    " channels and UPI links are left out",
)
AWS_P6_B200 = replace(
    EMERALD_RAPIDS,
    name="Intel Xeon, fifth generation (Emerald Rapids)",
    cores=48,
    smp=SmpLink(name="UPI"),
    source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b200: Intel, 192 vCPUs, 2 TiB); not"
    " verified: that it is of the fifth generation (8 channels DDR5-5600)",
)
AWS_P6_B300 = replace(
    AWS_P6_B200,
    name="Intel Xeon",
    memory=Memory(2048 * GIB),
    source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b300: Intel, 192 vCPUs, 4 TiB); which Xeon"
    " it is was not found, so memory channels and UPI links are left out",
)
