"""NCCL's XML of a machine: NCCL_TOPO_DUMP_FILE writes it, NCCL_TOPO_FILE reads it.

Names after NCCL src/graph/xml.cc: `pci` with its link towards the CPU, in it a `gpu` with its `nvlink`s or a `nic` with
its `net`s, whose speed is in Mb/s.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from railwright.errors import UsageError
from railwright.topology.devices import (
    C2cLink,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    MemoryLink,
    NetworkLink,
    NvlinkLink,
    PcieLink,
    Protocol,
    Scalar,
    SmpLink,
    Topology,
    Unknown,
)
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.possible import refuse_impossible

MOST_CHARACTERS = 4 * 2**20
_MAX_ELEMENTS = 20_000
_MAX_DEPTH = 24
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) ?GT/s")
_CAPTURE = "railwright topo capture on that machine"
"""The command that gives what this file lacks."""
_BRIDGE, _NVSWITCH, _INFINIBAND, _EFA = "0x0604", "0x0680", "0x0207", "0x1d0f"
_GENERATION = {6: 1, 7: 2, 8: 3, 9: 4, 10: 5, 12: 5}
"""Compute capability (major) to the generation of its NVLinks (NCCL src/graph/topo.h)."""
_HINT = "give the whole file that NCCL_TOPO_DUMP_FILE names"


def is_nccl_xml(text: str) -> bool:
    """Report whether a text is such a file."""
    return "<system" in text[:4096] and "<cpu" in text


def parse_topology_xml(text: str, name: str) -> Topology:
    """Build the machine. Raises UsageError for a damaged file, or a file that NCCL did not write."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{name} must be at most {MOST_CHARACTERS // 2**20} MiB", hint=_HINT)
    if not is_nccl_xml(text):
        raise UsageError(f"{name} is not a topology file of NCCL", hint=_HINT)
    if "<!" in text:
        raise UsageError(f"{name} has a declaration (<!), which NCCL never writes", hint=_HINT)
    try:
        system = ET.fromstring(text[text.index("<system") :])  # noqa: S314 - without declarations there are no entities
    except ET.ParseError as error:
        raise UsageError(f"{name} is not well-formed XML: {error}", hint=_HINT) from error
    if sum(1 for _ in system.iter()) > _MAX_ELEMENTS:
        raise UsageError(f"{name} must have at most {_MAX_ELEMENTS} elements", hint=_HINT)
    found = _Machine(system).topology(name)
    if not found.of_kind("gpu", "nic"):
        raise UsageError(f"{name} has neither a GPU nor a NIC", hint=_HINT)
    refuse_impossible(found, name)
    return found


