"""A topology as the XML file that NCCL reads from NCCL_TOPO_FILE.

In a VM the PCIe tree is not the real one. So the file has the tree of the bare-metal host, with the addresses of the
devices in the VM.
Names and rules follow NCCL src/graph/xml.cc and topo.cc (2026-06): root ports and downstream ports are left out, and a
switch has the address of its upstream port. NCCL fills in ranks, GPUDirect support and, if they are absent, NVLinks.
NCCL's parser supports no XML declaration, no entities and no line break within a tag.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import msgspec

from railwright.errors import UsageError
from railwright.report.text.topology_words import GENERATION_OF_GT_PER_S, Tree, is_narrow
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import (
    Device,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    Link,
    NvlinkLink,
    PcieLink,
    Topology,
)

XML_VERSION = "1"
"""NCCL_TOPO_XML_VERSION in src/graph/xml.h."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.,:/ -]")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MAX_VALUE = 254  # MAX_STR_LEN less the terminator
_PCI_BRIDGE = "0x060400"
_NVSWITCH = "0x068000"
_GPU = "0x03"
_MAX_CPUS = 65_536
_KINDS = frozenset({"gpu", "nic"})


def render_nccl_xml(topology: Topology, guest_addresses: Mapping[str, str] | None = None) -> str:
    """Render the file; `guest_addresses` maps a device's address on the host to its address in a VM.

    With guest addresses only the GPUs and NICs that have one are written, and switches get addresses that cannot be in
    use. CPU masks, device numbers and names are left out, since they differ in the VM and NCCL reads them there.
    Raises UsageError for a topology without GPUs or PCI addresses, for a host address that no GPU or NIC has, and for a
    malformed guest address.
    """
    if guest_addresses:
        topology = _renumber_for_guest(topology, guest_addresses)
    tree = Tree(topology)
    gpus = topology.of_kind("gpu")
    if not gpus:
        raise UsageError(f"{topology.name} has no GPU, so NCCL needs no file for it", hint="choose a machine with GPUs")
    without = [device.id for device in (*gpus, *topology.of_kind("nic", "pcie_switch")) if not _address(device)]
    if topology.source == "shape" or any(not _address(gpu) for gpu in gpus):
        raise UsageError(
            f"{topology.name} has no PCI addresses ({', '.join(without[:3])}), and NCCL finds devices by them",
            hint="capture the real machine: railwright topo capture DIR",
        )
    writer = _Writer(tree, gpus, topology.of_kind("nic"), in_guest=bool(guest_addresses))
    system = _element("system", {"version": XML_VERSION}, writer.cpus())
    system.text = "\n"
    ET.indent(system)
    return ET.tostring(system, encoding="unicode").replace(" />", "/>") + "\n"


def _renumber_for_guest(topology: Topology, guest_addresses: Mapping[str, str]) -> Topology:
    endpoints = {device.address: device for device in topology.of_kind("gpu", "nic")}
    for host_address, guest_address in guest_addresses.items():
        if host_address not in endpoints:
            raise UsageError(
                f"no GPU or NIC of {topology.name} has the address {host_address[:40]!r}",
                hint=f"it has: {', '.join(sorted(endpoints))[:200]}",
            )
        if not _ADDRESS.fullmatch(guest_address):
            raise UsageError(f"not a PCI address: {guest_address[:40]!r}", hint="write it like 0000:05:00.0")
    switches = itertools.count()
    devices: list[Device] = []
    for device in topology.devices:
        address = device.address
        if device.kind == "pcie_switch":
            address = f"ffff:{next(switches):02x}:00.0"
        elif device.kind in _KINDS:
            address = guest_addresses.get(address, "")
        devices.append(msgspec.structs.replace(device, address=address))
    missing = {device.id for device in devices if device.kind in _KINDS and not device.address}
    links = tuple(link for link in topology.links if not {link.a, link.b} & missing)
    kept = tuple(device for device in devices if device.id not in missing)
    return msgspec.structs.replace(topology, devices=kept, links=links)


