"""The PCI functions of a machine under /sys/devices.

Symbolic links are not followed. The tree is walked as the kernel nests it: the parent of a function is the directory
above it.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from railwright.topology.devices import PcieLink
from railwright.topology.sources import pci_names, text
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pci_config import ConfigSpace, PortType, read_config
from railwright.topology.sources.root import Root, Unreadable

DEVICES = "sys/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
# The parents of host bridges that are not at the top: device-tree machines and Hyper-V.
_HOLDER = re.compile(r"platform|LNXSYSTM:\d+|LNXSYBUS:\d+|ACPI\d+:\d+|MSFT1000:\d+|VMBUS:\d+|PNP0A0[38]:\w+"
                     r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|.*pci[e0-9]*.*|soc[\w:@]*|axi[\w:@]*")  # fmt: skip
_HOLDER_DEPTH = 7
_MAX_BRIDGE_DEPTH = 24
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
_SPEEDS_GT_PER_S = frozenset({2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0})


class PciFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function. None means unknown."""

    address: str
    path: str
    parent: PciFunction | None
    """The bridge above; None on a root bus."""
    entries: frozenset[str]
    """The names in its directory."""
    vendor: int
    device: int
    class_code: int
    """24 bits: class, subclass, programming interface."""
    numa: int | None
    """The NUMA node from the firmware, or else from the nearest bridge above."""
    driver: str
    config: ConfigSpace
    link: PcieLink
    """The speeds and widths of its own end."""

    @property
    def accelerator(self) -> Literal["gpu", "nvswitch"] | None:
        """The kind of accelerator: a GPU of NVIDIA or AMD, or an NVSwitch. The display of a VM or of a BMC is neither.

        An NVSwitch has the class `other bridge` (NCCL src/graph/xml.h: 0x068000).
        """
        kind, is_nvidia = self.class_code >> 8, self.vendor == pci_names.NVIDIA
        if is_nvidia and kind == 0x0680:
            return "nvswitch"
        # A BMC's Radeon of the PCI era has no PCIe link; a compute GPU without one does not exist.
        is_display = kind == 0x0300 and not is_nvidia and self.link.max_width is None
        is_compute = kind in (0x0300, 0x0302, 0x0380, 0x1200) and not is_display
        return "gpu" if is_compute and self.vendor in (pci_names.NVIDIA, pci_names.AMD) else None

    @property
    def is_bridge(self) -> bool:
        """Whether other functions can be below it (PCI-to-PCI bridge)."""
        return self.class_code >> 8 == 0x0604

    @property
    def bridges(self) -> list[PciFunction]:
        """The bridges between the function and the CPU, nearest first."""
        return [self.parent, *self.parent.bridges] if self.parent else []

    @property
    def role(self) -> PortType:
        """The kind of port of a bridge, from its PCIe capability, else from the alternation of bridges."""
        if self.parent is None:
            return "root_port"
        if self.config.port_type in ("root_port", "upstream", "downstream", "other_bridge"):
            return self.config.port_type
        above = self.parent.role
        if above == "upstream":
            return "downstream"
        return "upstream" if above in ("root_port", "downstream") else "other_bridge"

    @property
    def switch(self) -> PciFunction | None:
        """The upstream port of the switch that a downstream port belongs to."""
        return next((bridge for bridge in self.bridges if bridge.role == "upstream"), None)

    @property
    def package(self) -> str:
        """The address without its function: functions of one package share one PCIe link."""
        return self.address.rpartition(".")[0]

    @property
    def order(self) -> tuple[int, ...]:
        """The address as numbers, for sorting."""
        return tuple(int(part, 16) for part in re.split("[:.]", self.address))

    @property
    def name(self) -> str:
        """A name for people."""
        return pci_names.device_name(self.vendor, self.device)

    @property
    def is_virtual_function(self) -> bool:
        """Whether it is an SR-IOV virtual function whose physical function this kernel also sees."""
        return "physfn" in self.entries


