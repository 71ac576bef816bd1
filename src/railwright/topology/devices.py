"""Topologies: devices, the links between them, and the paths over those links.

A topology holds facts only (generation, width, lanes, MTU). `limits` computes the rates that they allow,
so one formula with one source serves every machine.
All types are frozen and are exactly what `schema/topology.schema.json` describes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

SCHEMA_VERSION = 1

Scalar = str | int | float | bool

DeviceKind = Literal[
    "host",
    "cpu",  # the cores of one NUMA node: a CPU in NCCL's terms; fact `package` names the socket
    "memory",  # the memory of one NUMA node
    "root_port",
    "pcie_switch",
    "card",  # several PCI functions that share one PCIe link (a dual-port NIC)
    "gpu",
    "nvswitch",
    "nic",
    "drive",
    "fabric",  # everything beyond the NICs' ports
    "leaf",  # a switch that NICs are cabled to
    "spine",  # a switch between leaves
]

PathKind = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET"]
"""NCCL's path kinds, nearest first (NCCL src/graph/topo.h)."""

GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""PCIe generation to transfers per lane (PCI Express Base Specification 6.0, section 1.2)."""

SourceKind = Literal["live", "capture", "saved", "shape"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A value kept in files: defaults are omitted when written, unknown fields are refused when read."""


class Device(Record, frozen=True, kw_only=True):
    """A device that data can start from, pass through or end at."""

    id: str
    """Unique in the topology: kind and index, like `gpu0`; a drive keeps its kernel name (`nvme0n1`)."""
    kind: DeviceKind
    name: str = ""
    """The name that the machine reports, like `NVIDIA H100 80GB HBM3`; empty if unknown."""
    address: str = ""
    """PCI address with domain, like `0000:1b:00.0`; empty for devices that are not on PCI."""
    numa: int | None = None
    """NUMA node, None if unknown."""
    facts: dict[str, Scalar] = {}
    """Further facts; names carry units (`memory_bytes`, `line_rate_bits_per_s`)."""


class PcieLink(Record, frozen=True, kw_only=True, tag="pcie"):
    """A trained PCIe link. None means unknown, never a guess."""

    gt_per_s: float | None = None
    width: int | None = None
    max_gt_per_s: float | None = None
    max_width: int | None = None
    max_payload_bytes: int | None = None
    max_read_request_bytes: int | None = None
    max_payload_supported_bytes: int | None = None
    """The MaxPayload that both ends support; a path to the CPU supports the minimum of its links."""
    acs_redirect: bool | None = None
    """True if Access Control Services send peer-to-peer requests up to the root complex."""
    assumed: str = ""
    """The option that gives its rate, such as `drive-pcie=5`, if a shape assumes it; empty if it is known."""
    payload_assumed: bool = False
    """Whether a shape assumes MaxPayload."""


class NvlinkLink(Record, frozen=True, kw_only=True, tag="nvlink"):
    """All NVLinks between two devices taken together."""

    generation: int
    links: int
    max_links: int | None = None
    assumed: str = ""
    """The option that gives the generation, if it is assumed from the number of links; the rate is a lower bound."""


class XgmiLink(Record, frozen=True, kw_only=True, tag="xgmi"):
    """All Infinity Fabric links between two AMD GPUs taken together; RCCL calls them XGMI. Or links of another name."""

    generation: int
    links: int
    name: str = ""
    """The links' name if they are not Infinity Fabric, such as the Ethernet between Gaudi accelerators."""
    bytes_per_s: float | None = None
    """The rate of one link in each direction if they are not Infinity Fabric."""


class C2cLink(Record, frozen=True, kw_only=True, tag="c2c"):
    """NVLink-C2C between a Grace CPU and its GPU."""

    generation: int = 1
    bytes_per_s: float | None = None
    """The GPU's own rate in each direction, where it is known. Two GPUs of a module have half of it each."""


class SmpLink(Record, frozen=True, kw_only=True, tag="smp"):
    """A link between two NUMA nodes: UPI, xGMI, or the mesh of a socket."""

    name: str = ""
    links: int | None = None
    gt_per_s: float | None = None
    distance: int | None = None
    """ACPI SLIT distance, 10 = local."""


class MemoryLink(Record, frozen=True, kw_only=True, tag="memory"):
    """The memory channels of one NUMA node."""

    channels: int | None = None
    transfers_per_s: float | None = None
    bus_bytes: int | None = None
    assumed: str = ""
    """The option that gives the channels, if a shape assumes that each has a module of the fastest kind."""


class EthernetLink(Record, frozen=True, kw_only=True, tag="ethernet"):
    """A NIC's Ethernet port; RDMA over it is RoCEv2."""

    line_rate_bits_per_s: float | None = None
    mtu_bytes: int | None = None
    rdma: bool = False
    assumed: str = ""
    """The option that gives the port's MTU or rate, such as `mtu=1500`, if it is assumed; empty if it is known."""


class InfinibandLink(Record, frozen=True, kw_only=True, tag="infiniband"):
    """A host channel adapter's InfiniBand port."""

    line_rate_bits_per_s: float | None = None
    mtu_bytes: int | None = None
    assumed: str = ""
    """The option that gives the port's MTU or rate, such as `mtu=2048`, if it is assumed; empty if it is known."""


