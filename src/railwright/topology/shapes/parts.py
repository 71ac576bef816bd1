"""The description of a machine: its parts, their numbers, and the parts that share a PCIe switch.

These are the models of the TOML files in `catalogue/` and of a machine that a user writes, and of their schema.
Every fact of the catalogue names the document that gives it, or the reason why it is assumed.
A fact is left out where no document gives it: the links that need it then have no limit.

Annotations are values here: msgspec evaluates every one that is text, which takes longer than the files.
"""

from typing import Annotated, Literal

from msgspec import Meta

from railwright.topology.devices import MemoryLink, NetworkLink, NvlinkLink, Record, SmpLink, XgmiLink
from railwright.topology.parts import Cpuid
from railwright.units import GIB

_BUS_BYTES = 8
MOST_GPUS = 16
MOST_PORTS = 32
"""The largest number of NIC ports, and of drives."""

Name = Annotated[str, Meta(max_length=120)]
Text = Annotated[str, Meta(max_length=1000)]
Generation = Annotated[int, Meta(ge=1, le=6)]
Links = Annotated[int, Meta(ge=1, le=64)]
Number = Annotated[float, Meta(gt=0, le=1e9)] | None
MaybeGeneration = Generation | None
GpuIndex = Annotated[int, Meta(ge=0, lt=MOST_GPUS)]
Pairs = Annotated[tuple[tuple[GpuIndex, GpuIndex, Links], ...], Meta(max_length=MOST_GPUS * (MOST_GPUS - 1) // 2)]
"""(GPU, GPU, links) of each pair of GPUs that links join."""


class Source(Record, frozen=True, kw_only=True):
    """The source of some facts: a document, or the reason why they are assumed."""

    facts: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=40)]
    """Keys of the part, such as `pcie` or `memory.gib`. A key covers those below it."""
    document: Text = ""
    assumed: Text = ""


Sources = Annotated[tuple[Source, ...], Meta(max_length=40)]


class Part(Record, frozen=True, kw_only=True):
    """A part with the sources of its facts."""

    sources: Sources = ()

    @property
    def source(self) -> str:
        """All sources as one text."""
        return "; ".join(source.document or source.assumed for source in self.sources)


class Pcie(Record, frozen=True):
    """The speed and width that a PCIe link trains to."""

    generation: MaybeGeneration = None
    width: Annotated[int, Meta(ge=1, le=32)] | None = None
    assumed: bool = False
    """Whether limits name the generation as our choice, because no document gives it."""


class Memory(Record, frozen=True):
    """The memory of one socket."""

    gib: Number = None
    channels: Annotated[int, Meta(ge=1, le=64)] | None = None
    mt_per_s: Annotated[int, Meta(ge=100, le=100_000)] | None = None
    assumed: bool = False
    """Whether every channel is taken to have the fastest modules: machines are sold with fewer and slower ones."""

    @property
    def size_bytes(self) -> int | None:
        """The capacity, None if unknown."""
        return None if self.gib is None else int(self.gib * GIB)

    def link(self, nodes: int) -> MemoryLink:
        """Return the channels of one of `nodes` NUMA nodes."""
        if self.channels is None or self.mt_per_s is None or self.channels < nodes:
            return MemoryLink()
        return MemoryLink(
            channels=self.channels // nodes,
            transfers_per_s=self.mt_per_s * 1e6,
            bus_bytes=_BUS_BYTES,
            assumed=f"memory={self.channels}x{self.mt_per_s}" if self.assumed else "",
        )


class CpuPart(Part, frozen=True, kw_only=True):
    """A socket, named as in /proc/cpuinfo."""

    name: Name
    cpuid: Cpuid = Cpuid()
    cores: Annotated[int, Meta(ge=1, le=1024)] | None = None
    memory: Memory = Memory()
    smp: SmpLink = SmpLink()
    """The links to another socket."""