class _Writer:
    def __init__(self, tree: Tree, gpus: tuple[Device, ...], nics: tuple[Device, ...], *, in_guest: bool) -> None:
        self._tree = tree
        self._in_guest = in_guest
        self._gpu_numbers = {gpu.id: number for number, gpu in enumerate(gpus)}
        self._nic_numbers = {nic.id: number for number, nic in enumerate(nics)}

    def cpus(self) -> Iterator[Element]:
        """Yield the CPUs that have devices; NCCL does not need the others."""
        for cpu in self._tree.roots:
            facts = cpu.facts
            attributes = {
                "numaid": str(cpu.numa if cpu.numa is not None else -1),
                "affinity": "" if self._in_guest else _affinity(str(facts.get("cpu_list", ""))),
                "arch": str(facts.get("architecture", "")),
                "vendor": str(facts.get("vendor", "")),
                "familyid": str(facts.get("family", "")),
                "modelid": str(facts.get("model", "")),
            }
            if below := list(self._below(cpu)):
                yield _element("cpu", attributes, below)

    def _below(self, device: Device) -> Iterator[Element]:
        for child, link in self._tree.below(device):
            if child.kind == "root_port":
                yield from self._below(child)
            elif child.kind == "pcie_switch":
                if below := list(self._below(child)):
                    yield _element("pci", self._pci(child, link, _PCI_BRIDGE), below)
            else:
                # NCCL lists the functions of a card separately and merges them itself, so each gets the card's link.
                functions = [function for function, _ in self._tree.below(child)] if child.kind == "card" else [child]
                for function in functions:
                    if function.kind in _KINDS and _address(function):
                        yield self._endpoint(function, link)

    def _endpoint(self, device: Device, link: Link) -> Element:
        is_gpu = device.kind == "gpu"
        inner = [] if self._in_guest else [self._gpu(device) if is_gpu else self._nic(device)]
        return _element("pci", self._pci(device, link, "0x030200" if is_gpu else "0x020000"), inner)

    def _pci(self, device: Device, link: Link, usual_class: str) -> dict[str, str]:
        """Return a device's PCI attributes.

        As in NCCL, the speed is the maximum that both ends support, because an idle GPU lowers the trained speed. So is
        the width, unless the link has lost lanes.
        """
        vendor, _, number = str(device.facts.get("pci_id", "")).partition(":")
        protocol = link.protocol
        speed, width = None, None
        if isinstance(protocol, PcieLink):
            speed = protocol.max_gt_per_s or protocol.gt_per_s
            # A reduced width is a permanent fault, and NCCL's plan should account for it.
            width = protocol.width if is_narrow(protocol) else protocol.max_width or protocol.width
        return {
            "busid": _address(device),
            "class": str(device.facts.get("pci_class", usual_class)),
            "vendor": f"0x{vendor}" if vendor else "",
            "device": f"0x{number}" if number else "",
            # Both are mandatory; NCCL takes an empty speed as PCIe 3.0 and a width of 0 as x16.
            "link_speed": f"{speed:.1f} GT/s PCIe" if speed in GENERATION_OF_GT_PER_S else "",
            "link_width": str(width or 0),
        }

    def _gpu(self, device: Device) -> Element:
        nvlinks = []
        for link in self._tree.sideways:
            if isinstance(link.protocol, NvlinkLink) and device.id in (link.a, link.b):
                other = self._tree.devices[link.b if link.a == device.id else link.a]
                if address := _address(other):
                    target_class = _NVSWITCH if other.kind == "nvswitch" else _GPU
                    target = {"target": address, "count": str(link.protocol.links), "tclass": target_class}
                    nvlinks.append(_element("nvlink", target))
        capability = str(device.facts.get("compute_capability", ""))
        attributes = {"dev": str(self._gpu_numbers[device.id]), "sm": capability.replace(".", "")}
        return _element("gpu", attributes, nvlinks)

    def _nic(self, device: Device) -> Element:
        name = str(device.facts.get("rdma_device") or device.facts.get("netdev") or "")
        port = self._tree.port.get(device.id)
        attributes = {"name": name, "dev": str(self._nic_numbers[device.id])}
        if port is not None and isinstance(port.protocol, EfaLink | EthernetLink | InfinibandLink):
            if port.protocol.line_rate_bits_per_s:
                attributes["speed"] = str(round(port.protocol.line_rate_bits_per_s / 1e6))
            attributes["port"] = str(device.facts.get("rdma_port", ""))
        return _element("nic", {}, [_element("net", attributes)] if name else [])


def _address(device: Device) -> str:
    address = device.address.lower()
    return address if _ADDRESS.fullmatch(address) else ""


def _affinity(cpu_list: str) -> str:
    """Convert `0-3,8` to the kernel's mask, 32-bit words from the highest: `0000010f`."""
    numbers = parse_cpu_list(cpu_list) if re.fullmatch(r"[\d,-]{1,2000}", cpu_list) else ()
    mask = sum(1 << number for number in numbers if number < _MAX_CPUS)
    words = [f"{mask >> lowest & 0xFFFFFFFF:08x}" for lowest in range(0, mask.bit_length(), 32)]
    # NCCL's parser cannot read a longer value; without one, NCCL reads it from the machine itself.
    text = ",".join(reversed(words))
    return text if len(text) <= _MAX_VALUE else ""


def _element(name: str, attributes: dict[str, str], below: Iterable[Element] = ()) -> Element:
    """Build an element with the known attributes, in characters that need no entities."""
    known = {key: value for key, value in attributes.items() if value or key == "link_speed"}
    element = Element(name, {key: _UNSAFE.sub("_", value)[:_MAX_VALUE] for key, value in known.items()})
    element.extend(below)
    return element
