"""Machines that can be named: what they are made of, as data, each part with its source.

A shape is what one published machine of that kind has; anything that differs is a change (`hgx-h100 nics=2`).
A source that begins with "assumed" is our choice where makers differ, and says why it was taken.
"""

from __future__ import annotations

from typing import Literal

import msgspec

NicProtocol = Literal["ethernet", "infiniband"]

GIB = 2**30
GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""PCIe generation to transfers per lane (PCI Express Base Specification 6.0, section 1.2)."""


class CpuPart(msgspec.Struct, frozen=True, kw_only=True):
    """One socket."""

    name: str
    vendor: str
    architecture: str
    family: int
    model: int
    cores: int
    memory_bytes: int
    memory_channels: int
    memory_transfers_per_s: float
    smp_name: str = ""
    smp_links: int | None = None
    smp_gt_per_s: float | None = None
    source: str


class GpuPart(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and its PCIe link."""

    name: str
    compute_capability: str
    memory_bytes: int
    pcie_generation: int
    pcie_width: int
    source: str


class NvlinkPart(msgspec.Struct, frozen=True, kw_only=True):
    """NVLinks from each GPU to the NVSwitches, which the topology shows as one device."""

    generation: int
    links: int
    switch_chips: int
    source: str


class NicPart(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC port and its PCIe link. `mtu_bytes` is the netdev's for Ethernet, a packet's payload for InfiniBand."""

    name: str
    protocol: NicProtocol
    line_rate_bits_per_s: float
    mtu_bytes: dict[NicProtocol, int]
    rdma: bool
    pcie_generation: int
    pcie_width: int
    source: str


class DrivePart(msgspec.Struct, frozen=True, kw_only=True):
    """One NVMe drive on a root port of its own."""

    name: str
    size_bytes: int
    pcie_generation: int
    pcie_width: int
    source: str


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many of everything there are, and which GPUs share a PCIe switch."""

    sockets: int
    numa_per_socket: int
    gpus: int
    gpus_per_switch: int
    """0: every GPU and NIC has a root port of its own."""
    switch_name: str
    nics: int
    drives: int
    source: str


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: its parts and how they are laid out. MaxPayload in bytes."""

    title: str
    layout: Layout
    cpu: CpuPart
    gpu: GpuPart | None = None
    nvlink: NvlinkPart | None = None
    nic: NicPart
    drive: DrivePart
    max_payload_bytes: int = 256
    max_payload_source: str = (
        "assumed 256 B: with it PCIe 5.0 x16 allows 52.0 GB/s, as H100 machines measure"
        " (Azure ND H100 v5, nvbandwidth: 51 to 52 GB/s host to device)"
    )
    acs_redirect: bool = False
    acs_source: str = "NCCL user guide, Troubleshooting, PCI Access Control Services: to be off on bare metal"


_MLPERF_HOPPER = "MLPerf Inference v4.1, NVIDIA, systems/H200-SXM-141GBx8_TRT_MaxQ.json"
_HOPPER_LAYOUT = Layout(
    sockets=2,
    numa_per_socket=1,
    gpus=8,
    gpus_per_switch=1,
    switch_name="PCIe 5.0 switch",
    nics=8,
    drives=8,
    source="nvidia-smi topo -m of an 8x H100 machine in deepseek-ai/DeepEP issue 128: each GPU is PIX to one NIC of"
    " its own, four GPUs per NUMA node; the same in LY Corporation's lspci -tv (techblog.lycorp.co.jp, GPU servers)",
)
_SAPPHIRE_RAPIDS = CpuPart(
    name="Intel Xeon Platinum 8480C",
    vendor="GenuineIntel",
    architecture="x86_64",
    family=6,
    model=143,
    cores=56,
    memory_bytes=1024 * GIB,
    memory_channels=8,
    memory_transfers_per_s=4.8e9,
    smp_name="UPI",
    smp_links=4,
    smp_gt_per_s=16.0,
    source=f"{_MLPERF_HOPPER} (two 8480C, 56 cores, 32x 64 GB); Intel ARK, Xeon Platinum 8480+ (8 channels DDR5-4800,"
    " 4 UPI links of 16 GT/s), the same die",
)
_ROME = CpuPart(
    name="AMD EPYC 7742 64-Core Processor",
    vendor="AuthenticAMD",
    architecture="x86_64",
    family=23,
    model=49,
    cores=64,
    memory_bytes=512 * GIB,
    memory_channels=8,
    memory_transfers_per_s=3.2e9,
    smp_name="xGMI",
    source="NVIDIA DGX A100 User Guide, Introduction (two EPYC 7742, 1 TB); AMD EPYC 7742 product page (8 channels"
    " DDR4-3200). Boards differ in how many xGMI links they wire, so that is left open",
)
_NVLINK4 = NvlinkPart(
    generation=4,
    links=18,
    switch_chips=4,
    source=f"{_MLPERF_HOPPER}"
    " (18x 4th Gen NVLink, 900GB/s); NVIDIA H100 Tensor Core GPU Architecture (four NVSwitches)",
)
_CONNECTX7 = NicPart(
    name="NVIDIA Mellanox ConnectX-7",
    protocol="infiniband",
    line_rate_bits_per_s=400e9,
    mtu_bytes={"infiniband": 4096, "ethernet": 9000},
    rdma=True,
    pcie_generation=5,
    pcie_width=16,
    source="NVIDIA DGX H100/H200 User Guide, Network Connections (eight single-port ConnectX-7, 400 Gb/s InfiniBand or"
    " Ethernet, PCIe 5.0 x16); MTU assumed: the largest InfiniBand has, jumbo frames on Ethernet",
)
_CONNECTX6 = NicPart(
    name="NVIDIA Mellanox ConnectX-6",
    protocol="infiniband",
    line_rate_bits_per_s=200e9,
    mtu_bytes={"infiniband": 4096, "ethernet": 9000},
    rdma=True,
    pcie_generation=4,
    pcie_width=16,
    source="NVIDIA DGX A100 User Guide, Network Connections (eight single-port ConnectX-6, 200 Gb/s InfiniBand,"
    " PCIe 4.0 x16); MTU assumed: the largest InfiniBand has, jumbo frames on Ethernet",
)
_U2_DRIVE = DrivePart(
    name="NVMe SSD",
    size_bytes=3_840_000_000_000,
    pcie_generation=4,
    pcie_width=4,
    source="NVIDIA DGX H100/H200 User Guide, Hardware Overview (eight 3.84 TB NVMe U.2); PCIe 4.0 x4 assumed, what U.2"
    " drives of 2022 have; on root ports assumed, makers differ",
)

SHAPES: dict[str, Shape] = {
    "hgx-h100": Shape(
        title="8x H100 SXM with NVLink, a PCIe switch and a NIC for each GPU",
        layout=_HOPPER_LAYOUT,
        cpu=_SAPPHIRE_RAPIDS,
        gpu=GpuPart(
            name="NVIDIA H100 SXM5 80GB",
            compute_capability="9.0",
            memory_bytes=80 * GIB,
            pcie_generation=5,
            pcie_width=16,
            source="NVIDIA H100 Tensor Core GPU Architecture, table 3 (80 GB, PCIe Gen 5, compute capability 9.0)",
        ),
        nvlink=_NVLINK4,
        nic=_CONNECTX7,
        drive=_U2_DRIVE,
    ),
    "hgx-h200": Shape(
        title="8x H200 SXM with NVLink, a PCIe switch and a NIC for each GPU",
        layout=_HOPPER_LAYOUT,
        cpu=_SAPPHIRE_RAPIDS,
        gpu=GpuPart(
            name="NVIDIA H200 SXM 141GB",
            compute_capability="9.0",
            memory_bytes=141 * GIB,
            pcie_generation=5,
            pcie_width=16,
            source=f"{_MLPERF_HOPPER} (141 GB, PCIe Gen5 x16); compute capability: developer.nvidia.com/cuda-gpus",
        ),
        nvlink=_NVLINK4,
        nic=_CONNECTX7,
        drive=_U2_DRIVE,
    ),
    "hgx-a100": Shape(
        title="8x A100 SXM with NVLink, two GPUs and two NICs for each PCIe switch",
        layout=Layout(
            sockets=2,
            numa_per_socket=1,
            gpus=8,
            gpus_per_switch=2,
            switch_name="PCIe 4.0 switch",
            nics=8,
            drives=4,
            source="nvidia-smi topo -m of a DGX A100 in NVIDIA/nccl issue 1505: pairs of GPUs share two NICs; one NUMA"
            " node per socket assumed (that machine has four, numa-per-socket=4)",
        ),
        cpu=_ROME,
        gpu=GpuPart(
            name="NVIDIA A100 SXM4 80GB",
            compute_capability="8.0",
            memory_bytes=80 * GIB,
            pcie_generation=4,
            pcie_width=16,
            source="NVIDIA A100 Tensor Core GPU Architecture, table 4 (PCIe Gen 4, compute capability 8.0)",
        ),
        nvlink=NvlinkPart(
            generation=3,
            links=12,
            switch_chips=6,
            source="NVIDIA A100 Tensor Core GPU Architecture (12 third-generation links, 600 GB/s); DGX A100 User Guide"
            " (six NVSwitches)",
        ),
        nic=_CONNECTX6,
        drive=_U2_DRIVE,
    ),
    "pcie-8gpu": Shape(
        title="8 PCIe GPUs without NVLink, two sockets, four GPUs and a NIC for each PCIe switch",
        layout=Layout(
            sockets=2,
            numa_per_socket=1,
            gpus=8,
            gpus_per_switch=4,
            switch_name="PCIe 4.0 switch",
            nics=2,
            drives=2,
            source="Supermicro, 4U GPU System PCIe Root Architectures, SYS-4029GP-TRT (dual root: each CPU has half of"
            " the GPUs); one switch per CPU and one NIC on it assumed",
        ),
        cpu=_SAPPHIRE_RAPIDS,
        gpu=GpuPart(
            name="NVIDIA L40S",
            compute_capability="8.9",
            memory_bytes=48 * GIB,
            pcie_generation=4,
            pcie_width=16,
            source="NVIDIA L40S datasheet (48 GB, PCIe Gen4 x16, no NVLink); developer.nvidia.com/cuda-gpus",
        ),
        nic=NicPart(
            name="NVIDIA Mellanox ConnectX-6 Dx",
            protocol="ethernet",
            line_rate_bits_per_s=100e9,
            mtu_bytes={"infiniband": 4096, "ethernet": 9000},
            rdma=True,
            pcie_generation=4,
            pcie_width=16,
            source="NVIDIA ConnectX-6 Dx datasheet (PCIe 4.0 x16, 100 Gb/s ports); that this machine has it is assumed",
        ),
        drive=_U2_DRIVE,
    ),
    "laptop": Shape(
        title="one CPU, one NVMe drive, one Ethernet port, no GPU",
        layout=Layout(
            sockets=1,
            numa_per_socket=1,
            gpus=0,
            gpus_per_switch=0,
            switch_name="",
            nics=1,
            drives=1,
            source="assumed: what a laptop or small desktop of 2023 has",
        ),
        cpu=CpuPart(
            name="Intel Core i7-13700H",
            vendor="GenuineIntel",
            architecture="x86_64",
            family=6,
            model=186,
            cores=14,
            memory_bytes=32 * GIB,
            memory_channels=2,
            memory_transfers_per_s=5.2e9,
            source="Intel ARK, Core i7-13700H (14 cores, 2 channels DDR5-5200); 32 GiB assumed",
        ),
        nic=NicPart(
            name="Intel I226-V",
            protocol="ethernet",
            line_rate_bits_per_s=2.5e9,
            mtu_bytes={"infiniband": 4096, "ethernet": 1500},
            rdma=False,
            pcie_generation=2,
            pcie_width=1,
            source="Intel Ethernet Controller I225/I226 datasheet (2.5 Gb/s, PCIe 5 GT/s x1); 1500 B is Ethernet's own",
        ),
        drive=DrivePart(
            name="NVMe SSD",
            size_bytes=1_000_000_000_000,
            pcie_generation=4,
            pcie_width=4,
            source="assumed: PCIe 4.0 x4, 1 TB, what M.2 drives of 2023 have",
        ),
    ),
}