class GpuMemory(Record, frozen=True):
    """The memory of one GPU, HBM or GDDR."""

    gib: Number = None
    gb_per_s: Number = None

    @property
    def size_bytes(self) -> int | None:
        """The capacity, None if unknown."""
        return None if self.gib is None else int(self.gib * GIB)

    @property
    def bytes_per_s(self) -> float | None:
        """The bandwidth, None if unknown."""
        return None if self.gb_per_s is None else self.gb_per_s * 1e9


class GpuPart(Part, frozen=True, kw_only=True):
    """A GPU and its link to the CPU: PCIe, or NVLink-C2C if the two are one module."""

    name: Name
    vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    compute_capability: Annotated[str, Meta(pattern=r"^(\d{1,2}\.\d)?$")] = ""
    """CUDA's compute capability; empty for other makers."""
    memory: GpuMemory = GpuMemory()
    fp64_tensor_tflops: Number = None
    """Dense FP64 on tensor or matrix cores; left out without them."""
    attachment: Literal["pcie", "c2c"] = "pcie"
    c2c_gb_per_s: Number = None
    """The rate of the GPU's own NVLink-C2C in each direction, if it is not all of the CPU's."""
    pcie: Pcie = Pcie()
    integrated: bool = False
    """Whether CPU and GPU share a package and a memory, without a PCIe link between them."""

    @property
    def fp64_tensor_flop_per_s(self) -> float | None:
        """The FP64 rate of tensor or matrix cores."""
        return None if self.fp64_tensor_tflops is None else float(round(self.fp64_tensor_tflops * 1e12))


class NvlinkPart(Part, frozen=True, kw_only=True):
    """NVLinks from each GPU: to the NVSwitches, which the topology shows as one device, or directly to other GPUs."""

    generation: Generation
    links: Annotated[int, Meta(ge=1, le=36)]
    """All NVLinks of a GPU together."""
    max_links: Annotated[int, Meta(ge=1, le=36)] | None = None
    """The NVLinks that a GPU should have, if it has fewer."""
    switch_chips: Annotated[int, Meta(ge=0, le=64)] = 0
    pairs: Pairs = ()
    """(GPU, GPU, links) without a switch."""
    domain_hosts: Annotated[int, Meta(ge=2, le=1024)] | None = None
    """Number of hosts that these NVLinks reach; left out for this host alone."""

    @property
    def link(self) -> NvlinkLink:
        """The link of a GPU to the switches."""
        return NvlinkLink(generation=self.generation, links=self.links, max_links=self.max_links or self.links)


class XgmiPart(Part, frozen=True, kw_only=True):
    """Infinity Fabric from each GPU directly to others, or links of another name and rate."""

    generation: Generation = 1
    links: Links = 1
    """The links between two GPUs."""
    name: Name = ""
    gb_per_s: Number = None
    """The rate of one link in each direction, if the links are not Infinity Fabric."""
    most_gpus: Annotated[int, Meta(ge=2, le=MOST_GPUS)]
    pairs: Pairs = ()
    """(GPU, GPU, links) if not all pairs of GPUs are joined alike."""

    @property
    def link(self) -> XgmiLink:
        """The links between two GPUs."""
        rate = None if self.gb_per_s is None else self.gb_per_s * 1e9
        return XgmiLink(generation=self.generation, links=self.links, name=self.name, bytes_per_s=rate)


class NicPart(Part, frozen=True, kw_only=True):
    """A NIC port and the PCIe link of its card."""

    name: Name
    port: NetworkLink
    gpudirect_tcp: bool = False
    """Whether NCCL's plugin for it moves TCP data to GPU memory past the kernel (GPUDirect-TCPX and TCPXO)."""
    ports_per_card: Literal[1, 2, 4] = 1
    """Ports that share the PCIe link."""
    shares_port: bool = False
    """Whether all NICs of a host share one port: the rate of `port` is a NIC's share of it."""
    pcie: Pcie = Pcie()


