"""The NICs of the fabric that GPUs use. NICs for storage and management are left out: machines differ in them."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.topology.devices import ETHERNET_MTU, INFINIBAND_MTU, EfaLink, EthernetLink, InfinibandLink
from railwright.topology.shapes.parts import NicPart, Pcie

_MTU_SOURCE = "MTU assumed: the largest InfiniBand has, jumbo frames on Ethernet"
_RATE = "nic-rate=200Gb/s"
_ROCE_400G = EthernetLink(line_rate_bits_per_s=400e9, mtu_bytes=9000, rdma=True, assumed=ETHERNET_MTU)

CONNECTX7 = NicPart(
    name="NVIDIA Mellanox ConnectX-7",
    port=InfinibandLink(line_rate_bits_per_s=400e9, mtu_bytes=4096, assumed=INFINIBAND_MTU),
    pcie=Pcie(5, 16),
    source="NVIDIA DGX H100/H200 User Guide, Network Connections (eight single-port ConnectX-7, 400 Gb/s InfiniBand or"
    f" Ethernet, PCIe 5.0 x16); {_MTU_SOURCE}",
)
CONNECTX6 = NicPart(
    name="NVIDIA Mellanox ConnectX-6",
    port=InfinibandLink(line_rate_bits_per_s=200e9, mtu_bytes=4096, assumed=INFINIBAND_MTU),
    pcie=Pcie(4, 16),
    source="NVIDIA DGX A100 User Guide, Network Connections (eight single-port ConnectX-6, 200 Gb/s InfiniBand,"
    f" PCIe 4.0 x16); {_MTU_SOURCE}",
)
CONNECTX6_DX = NicPart(
    name="NVIDIA Mellanox ConnectX-6 Dx",
    port=EthernetLink(line_rate_bits_per_s=100e9, mtu_bytes=9000, rdma=True, assumed=_RATE),
    pcie=Pcie(4, 16),
    source="NVIDIA ConnectX-6 Dx datasheet (PCIe 4.0 x16, 100 Gb/s ports); that this machine has it is assumed",
)
ROCE_CONNECTX7 = replace(
    CONNECTX7,
    port=replace(_ROCE_400G, assumed=_RATE),
    source="NVIDIA ConnectX-7 datasheet (400 Gb/s, PCIe 5.0 x16); that this machine has one for each pair of GPUs is"
    f" assumed; {_MTU_SOURCE}",
)
GRACE_CONNECTX7 = replace(
    CONNECTX7,
    source="NVIDIA DGX GB200 User Guide, Hardware (four single-port ConnectX-7, 400 Gb/s, a compute tray);"
    f" NVIDIA ConnectX-7 datasheet (PCIe 5.0 x16); {_MTU_SOURCE}",
)
GH200_CONNECTX7 = replace(
    CONNECTX7,
    port=InfinibandLink(line_rate_bits_per_s=400e9, mtu_bytes=4096, assumed=_RATE),
    source="assumed: one 400 Gb/s ConnectX-7 a superchip, which the PCIe 5.0 x16 links of a GH200 carry; makers differ;"
    f" {_MTU_SOURCE}",
)

_EFA = "MTU: Amazon EC2 User Guide, Network MTU (jumbo frames of 9001 bytes)"
EFA_100G_GEN3 = NicPart(
    name="Elastic Fabric Adapter",
    port=EfaLink(line_rate_bits_per_s=100e9, mtu_bytes=9001),
    pcie=Pcie(3, 16),
    source=f"aws-ofi-nccl, topology/p4d-24xl-topo.xml (NICs at 8 GT/s x16); EC2 P4d (four of 100 Gb/s); {_EFA}",
)
EFA_P3DN = replace(
    EFA_100G_GEN3,
    pcie=Pcie(),
    source=f"Amazon EC2 P3 instances (p3dn.24xlarge: 100 Gb/s, EFA). AWS publishes no PCIe link of it; {_EFA}",
)
EFA_P5 = replace(
    EFA_100G_GEN3,
    pcie=Pcie(5, 16),
    source="aws-ofi-nccl, topology/p5.48xl-topo.xml (NICs at 32 GT/s x16, so that they are no bottleneck to NCCL); EC2"
    f" P5 (3200 Gb/s in 32 NICs); {_EFA}",
)
EFA_P5EN = replace(
    EFA_100G_GEN3,
    port=EfaLink(line_rate_bits_per_s=200e9, mtu_bytes=9001),
    pcie=Pcie(5, 8, assumed=True),
    source="Amazon EC2 P5 instances (p5en: third-generation EFA, 3200 Gb/s) and stas00/ml-engineering pull request 102"
    " (16 NICs of 200 Gb/s); PCIe 5.0 x8 assumed: NICs of 200 Gb/s measure 193.72 Gb/s, which takes that, or PCIe 4.0"
    f" x16, which is as fast; {_EFA}",
)

AZURE_HDR = replace(
    CONNECTX6,
    source="Azure, ND A100 v4 series (eight 200 Gb/s HDR InfiniBand, one a GPU); azhpc-images, topology/ndv4-topo.xml"
    f" (16 GT/s x16); {_MTU_SOURCE}",
)
AZURE_NDR = replace(
    CONNECTX7,
    source="Azure, ND H100 v5 and ND H200 v5 series (eight 400 Gb/s ConnectX-7 InfiniBand, one a GPU); azhpc-images,"
    f" topology/ndv5-topo.xml (32 GT/s x16); {_MTU_SOURCE}",
)

_OCI_MTU = "MTU 4220 assumed: a port of 100 Gb/s measures 98.01 Gb/s, which takes RoCE packets of 4096 bytes"
OCI_CONNECTX5 = NicPart(
    name="Mellanox ConnectX-5 Ex",
    port=EthernetLink(line_rate_bits_per_s=100e9, mtu_bytes=4220, rdma=True, assumed=ETHERNET_MTU),
    ports_per_card=2,
    pcie=Pcie(4, 16),
    source="OCI compute shapes, BM.GPU4.8 (8x 200 Gb/s RDMA: 16 ports of 100 Gb/s); oci-hpc, samples/gpu/"
    "topo-flattened.xml (cards at 16 GT/s x16, so the PCIe 4.0 ConnectX-5 Ex); oci-hpc, healthchecks/check_gpu_setup.py"
    f" (16 mlx5 devices); {_OCI_MTU}",
)
OCI_CONNECTX6_DX = replace(
    OCI_CONNECTX5,
    name="Mellanox ConnectX, dual port, 100 Gb/s",
    source="OCI compute shapes, BM.GPU.A100-v2.8 (16x 100 Gb/s RDMA); oci-hpc, samples/gpu/topo-flattened-b4.xml (cards"
    f" at 16 GT/s x16, two a pair of GPUs); which ConnectX it is OCI does not say; {_OCI_MTU}",
)
OCI_CONNECTX7 = replace(
    OCI_CONNECTX5,
    name="NVIDIA Mellanox ConnectX-7",
    port=EthernetLink(line_rate_bits_per_s=200e9, mtu_bytes=4220, rdma=True, assumed=ETHERNET_MTU),
    pcie=Pcie(5, 16),
    source="OCI compute shapes, BM.GPU.H100.8 (8x 2x 200 Gb/s RDMA); oci-hpc, samples/gpu/H100-topology.xml (device"
    f" 15b3:1021, two ports a card, 32 GT/s x16); {_OCI_MTU}",
)

GCP_CONNECTX7 = replace(
    CONNECTX7,
    port=EthernetLink(line_rate_bits_per_s=400e9, mtu_bytes=8896, rdma=True),
    source="Google Cloud, Networking and GPU machines, A3 Ultra (eight ConnectX-7, 3200 Gb/s, each aligned with one"
    " GPU; RoCE); Google Cloud, VPC (MTU up to 8896); NVIDIA ConnectX-7 datasheet (PCIe 5.0 x16)",
)
GCP_GVNIC_200G = NicPart(
    name="Google Virtual NIC",
    port=EthernetLink(line_rate_bits_per_s=200e9, mtu_bytes=8244),
    gpudirect_tcp=True,
    source="Google Cloud, Networking and GPU machines, A3 Mega (eight NICs of 200 Gb/s for GPUs, GPUDirect-TCPXO, MTU"
    " 8244). Google publishes no PCIe link of them",
)
MI300X_NIC = replace(
    CONNECTX7,
    pcie=Pcie(5, 16, assumed=True),
    port=_ROCE_400G,
    source="OCI compute shapes, BM.GPU.MI300X.8 (8x 400 Gb/s RDMA) and Azure, ND MI300X v5 series (eight 400 Gb/s, one"
    f" a GPU); PCIe 5.0 x16 assumed, what a port of 400 Gb/s needs; {_MTU_SOURCE}",
)
CONNECTX8 = NicPart(
    name="NVIDIA ConnectX-8",
    port=_ROCE_400G,
    ports_per_card=2,
    source="NVIDIA Technical Blog, NVIDIA ConnectX-8 SuperNICs Advance AI Platform Architecture with PCIe Gen6"
    " Connectivity (one NIC for two GPUs, 400 Gb/s a GPU): two ports of 400 Gb/s. It is part of the PCIe switch, so"
    f" there is no PCIe link between the two; {_MTU_SOURCE}",
)
I226 = NicPart(
    name="Intel I226-V",
    port=EthernetLink(line_rate_bits_per_s=2.5e9, mtu_bytes=1500),
    pcie=Pcie(2, 1),
    source="Intel Ethernet Controller I225/I226 datasheet (2.5 Gb/s, PCIe 5 GT/s x1); 1500 B is Ethernet's own",
)
B300_CONNECTX8 = replace(
    CONNECTX8,
    port=InfinibandLink(line_rate_bits_per_s=800e9, mtu_bytes=4096, assumed=INFINIBAND_MTU),
    ports_per_card=1,
    source="NVIDIA's DGX B300 page (eight single-port ConnectX-8 of 800 Gb/s), as stas00/ml-engineering quotes it."
    f" Each is its GPU's PCIe switch, so there is no PCIe link between the two; {_MTU_SOURCE}",
)
GB300_CONNECTX8 = replace(
    CONNECTX7,
    name="NVIDIA ConnectX-8",
    port=InfinibandLink(line_rate_bits_per_s=800e9, mtu_bytes=4096, assumed=INFINIBAND_MTU),
    pcie=Pcie(6, 16),
    source="MLPerf Inference v5.1, NVIDIA, systems/GB300-NVL72_GB300-288GB_aarch64x72_TRT.json (four ConnectX-8 for"
    " four GPUs); 800 Gb/s: NVIDIA InfiniBand adapters page, as others quote it; not verified: PCIe Gen6 x16;"
    f" {_MTU_SOURCE}",
)
SLINGSHOT = NicPart(
    name="HPE Slingshot 11",
    port=EthernetLink(line_rate_bits_per_s=200e9, mtu_bytes=9000, rdma=True, assumed=ETHERNET_MTU),
    pcie=Pcie(4, 16),
    source="OLCF, Frontier User Guide (200 Gb/s); ROCm/rccl, tools/topo_expl/models/topo_4p_940.xml (cxi: 200 Gb/s, 16"
    f" GT/s x16); its headers are taken as RoCE's; {_MTU_SOURCE}",
)
SPARK_CONNECTX7 = replace(
    ROCE_CONNECTX7,
    port=EthernetLink(line_rate_bits_per_s=100e9, mtu_bytes=9000, rdma=True, assumed=ETHERNET_MTU),
    pcie=Pcie(5, 4),
    shares_port=True,
    source="NVIDIA NIM documentation, Deploy on DGX Spark (ConnectX-7, 200 Gb/s, RoCE); ServeTheHome, The NVIDIA GB10"
    " ConnectX-7 200GbE Networking is Really Different (two PCIe 5.0 x4 links, each shown as a NIC of its own, which"
    f" share 200 Gb/s); {_MTU_SOURCE}",
)
EFA_P6 = replace(
    EFA_P5EN,
    port=EfaLink(line_rate_bits_per_s=400e9, mtu_bytes=9001),
    pcie=Pcie(5, 16, assumed=True),
    source="EC2's list of instance types, in aws/karpenter-provider-aws (p6-b200 3.2 Tb/s, p6-b300 6.4);"
    " stas00/ml-engineering, network (ports of 400 Gb/s, read from the devices of a p6-b200: 8, and 16 on p6-b300);"
    f" PCIe 5.0 x16 assumed, what a port of 400 Gb/s needs; {_EFA}",
)
DGX1_CONNECTX4 = replace(
    CONNECTX6,
    name="NVIDIA Mellanox ConnectX-4",
    port=InfinibandLink(line_rate_bits_per_s=100e9, mtu_bytes=4096, assumed=INFINIBAND_MTU),
    pcie=Pcie(3, 16),
    source="NVIDIA DGX-1 With Tesla V100 System Architecture white paper (four InfiniBand cards of 100 Gb/s), as others"
    f" quote it; not verified: ConnectX-4 on PCIe 3.0 x16; {_MTU_SOURCE}",
)
OCI_ROCE_400G = replace(
    ROCE_CONNECTX7,
    port=EthernetLink(line_rate_bits_per_s=400e9, mtu_bytes=4220, rdma=True, assumed=ETHERNET_MTU),
    source="oci-hpc, healthchecks/check_gpu_setup.py (BM.GPU.H200.8 and BM.GPU.B200.8: eight mlx5 devices); not"
    f" verified: 400 Gb/s and PCIe 5.0 x16, what ConnectX-7 has; {_OCI_MTU}",
)
GCP_GVNIC_A3_HIGH = replace(
    GCP_GVNIC_200G,
    source="Google Cloud, GPUDirect-TCPX (A3 High: four NICs of 200 Gb/s for GPUs), as stas00/ml-engineering quotes it;"
    " GoogleCloudPlatform/cluster-toolkit, examples/gke-a3-highgpu (MTU 8244). Google publishes no PCIe link of them",
)
