"""The description of a named machine: its parts, their numbers, and the parts that share a PCIe switch.

Every part names its source.
A source that begins with "assumed" is our choice where makers differ or say nothing, and gives the reason.
A fact is None where no document gives it: the links that need it then have no limit.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from railwright.topology.devices import MemoryLink, NetworkLink, NvlinkLink, SmpLink, XgmiLink
from railwright.topology.parts import Cpuid

_BUS_BYTES = 8


class Pcie(NamedTuple):
    """The speed and width that a PCIe link trains to."""

    generation: int | None = None
    width: int | None = None
    assumed: bool = False
    """Whether the generation is our choice, because no document gives it."""


class Memory(NamedTuple):
    """The memory of one socket."""

    size_bytes: int
    channels: int | None = None
    transfers_per_s: float | None = None
    assumed: bool = True
    """Whether every channel is taken to have the fastest modules: machines are sold with fewer and slower ones."""

    def link(self, nodes: int) -> MemoryLink:
        """Return the channels of one of `nodes` NUMA nodes."""
        if self.channels is None or self.transfers_per_s is None:
            return MemoryLink()
        return MemoryLink(
            channels=self.channels // nodes,
            transfers_per_s=self.transfers_per_s,
            bus_bytes=_BUS_BYTES,
            assumed=f"memory={self.channels}x{self.transfers_per_s / 1e6:.0f}" if self.assumed else "",
        )


class CpuPart(msgspec.Struct, frozen=True, kw_only=True):
    """A socket, named as in /proc/cpuinfo."""

    name: str
    cpuid: Cpuid
    cores: int
    memory: Memory
    smp: SmpLink = SmpLink()
    """The links to another socket."""
    source: str


class GpuMemory(NamedTuple):
    """The memory of one GPU, HBM or GDDR."""

    size_bytes: int
    bytes_per_s: float


class GpuPart(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU and its link to the CPU: PCIe, or NVLink-C2C if the two are one module."""

    name: str
    vendor: Literal["nvidia", "amd"] = "nvidia"
    compute_capability: str = ""
    """CUDA's compute capability; empty for AMD."""
    memory: GpuMemory
    fp64_tensor_flop_per_s: float | None = None
    """Dense FP64 on tensor or matrix cores; None without them."""
    attachment: Literal["pcie", "c2c"] = "pcie"
    c2c_bytes_per_s: float | None = None
    """The rate of the GPU's own NVLink-C2C in each direction, if it is not all of the CPU's."""
    pcie: Pcie = Pcie()
    integrated: bool = False
    """Whether CPU and GPU share a package and a memory, without a PCIe link between them."""
    source: str


class NvlinkPart(msgspec.Struct, frozen=True, kw_only=True):
    """NVLinks from each GPU: to the NVSwitches, which the topology shows as one device, or directly to other GPUs."""

    link: NvlinkLink
    """All NVLinks of a GPU together."""
    switch_chips: int = 0
    pairs: tuple[tuple[int, int, int], ...] = ()
    """(GPU, GPU, links) without a switch."""
    domain_hosts: int | None = None
    """Number of hosts that these NVLinks reach; None for this host alone."""
    source: str


class XgmiPart(msgspec.Struct, frozen=True, kw_only=True):
    """Infinity Fabric from each GPU directly to others."""

    link: XgmiLink
    """The links between two GPUs."""
    most_gpus: int
    pairs: tuple[tuple[int, int, int], ...] = ()
    """(GPU, GPU, links) if not all pairs of GPUs are joined alike."""
    source: str


class NicPart(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC port and the PCIe link of its card."""

    name: str
    port: NetworkLink
    gpudirect_tcp: bool = False
    """Whether NCCL's plugin for it moves TCP data to GPU memory past the kernel (GPUDirect-TCPX and TCPXO)."""
    ports_per_card: int = 1
    """Ports that share the PCIe link."""
    shares_port: bool = False
    """Whether all NICs of a host share one port: the rate of `port` is a NIC's share of it."""
    pcie: Pcie = Pcie()
    source: str


class DrivePart(msgspec.Struct, frozen=True, kw_only=True):
    """An NVMe drive on its own root port."""

    name: str = "NVMe SSD"
    size_bytes: int
    pcie: Pcie = Pcie()
    source: str


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of parts, and the GPUs that share a PCIe switch.

    Most of these machines have two sockets and eight GPUs.
    """

    sockets: int = 2
    numa_per_socket: int = 1
    gpus: int = 8
    gpus_per_switch: int
    """GPUs below a switch; 0 gives every GPU and NIC its own root port."""
    switch_name: str = "PCIe switch"
    uplink_generation: int | None = None
    uplink_assumed: bool = False
    """Whether that generation, or the GPU's, is our choice for the links to the CPU."""
    """PCIe generation from root port to switch if the CPU is older than the GPUs; None is the GPUs' own."""
    nics: int
    """Number of ports; a card may have several."""
    nics_on_root_ports: bool = False
    """Whether NICs are beyond the GPUs' switches, each on a root port of its own."""
    drives: int

    @property
    def nodes(self) -> int:
        """The number of NUMA nodes."""
        return self.sockets * self.numa_per_socket

    @property
    def switches(self) -> int:
        """The number of PCIe switches."""
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: its parts and their layout."""

    title: str
    aliases: tuple[str, ...] = ()
    """The vendor's names, as it writes them."""
    layout: Layout
    layout_source: str
    cpu: CpuPart
    gpu: GpuPart | None = None
    nvlink: NvlinkPart | None = None
    xgmi: XgmiPart | None = None
    several: tuple[tuple[int, str], ...] = ()
    """(GPUs, the shape of a machine with that number) if their links differ."""
    nic: NicPart
    drive: DrivePart | None = None
    max_payload_bytes: int = 256
    """Assumed: with it PCIe 5.0 x16 allows 52.0 GB/s, as H100 machines measure (Azure ND H100 v5, nvbandwidth: 51 to
    52 GB/s host to device), and PCIe 4.0 x16 26.0 GB/s, as A100 machines measure (Azure ND A100 v4: 26.28 GB/s)."""
    payload_assumed: bool = True
    acs_redirect: bool = False
    """Off, as it should be on bare metal (NCCL user guide, Troubleshooting, PCI Access Control Services)."""
    peer_to_peer: bool = True
    """Whether GPUs may reach each other's memory (NVIDIA CUDA C++ Programming Guide, Peer-to-Peer Memory Access; AMD
    ROCm, likewise); without it their data goes through the host's."""
    gpudirect_rdma: bool = True
    nccl_protocol: str = ""
    """The only protocol that NCCL may use (NCCL_PROTO): LL, LL128 or Simple; empty if NCCL chooses."""
