"""The words in which a topology is shown, the same in the terminal and in the picture."""

from __future__ import annotations

from collections import defaultdict

from railwright.topology.model import (
    C2cLink,
    Device,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    Link,
    MemoryLink,
    NvlinkLink,
    PathKind,
    PcieLink,
    Protocol,
    SmpLink,
    Topology,
    XgmiLink,
)
from railwright.units import format_line_rate, format_size

GENERATION_OF_GT_PER_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}

# GPUDirect RDMA by default up to PXB, and P2C (NCCL src/graph/paths.cc, ncclTopoCheckGdr).
KIND_MEANING: dict[PathKind, str] = {
    "LOC": "the same device",
    "NVL": "NVLink or Infinity Fabric",
    "NVB": "NVLink or Infinity Fabric through another GPU",
    "C2C": "NVLink-C2C between CPU and GPU",
    "PIX": "one PCIe switch between them: GPUDirect RDMA",
    "PXB": "several PCIe switches, no CPU: GPUDirect RDMA",
    "P2C": "NVLink-C2C, then PCIe: GPUDirect RDMA",
    "PXN": "NVLink to a GPU that is nearer",
    "PHB": "through the CPU: no GPUDirect RDMA by default",
    "SYS": "from one NUMA node to another",
    "NET": "over the network",
}


