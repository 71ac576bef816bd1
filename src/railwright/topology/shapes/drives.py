"""The local NVMe drives of the named machines. Makers connect them in different places: root ports are assumed."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.shapes.parts import DrivePart, Pcie

U2_3T84 = DrivePart(
    size_bytes=3_840_000_000_000,
    pcie=Pcie(4, 4, assumed=True),
    source="NVIDIA DGX H100/H200 User Guide, Hardware Overview (eight 3.84 TB NVMe U.2); PCIe 4.0 x4 assumed, what U.2"
    " drives of 2022 have; on root ports assumed, makers differ",
)
DGX_A100_3T84 = replace(
    U2_3T84,
    pcie=Pcie(4, 4),
    source="NVIDIA DGX A100 User Guide, Introduction (640 GB system: eight 3.84 TB NVMe U.2, PCIe 4.0); on root ports"
    " assumed",
)
DGX_B200_3T84 = replace(
    U2_3T84,
    source="NVIDIA DGX B200 User Guide, Hardware Overview (eight 3.84 TB NVMe U.2); PCIe 4.0 x4 assumed, what U.2"
    " drives of 2022 have; on root ports assumed",
)
AWS_900G = DrivePart(
    name="NVMe SSD Controller",
    size_bytes=900_000_000_000,
    source="Amazon EC2 P3 instances (p3dn.24xlarge: 2x 900 GB NVMe). AWS publishes no PCIe link of them",
)
AWS_1T = replace(
    AWS_900G,
    size_bytes=1_000_000_000_000,
    source="Amazon EC2 P4 instances (8x 1000 GB NVMe). AWS publishes no PCIe link of them, but that one reads at most"
    " 2.7 GB/s (AWS Compute Blog, Amazon EC2 P4d instances deep dive)",
)
AWS_3T84 = replace(
    AWS_900G,
    size_bytes=3_840_000_000_000,
    source="Amazon EC2 P5 instances (8x 3.84 TB NVMe). AWS publishes no PCIe link of them",
)
AWS_P6_3T8 = replace(
    AWS_900G,
    size_bytes=3_800_000_000_000,
    source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b200 and p6-b300: 30,400 GB of local NVMe);"
    " eight drives assumed, as P5 instances have. AWS publishes no PCIe link of them",
)
AZURE_3T5 = DrivePart(
    name="Microsoft NVMe Direct Disk",
    size_bytes=3_500 * 2**30,
    source="Azure, ND H100 v5 series (8 local NVMe drives, 28,000 GiB). Azure publishes no PCIe link of them",
)
AZURE_MI300X_3T5 = replace(
    AZURE_3T5,
    source="MicrosoftDocs/azure-compute-docs, ND MI300X v5 series (8 NVMe disks, 28,000 GiB). Azure publishes no PCIe"
    " link of them",
)
AZURE_GB200_4T = replace(
    AZURE_3T5,
    size_bytes=4 * 2**40,
    source="MicrosoftDocs/azure-compute-docs, ND GB200 v6 series (4 disks, 16 TiB NVMe). Azure publishes no PCIe link"
    " of them",
)
OCI_6T8 = DrivePart(
    size_bytes=6_800_000_000_000,
    pcie=Pcie(4, 4, assumed=True),
    source="OCI compute shapes, BM.GPU4.8 and BM.GPU.A100-v2.8 (27.2 TB NVMe, 4 drives); PCIe 4.0 x4 assumed, what"
    " drives of that size and year have; on root ports assumed",
)
OCI_3T84 = replace(
    U2_3T84,
    source="OCI compute shapes, BM.GPU.H100.8 (16x 3.84 TB NVMe); PCIe 4.0 x4 assumed, what drives of 2022 have; on"
    " root ports assumed",
)
OCI_EIGHT_3T84 = replace(
    U2_3T84,
    source="oci-hpc, healthchecks/active_healthcheck.py (BM.GPU.H200.8, B200.8 and MI300X.8: 8 NVMe drives); not"
    " verified: 3.84 TB; PCIe 4.0 x4 assumed, what drives of 2022 have; on root ports assumed",
)
FRONTIER_1T92 = DrivePart(
    size_bytes=1_920_000_000_000,
    source="OLCF, Frontier User Guide, NVMe (two of 1.92 TB, 5,500 MB/s together). It names no PCIe link of them; on"
    " root ports assumed",
)
GRACE_3T84 = replace(
    U2_3T84,
    source="NVIDIA NVL72 AI Factory reference architecture, compute tray (four E1.S NVMe drives); 3.84 TB and PCIe 4.0"
    " x4 assumed; on root ports assumed",
)
M2_1T = DrivePart(
    size_bytes=1_000_000_000_000,
    pcie=Pcie(4, 4, assumed=True),
    source="assumed: PCIe 4.0 x4, 1 TB, what M.2 drives of 2023 have",
)
