"""The words that describe a topology, shared by the terminal report and the picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from railwright.groups import group_by_key
from railwright.topology.devices import (
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
from railwright.topology.gpus import format_runs
from railwright.topology.paths import KIND_ORDER, Affinity
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
    """Replace unprintable characters by `?` and cut the text to 200 characters, so that any file can be shown."""
    return "".join(char if char.isprintable() else "?" for char in text)[:200]


class Tree:
    """The devices of a topology as a tree: each device is below the one that connects it to a CPU."""

    def __init__(self, topology: Topology) -> None:
        self.devices = {device.id: device for device in topology.devices}
        self._below: dict[str, list[tuple[Device, Link]]] = defaultdict(list)
        self.sideways: list[Link] = []
        """The links outside the tree: NVLink, Infinity Fabric, links between sockets, and C2C next to PCIe."""
        self.port: dict[str, Link] = {}
        """The network link of each NIC."""
        upper: dict[str, str] = {}
        sideways = (NvlinkLink, XgmiLink, SmpLink)
        # A GPU on PCIe stays there. A GPU that only NVLink-C2C connects to a CPU is placed below that link.
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
        seen = {root.id for root in self.roots}
        seen |= {device.id for root in self.roots for _, device, _ in self.walk(root)}
        seen |= {end for link in self.sideways for end in (link.a, link.b) if self.devices[end].kind == "nvswitch"}
        self.detached = [
            device for device in topology.devices if device.id not in seen and device.kind not in ("host", "fabric")
        ]
        """The devices that no CPU reaches."""

    def below(self, device: Device) -> list[tuple[Device, Link]]:
        """Return the devices directly below a device, memory first, then in PCI address order."""
        return sorted(self._below[device.id], key=lambda pair: (pair[0].kind != "memory", pair[0].address))

    def walk(self, root: Device) -> Iterator[tuple[int, Device, Link]]:
        """Yield all devices below a device in preorder, each with its depth, from 1 on, and its link upwards.

        A device has at most one parent and a root has none, so the walk ends.
        """
        pending = [(1, *pair) for pair in reversed(self.below(root))]
        while pending:
            depth, device, link = pending.pop()
            yield depth, device, link
            pending += [(depth + 1, *pair) for pair in reversed(self.below(device))]

    def group_sideways_links(self, describe: Callable[[Link], tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        """Yield the sideways links grouped by device and kind: `nvswitch0`, `gpu0-7`, `18x NVLink 4 each`."""
        for (first, words), links in group_by_key(self.sideways, describe):
            yield first, format_runs(link.b for link in links), f"{words}{' each' if len(links) > 1 else ''}"


def find_kinds(affinity: Affinity) -> list[PathKind]:
    """Return the kinds of path between GPUs and NICs, the nearest first."""
    kinds = {path.kind for path in affinity.paths.values() if path}
    return [kind for kind in KIND_ORDER if kind in kinds]


def find_acs_switches(affinity: Affinity) -> list[str]:
    """Return the switches on short paths between GPUs and NICs whose ports redirect that traffic to the CPU."""
    short = [path for path in affinity.paths.values() if path and path.kind in ("PIX", "PXB")]
    links = [link for path in short for link in path.links]
    return sorted({link.a for link in links if isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect})


def format_names(nic: Device, between: str) -> str:
    """Join the kernel's names of a NIC: its network interface and its RDMA device."""
    return between.join(str(nic.facts[key]) for key in ("netdev", "rdma_device") if key in nic.facts)


def describe_device(device: Device) -> str:
    """Describe a device by its name and main facts, without the id: `NVIDIA H100 SXM5 80GB  0000:1b:00.0`."""
    facts, words = device.facts, [device.name]
    if device.kind == "cpu":
        words += [f"socket {facts['package']}"] if "package" in facts else []
        words += [f"{facts['cores']} cores"] if "cores" in facts else []
    elif device.kind in ("memory", "drive") and isinstance(size := facts.get("size_bytes"), int | float):
        words.append(format_size(size))
    elif device.kind == "nic":
        words.append(format_names(device, "/"))
    return clean("  ".join(filter(None, (*words, device.address))))