class _Machine:
    """The devices and links during assembly."""

    def __init__(self, system: Element) -> None:
        self.parts = Parts()
        self.gpus: dict[str, tuple[str, Element]] = {}
        """PCI address to id and element."""
        self.ports: list[tuple[str, NetworkLink]] = []
        self.parts.add("host", facts={"source": "NCCL's topology file"})
        cpus: dict[int, str] = {}
        for cpu in system.iter("cpu"):
            node = _number(cpu.attrib, "numaid") or 0
            if node not in cpus:
                facts: dict[str, Scalar | None] = {"package": node, "architecture": cpu.get("arch", "")[:20],
                                                   "vendor": cpu.get("vendor", "")[:40]}  # fmt: skip
                cpus[node] = self.parts.add("cpu", numa=node, facts=facts)
                self.parts.add("memory", numa=node, under=(cpus[node], MemoryLink()))
            for below in cpu:
                self._below_cpu(below, cpus[node], node)
        for first, second in itertools.combinations(cpus.values(), 2):
            self.parts.link(first, second, SmpLink())

    def topology(self, name: str) -> Topology:
        self._join_gpus()
        if self.ports:
            self.parts.add("fabric", device_id=FABRIC)
        for nic, port in self.ports:
            self.parts.link(nic, FABRIC, port)
        # NCCL writes ranks and NVLinks together; a file written by hand may have neither.
        silent = [found for found, gpu in self.gpus.values() if gpu.get("rank") is None and gpu.find("nvlink") is None]
        unknown = tuple(Unknown(what=f"NVLink of {found}", why="the file does not say it") for found in silent)
        devices, links = self.parts.devices(), self.parts.links()
        return Topology(name=name, source="saved", devices=devices, links=links, unknown=unknown)

    def _below_cpu(self, element: Element, cpu: str, node: int) -> None:
        if element.tag not in ("pci", "nic"):
            return
        upper = self.parts.add("root_port", numa=node, under=(cpu, InternalLink(name="root complex")))
        if element.tag == "pci":
            self._pci(element, upper, node, 0)
        else:  # the file lacks the PCIe tree
            self._nets(element, (upper, PcieLink()), "", node)

    def _pci(self, element: Element, upper: str, node: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise UsageError(f"PCIe bridges below each other more than {_MAX_DEPTH} times", hint=_HINT)
        address, under = element.get("busid", "")[:20].lower(), (upper, _pcie(element.attrib))
        gpu, nic = element.find("gpu"), element.find("nic")
        if gpu is not None:
            self._gpu(gpu, address, under, node)
        elif nic is not None:
            self._nets(nic, under, element.get("class", ""), node, address, element.get("vendor", ""))
        elif element.get("class", "").startswith(_BRIDGE) or element.find("pci") is not None:
            switch = self.parts.add("pcie_switch", address=address, numa=node, under=under)
            for below in element:
                if below.tag == "pci":
                    self._pci(below, switch, node, depth + 1)

    def _gpu(self, gpu: Element, address: str, under: tuple[str, Protocol], node: int) -> None:
        sm = _number(gpu.attrib, "sm")
        facts: dict[str, str | int | None] = {"compute_capability": f"{sm // 10}.{sm % 10}" if sm else None}
        facts["vendor"] = "amd" if gpu.get("gcn") else "nvidia"
        if gpu.find("c2c") is not None:
            cpu = next(device.id for device in self.parts.devices() if device.kind == "cpu" and device.numa == node)
            under = (cpu, C2cLink(bytes_per_s=_read_c2c(gpu)))
        number = _number(gpu.attrib, "dev")
        own_id = f"gpu{number}" if number is not None else ""
        found = self.parts.add("gpu", device_id=own_id, address=address, numa=node, facts=facts, under=under)
        self.gpus[address] = (found, gpu)

    def _nets(
        self, nic: Element, under: tuple[str, Protocol], pci_class: str, node: int, address: str = "", vendor: str = ""
    ) -> None:
        nets = nic.findall("net")[:16]
        if len(nets) > 1:
            under = (self.parts.add("card", address=address, numa=node, under=under), InternalLink(name="card"))
        for net in nets:
            facts = {"rdma_device": net.get("name", "")[:40]}
            found = self.parts.add("nic", address=address, numa=node, facts=facts, under=under)
            self.ports.append((found, _port(net, pci_class, vendor)))

    def _join_gpus(self) -> None:
        """Add NVLinks to switches, and to other GPUs once for each pair."""
        switch = ""
        joined: set[frozenset[str]] = set()
        for found, gpu in self.gpus.values():
            sm = _number(gpu.attrib, "sm") or 0
            generation = _GENERATION.get(sm // 10, 4)
            to_switches = 0
            for link in gpu.findall("nvlink")[:64]:
                count = min(_number(link.attrib, "count") or 1, 64)
                other = self.gpus.get(link.get("target", "").lower())
                if other is not None and other[0] != found:
                    pair = frozenset((found, other[0]))
                    if pair not in joined:
                        joined.add(pair)
                        self.parts.link(found, other[0], NvlinkLink(generation=generation, links=count))
                elif link.get("tclass", "").startswith(_NVSWITCH):
                    to_switches += count
            if to_switches:
                switch = switch or self.parts.add("nvswitch", name="NVSwitches")
                self.parts.link(switch, found, NvlinkLink(generation=generation, links=to_switches))


def _pcie(attributes: Mapping[str, str]) -> PcieLink:
    speed, width = _SPEED.match(attributes.get("link_speed", "")), _number(attributes, "link_width")
    known = width if width is not None and 1 <= width <= 32 else None
    return PcieLink(gt_per_s=float(speed[1]) if speed else None, width=known)


def _read_c2c(gpu: Element) -> float | None:
    """Return the rate of a GPU's NVLink-C2C in bytes/s and direction: links times MB/s of each; None without them."""
    c2c = gpu.find("c2c")
    links, megabytes = (None if c2c is None else _number(c2c.attrib, name) for name in ("count", "bw"))
    return links * megabytes * 1e6 if links and megabytes else None


def _port(net: Element, pci_class: str, vendor: str) -> NetworkLink:
    """Return the port by its PCI class, InfiniBand or Ethernet, with the largest MTU, since the file has none."""
    megabits = _number(net.attrib, "speed")
    rate = megabits * 1e6 if megabits else None
    if pci_class.startswith(_INFINIBAND):
        return InfinibandLink(line_rate_bits_per_s=rate, mtu_bytes=4096, assumed=_CAPTURE)
    if vendor == _EFA or net.get("name", "").startswith(("efa", "rdmap")):
        return EfaLink(line_rate_bits_per_s=rate, mtu_bytes=9001)
    rdma = net.get("gdr") is not None or bool(net.get("guid"))
    return EthernetLink(line_rate_bits_per_s=rate, mtu_bytes=9000, rdma=rdma, assumed=_CAPTURE)


def _number(attributes: Mapping[str, str], name: str) -> int | None:
    text = attributes.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