class DrivePart(Part, frozen=True, kw_only=True):
    """An NVMe drive on its own root port."""

    name: Name = "NVMe SSD"
    gb: Number = None
    """The capacity in units of 10^9 bytes."""
    pcie: Pcie = Pcie()

    @property
    def size_bytes(self) -> int | None:
        """The capacity, None if unknown."""
        return None if self.gb is None else round(self.gb * 1e9)


class Layout(Record, frozen=True, kw_only=True):
    """The numbers of parts, and the GPUs that share a PCIe switch."""

    sockets: Literal[1, 2, 4, 8] = 2
    numa_per_socket: Literal[1, 2, 4] = 1
    gpus: Annotated[int, Meta(ge=0, le=MOST_GPUS)]
    gpus_per_switch: Annotated[int, Meta(ge=0, le=8)] = 0
    """GPUs below a switch; 0 gives every GPU and NIC its own root port."""
    switch_name: Name = "PCIe switch"
    uplink_generation: MaybeGeneration = None
    """PCIe generation from root port to switch if the CPU is older than the GPUs; left out, it is the GPUs' own."""
    uplink_assumed: bool = False
    """Whether that generation, or the GPU's, is our choice for the links to the CPU."""
    nics: Annotated[int, Meta(ge=0, le=MOST_PORTS)]
    """Number of ports; a card may have several."""
    nics_on_root_ports: bool = False
    """Whether NICs are beyond the GPUs' switches, each on a root port of its own."""
    drives: Annotated[int, Meta(ge=0, le=MOST_PORTS)] = 0

    @property
    def nodes(self) -> int:
        """The number of NUMA nodes."""
        return self.sockets * self.numa_per_socket

    @property
    def switches(self) -> int:
        """The number of PCIe switches."""
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


class ShapeFile(Part, frozen=True, kw_only=True):
    """A machine as its file describes it. A part is the name of one in the catalogue, or a table of its own."""

    title: Name
    layout: Layout
    cpu: Name | CpuPart
    gpu: Name | GpuPart | None = None
    nvlink: Name | NvlinkPart | None = None
    xgmi: Name | XgmiPart | None = None
    nic: Name | NicPart
    drive: Name | DrivePart | None = None
    max_payload_bytes: Literal[128, 256, 512, 1024, 2048, 4096] = 256
    """Assumed: with it PCIe 5.0 x16 allows 52.0 GB/s, as H100 machines measure (Azure ND H100 v5, nvbandwidth: 51 to
    52 GB/s host to device), and PCIe 4.0 x16 26.0 GB/s, as A100 machines measure (Azure ND A100 v4: 26.28 GB/s)."""
    payload_assumed: bool = True
    acs_redirect: bool = False
    """Off, as it should be on bare metal (NCCL user guide, Troubleshooting, PCI Access Control Services)."""
    peer_to_peer: bool = True
    """Whether GPUs may reach each other's memory (NVIDIA CUDA C++ Programming Guide, Peer-to-Peer Memory Access; AMD
    ROCm, likewise); without it their data goes through the host's."""
    gpudirect_rdma: bool = True
    gpudirect_offered: bool = True
    """False if the machine cannot use GPUDirect RDMA at all. Some clouds do not offer it, which is no fault."""
    nccl_protocol: Literal["", "LL", "LL128", "Simple"] = ""
    """The only protocol that NCCL may use (NCCL_PROTO); empty if NCCL chooses."""


class Shape(ShapeFile, frozen=True, kw_only=True):
    """A machine with all of its parts."""

    cpu: CpuPart
    gpu: GpuPart | None = None
    nvlink: NvlinkPart | None = None
    xgmi: XgmiPart | None = None
    nic: NicPart
    drive: DrivePart | None = None

    @property
    def layout_source(self) -> str:
        """The sources of the layout."""
        return self.source