class EfaLink(Record, frozen=True, kw_only=True, tag="efa"):
    """A port of an Elastic Fabric Adapter, which speaks SRD."""

    line_rate_bits_per_s: float | None = None
    mtu_bytes: int | None = None
    """The MTU of the network, as for Ethernet."""
    assumed: str = ""
    """The option that gives the port's rate, if it is assumed; empty if it is known."""


ETHERNET_MTU, INFINIBAND_MTU = "mtu=1500", "mtu=2048"
"""The options that give the MTU of a port whose MTU is assumed to be the largest that is usual."""


class InternalLink(Record, frozen=True, kw_only=True, tag="internal"):
    """A link inside a chip or a hypervisor, without a published limit."""

    name: str = ""


NetworkLink = EthernetLink | InfinibandLink | EfaLink
"""A link that leads from a NIC's port out of the machine."""
Protocol = PcieLink | NvlinkLink | XgmiLink | C2cLink | SmpLink | MemoryLink | NetworkLink | InternalLink


GPU_LINKS = (NvlinkLink, XgmiLink)
"""The protocols of direct links between GPUs of any maker."""


class Link(Record, frozen=True, kw_only=True):
    """A link between two devices, both ways unless `one_way` (then only from `a` to `b`)."""

    a: str
    b: str
    protocol: Protocol
    one_way: bool = False

    @property
    def id(self) -> str:
        """The link's id: `gpu0--switch1`, or `gpu0->switch1` for one direction."""
        return f"{self.a}->{self.b}" if self.one_way else f"{self.a}--{self.b}"


class Unknown(Record, frozen=True, kw_only=True):
    """A fact that could not be read, and the reason: `what` is a device or file, `why` a clause."""

    what: str
    why: str


class Topology(Record, frozen=True, kw_only=True, dict=True):
    """A machine, or a cluster of machines."""

    name: str
    source: SourceKind
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    unknown: tuple[Unknown, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def of_kind(self, *kinds: DeviceKind) -> tuple[Device, ...]:
        """Return the devices of the given kinds, in the topology's order."""
        if len(kinds) == 1:
            return self._devices_by_kind.get(kinds[0], ())
        return tuple(device for device in self.devices if device.kind in kinds)

    def device(self, device_id: str) -> Device | None:
        """Return the device with that id, or None."""
        return self._devices_by_id.get(device_id)

    @cached_property
    def is_described(self) -> bool:
        """Whether this is a shape, even a saved one, and not a real machine: it has no settings."""
        saved_shape = self.source == "saved" and any("shape" in host.facts for host in self.of_kind("host"))
        return self.source == "shape" or saved_shape

    @cached_property
    def joins_gpus(self) -> bool:
        """Whether NVLink or Infinity Fabric joins GPUs of the machine."""
        return any(isinstance(link.protocol, GPU_LINKS) for link in self.links)

    @cached_property
    def rack_hosts(self) -> int:
        """The number of hosts that share NVSwitches in a rack like GB200 NVL72; 1 if each host has its own."""
        host = self.device("host0")
        size = host.facts.get("nvlink_domain_hosts", 1) if host else 1
        return size if isinstance(size, int) and size > 0 else 1

    @cached_property
    def compute_major(self) -> int:
        """The major number of the GPUs' compute capability; 0 if unknown."""
        gpus = self.of_kind("gpu")
        major = str(gpus[0].facts.get("compute_capability", "")).partition(".")[0] if gpus else ""
        return int(major) if major.isdigit() else 0

    @cached_property
    def has_amd_gpus(self) -> bool:
        """Whether the GPUs are AMD's."""
        return any(gpu.facts.get("vendor") == "amd" for gpu in self.of_kind("gpu")[:1])

    @cached_property
    def has_amd_cpu(self) -> bool:
        """Whether a CPU is AMD's."""
        return any(cpu.facts.get("vendor") == "AuthenticAMD" for cpu in self.of_kind("cpu"))

    @cached_property
    def ports_out(self) -> tuple[tuple[Device, Link], ...]:
        """The NIC ports that lead out of the machine, in the order of their rails."""
        outward = (link for link in self.links if isinstance(link.protocol, NetworkLink))
        leaving = {end: link for link in outward for end in (link.a, link.b)}
        return tuple((device, leaving[device.id]) for device in self.of_kind("nic") if device.id in leaving)

    @cached_property
    def _devices_by_kind(self) -> dict[DeviceKind, tuple[Device, ...]]:
        kinds = dict.fromkeys(device.kind for device in self.devices)
        return {kind: tuple(device for device in self.devices if device.kind == kind) for kind in kinds}

    @cached_property
    def _devices_by_id(self) -> dict[str, Device]:
        return {device.id: device for device in reversed(self.devices)}


class Path(Record, frozen=True, kw_only=True):
    """The way from one device to another: its kind, the devices passed and the links used, in order."""

    kind: PathKind
    devices: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def id(self) -> str:
        """The path's id, such as `gpu0>nic0`."""
        return f"{self.devices[0]}>{self.devices[-1]}"