def describe_link(protocol: Protocol) -> str:
    """Describe a link like `PCIe 5.0 x16` or `Ethernet 400 Gb/s, MTU 9000`, with `?` for unknown values."""
    match protocol:
        case PcieLink():
            return _pcie(protocol.gt_per_s, protocol.width) + (" (assumed)" if protocol.assumed else "")
        case NvlinkLink():
            return f"{protocol.links}x NVLink {protocol.generation}{' (assumed)' if protocol.assumed else ''}"
        case XgmiLink():
            return f"{protocol.links}x {clean(protocol.name) or f'Infinity Fabric {protocol.generation}'}"
        case C2cLink():
            return "NVLink-C2C"
        case SmpLink():
            links = f"{protocol.links}x " if protocol.links else ""
            speed = f" {protocol.gt_per_s:g} GT/s" if protocol.gt_per_s else ""
            distance = f", distance {protocol.distance}" if protocol.distance else ""
            return f"{links}{clean(protocol.name) or 'socket link'}{speed}{distance}"
        case MemoryLink():
            return _memory(protocol)
        case EthernetLink() | InfinibandLink() | EfaLink():
            return _port(protocol)
        case _:
            # Every root port is below a root complex; repeating that on each line would hide the differences.
            return "" if protocol.name == "root complex" else clean(protocol.name)


def describe_degradation(link: Protocol, lower: Device | None) -> str:
    """Describe the capability that a link does not use; empty for a healthy or an unknown link.

    An idle GPU lowers the speed of its own link, so only a reduced width proves a fault.
    """
    if isinstance(link, NvlinkLink):
        return f"of {link.max_links} links" if link.max_links and link.links < link.max_links else ""
    if not isinstance(link, PcieLink):
        return ""
    slow = link.gt_per_s is not None and link.max_gt_per_s is not None and link.gt_per_s < link.max_gt_per_s
    narrow = is_narrow(link)
    if not slow and not narrow:
        return ""
    idle = slow and not narrow and lower is not None and lower.kind == "gpu"
    could = _pcie(link.max_gt_per_s or link.gt_per_s, link.max_width or link.width)
    return f"could be {could}{'; an idle GPU lowers it' if idle else ''}"


def is_narrow(link: PcieLink) -> bool:
    """Report whether the link has fewer lanes than both ends support."""
    return link.width is not None and link.max_width is not None and link.width < link.max_width


def _pcie(gt_per_s: float | None, width: int | None) -> str:
    if gt_per_s is None and width is None:
        return "PCIe"
    generation = GENERATION_OF_GT_PER_S.get(gt_per_s or 0)
    speed = f"{generation}.0" if generation else f"{gt_per_s:g} GT/s" if gt_per_s else "?"
    return f"PCIe {speed} x{width if width is not None else '?'}"


def _memory(link: MemoryLink) -> str:
    if link.channels is None and link.transfers_per_s is None:
        return ""
    channels = f"{link.channels} channels" if link.channels is not None else "? channels"
    rate = f", {link.transfers_per_s / 1e6:.0f} MT/s" if link.transfers_per_s else ""
    return f"{channels}{rate}{' (assumed)' if link.assumed else ''}"


def _port(port: EthernetLink | InfinibandLink | EfaLink) -> str:
    kind = "InfiniBand" if isinstance(port, InfinibandLink) else "EFA"
    if isinstance(port, EthernetLink):
        kind = "RoCE" if port.rdma else "Ethernet"
    rate = format_line_rate(port.line_rate_bits_per_s) if port.line_rate_bits_per_s else "rate unknown"
    mtu = f", MTU {port.mtu_bytes}" if port.mtu_bytes else ""
    return (
        f"{kind} {rate} (assumed){mtu}"
        if port.assumed.startswith("nic")
        else f"{kind} {rate}{mtu}{' (assumed)' if port.assumed else ''}"
    )