def clean(text: str) -> str:
    """Text from a file that somebody sent, safe for a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)[:200]


class Tree:
    """The devices of a topology as a tree: each below the device that joins it to a CPU."""

    def __init__(self, topology: Topology) -> None:
        self.devices = {device.id: device for device in topology.devices}
        self._below: dict[str, list[tuple[Device, Link]]] = defaultdict(list)
        self.sideways: list[Link] = []
        """NVLink, Infinity Fabric, links between sockets, and C2C beside PCIe, which belong to no branch."""
        self.port: dict[str, Link] = {}
        """The network link of each NIC."""
        upper: dict[str, str] = {}
        sideways = (NvlinkLink, XgmiLink, SmpLink)
        # A GPU that hangs from PCIe stays there; one that only NVLink-C2C joins to a CPU hangs from that.
        on_pcie = {link.b for link in topology.links if isinstance(link.protocol, PcieLink)}
        for link in topology.links:
            a, b = self.devices.get(link.a), self.devices.get(link.b)
            if a is None or b is None:
                continue
            second_way = isinstance(link.protocol, C2cLink) and (b.id in on_pcie or b.kind != "gpu")
            if isinstance(link.protocol, EthernetLink | InfinibandLink | EfaLink):
                self.port[a.id if a.kind == "nic" else b.id] = link
            elif isinstance(link.protocol, sideways) or second_way or b.id in upper or a.id == b.id:
                self.sideways.append(link)
            else:
                upper[b.id] = a.id
                self._below[a.id].append((b, link))
        self.roots = [device for device in topology.devices if device.kind == "cpu" and device.id not in upper]
        seen: set[str] = set()
        for root in self.roots:
            self._mark(root.id, seen)
        seen |= {end for link in self.sideways for end in (link.a, link.b) if self.devices[end].kind == "nvswitch"}
        self.detached = [
            device for device in topology.devices if device.id not in seen and device.kind not in ("host", "fabric")
        ]
        """Devices that no CPU leads to."""

    def _mark(self, device_id: str, seen: set[str]) -> None:
        pending = [device_id]
        while pending:
            current = pending.pop()
            if current not in seen:
                seen.add(current)
                pending += [device.id for device, _ in self._below[current]]

    def below(self, device: Device) -> list[tuple[Device, Link]]:
        """What hangs from a device, memory first, else in PCI address order."""
        return sorted(self._below[device.id], key=lambda pair: (pair[0].kind != "memory", pair[0].address))


def describe_device(device: Device) -> str:
    """Name and the facts that matter, without the id: `NVIDIA H100 SXM5 80GB  0000:1b:00.0`."""
    facts = device.facts
    words: list[str] = []
    if device.kind == "cpu":
        words.append(device.name)
        if "package" in facts:
            words.append(f"socket {facts['package']}")
        if "cores" in facts:
            words.append(f"{facts['cores']} cores")
    elif device.kind in ("memory", "drive"):
        words.append(device.name)
        if isinstance(size := facts.get("size_bytes"), int | float):
            words.append(format_size(size))
    elif device.kind == "nic":
        names = [str(facts[key]) for key in ("netdev", "rdma_device") if key in facts]
        words += [device.name, "/".join(names)]
    else:
        words.append(device.name)
    words.append(device.address)
    return clean("  ".join(word for word in words if word))


def describe_link(protocol: Protocol) -> str:
    """`PCIe 5.0 x16`, `4x NVLink 3`, `Ethernet 400 Gb/s, MTU 9000`; `?` for what the machine does not say."""
    match protocol:
        case PcieLink():
            return _pcie(protocol.gt_per_s, protocol.width)
        case NvlinkLink():
            return f"{protocol.links}x NVLink {protocol.generation}"
        case XgmiLink():
            return f"{protocol.links}x Infinity Fabric {protocol.generation}"
        case C2cLink():
            return "NVLink-C2C"
        case SmpLink():
            links = f"{protocol.links}x " if protocol.links else ""
            speed = f" {protocol.gt_per_s:g} GT/s" if protocol.gt_per_s else ""
            distance = f"distance {protocol.distance}" if protocol.distance else ""
            return ", ".join(
                part for part in (f"{links}{clean(protocol.name) or 'socket link'}{speed}", distance) if part
            )
        case MemoryLink():
            return _memory(protocol)
        case EthernetLink():
            kind = "RoCE" if protocol.rdma else "Ethernet"
            return _port(kind, protocol.line_rate_bits_per_s, protocol.mtu_bytes)
        case InfinibandLink():
            return _port("InfiniBand", protocol.line_rate_bits_per_s, protocol.mtu_bytes)
        case EfaLink():
            return _port("EFA", protocol.line_rate_bits_per_s, protocol.mtu_bytes)
        case _:
            # Every root port hangs from a root complex; saying so on each line hides what differs.
            return "" if protocol.name == "root complex" else clean(protocol.name)


def degradation(link: PcieLink | NvlinkLink, lower: Device | None) -> str:
    """What the link could do and does not, empty for a healthy or an unknown one.

    A GPU without work lowers the speed of its own link, so that its speed alone proves nothing; its width does.
    """
    if isinstance(link, NvlinkLink):
        return f"of {link.max_links} links" if link.max_links and link.links < link.max_links else ""
    slow = link.gt_per_s is not None and link.max_gt_per_s is not None and link.gt_per_s < link.max_gt_per_s
    narrow = link.width is not None and link.max_width is not None and link.width < link.max_width
    if not slow and not narrow:
        return ""
    could = f"could be {_pcie(link.max_gt_per_s or link.gt_per_s, link.max_width or link.width)}"
    if slow and not narrow and lower is not None and lower.kind == "gpu":
        return f"{could}; an idle GPU lowers it"
    return could


def _pcie(gt_per_s: float | None, width: int | None) -> str:
    if gt_per_s is None and width is None:
        return "PCIe"
    generation = GENERATION_OF_GT_PER_S.get(gt_per_s) if gt_per_s is not None else None
    speed = f"{generation}.0" if generation else f"{gt_per_s:g} GT/s" if gt_per_s else "?"
    return f"PCIe {speed} x{width if width is not None else '?'}"


def _memory(link: MemoryLink) -> str:
    if link.channels is None and link.transfers_per_s is None:
        return ""
    channels = f"{link.channels} channels" if link.channels is not None else "? channels"
    return f"{channels}, {link.transfers_per_s / 1e6:.0f} MT/s" if link.transfers_per_s else channels


def _port(kind: str, rate_bits_per_s: float | None, mtu_bytes: int | None) -> str:
    rate = format_line_rate(rate_bits_per_s) if rate_bits_per_s else "rate unknown"
    return f"{kind} {rate}" + (f", MTU {mtu_bytes}" if mtu_bytes else "")