def scan_pci(root: Root, notes: Notes) -> dict[str, PciFunction]:
    """Return all PCI functions by address, in address order. Raises nothing; unreadable ones go to `notes`."""
    found: dict[str, PciFunction] = {}
    top = root.list(DEVICES)
    if isinstance(top, Unreadable):
        notes.missing("PCI devices", f"/{DEVICES} {top.reason}")
        return {}
    for bridge in _host_bridges(root, DEVICES, top, 0):
        _scan_bus(root, bridge, None, 0, found, notes)
    return dict(sorted(found.items(), key=lambda item: item[1].order))


def _host_bridges(root: Root, path: str, names: tuple[str, ...], depth: int) -> list[str]:
    found = [f"{path}/{name}" for name in names if _HOST_BRIDGE.fullmatch(name)]
    if depth < _HOLDER_DEPTH:
        for name in names:
            if _HOLDER.fullmatch(name) and not _HOST_BRIDGE.fullmatch(name):
                found += _host_bridges(root, f"{path}/{name}", root.names(f"{path}/{name}"), depth + 1)
    return found


def _scan_bus(
    root: Root, path: str, parent: PciFunction | None, depth: int, found: dict[str, PciFunction], notes: Notes
) -> None:
    names = root.list(path)
    if isinstance(names, Unreadable):
        notes.unreadable(f"functions below /{path}", names)
        return
    if depth > _MAX_BRIDGE_DEPTH:
        notes.missing(f"functions below /{path}", f"more than {_MAX_BRIDGE_DEPTH} bridges above it")
        return
    for name in names:
        if ADDRESS.fullmatch(name) and name not in found:
            function = _read_function(root, f"{path}/{name}", parent, notes)
            if function is not None:
                found[name] = function
            if function is None or function.is_bridge:
                _scan_bus(root, f"{path}/{name}", function or parent, depth + 1, found, notes)
        elif _HOST_BRIDGE.fullmatch(name) and parent:
            # Intel VMD: drives are below their own host bridge inside a PCI function.
            _scan_bus(root, f"{path}/{name}", parent, depth + 1, found, notes)


def _read_function(root: Root, path: str, parent: PciFunction | None, notes: Notes) -> PciFunction | None:
    address = path.rpartition("/")[2]
    entries = root.list(path)
    if isinstance(entries, Unreadable):
        notes.missing("PCI function", f"its directory {entries.reason}", address)
        return None
    numbers = {name: text.number(root.read(f"{path}/{name}"), 16) for name in ("vendor", "device", "class")}
    vendor, device, class_code = numbers["vendor"], numbers["device"], numbers["class"]
    if vendor is None or device is None or class_code is None:
        lacking = ", ".join(name for name, value in numbers.items() if value is None)
        notes.missing("PCI function", f"{lacking} cannot be read", address)
        return None
    config = root.read_bytes(f"{path}/config")
    numa = text.number(root.read(f"{path}/numa_node"))
    driver = re.search(r"(?m)^DRIVER=(.{0,64})", root.text(f"{path}/uevent"))
    return PciFunction(
        address=address,
        path=path,
        parent=parent,
        entries=frozenset(entries),
        vendor=vendor,
        device=device,
        class_code=class_code,
        numa=numa if numa is not None and 0 <= numa < 4096 else parent.numa if parent else None,
        driver=driver.group(1) if driver else "",
        config=read_config(config if isinstance(config, bytes) else b""),
        link=PcieLink(
            gt_per_s=_parse_speed(root.text(f"{path}/current_link_speed")),
            width=_parse_width(root.read(f"{path}/current_link_width")),
            max_gt_per_s=_parse_speed(root.text(f"{path}/max_link_speed")),
            max_width=_parse_width(root.read(f"{path}/max_link_width")),
        ),
    )


def _parse_speed(answer: str) -> float | None:
    """Parse `32.0 GT/s PCIe` or, before Linux 5.7, `32 GT/s`; None for `Unknown`."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?", answer.strip())
    speed = float(match.group(1)) if match else None
    return speed if speed in _SPEEDS_GT_PER_S else None


def _parse_width(answer: str | Unreadable) -> int | None:
    """Return a lane count; None for 0 and 255, which the kernel shows without a link."""
    width = text.number(answer)
    return width if width in _WIDTHS else None
