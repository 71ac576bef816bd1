"""The devices and links of PCI functions: root ports, switches, cards, GPUs, NICs, drives.

A switch is one device: its upstream port with its downstream ports. Bridges with nothing of interest below them are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from railwright.topology.devices import DeviceKind, InternalLink, PcieLink, Protocol, Scalar
from railwright.topology.parts import Parts
from railwright.topology.sources import pci_names
from railwright.topology.sources.block import Drive, find_drives
from railwright.topology.sources.network import NicPort
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pci import PciFunction
from railwright.topology.sources.pci_config import STANDARD_HEADER_BYTES
from railwright.topology.sources.root import Root
from railwright.topology.sources.virtual_functions import select_functions

_CLASS_NVME = 0x0108
_CLASS_NETWORK = 0x02


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A device that data can start from or end at, and its PCI function."""

    kind: DeviceKind
    function: PciFunction
    port: NicPort | None = None
    drive: Drive | None = None
    facts: Mapping[str, Scalar] = {}
    """The facts of an SR-IOV virtual function."""


def find_units(root: Root, functions: Mapping[str, PciFunction]) -> list[Unit]:
    """Return the GPUs, NVSwitches, NIC ports and drives, in address order, without VFs of other processes."""
    units: list[Unit] = []
    for used in select_functions(root, functions):
        function, ports = used.function, used.ports
        drives = find_drives(root, function.path, function.entries)
        if function.accelerator:
            units.append(Unit(kind=function.accelerator, function=function))
        units += [Unit(kind="nic", function=function, port=port, facts=used.facts) for port in ports]
        units += [Unit(kind="drive", function=function, drive=drive) for drive in drives]
        if not ports and function.class_code >> 16 == _CLASS_NETWORK:
            units.append(Unit(kind="nic", function=function, facts=used.facts))
        if not drives and function.class_code >> 8 == _CLASS_NVME:
            units.append(Unit(kind="drive", function=function))
    return units


@dataclass
class PciDevices:
    """The PCI part of a machine, added to `parts`."""

    parts: Parts
    notes: Notes
    cpu_of_node: Mapping[int, str]
    settings: Mapping[str, Mapping[str, Scalar | None]]
    """Further facts by PCI address; by path for RDMA ports."""
    _ports_in_use: dict[str, str] = field(default_factory=dict, init=False)
    """Address of a root port or of a switch's upstream port -> device id."""

    def add(self, units: list[Unit]) -> dict[str, Unit]:
        """Add all units and the devices between them and the CPUs. Return the units by device id."""
        self._add_bridges(units)
        packages: dict[str, list[Unit]] = {}
        for unit in units:
            # Functions on a root bus are wired to the CPU individually, whatever their numbers.
            key = unit.function.package if unit.function.parent else unit.function.address
            packages.setdefault(key, []).append(unit)
        placed: dict[str, Unit] = {}
        for members in packages.values():
            function = members[0].function
            card = self._add_card(function) if len(members) > 1 or _is_behind_controller(members[0]) else ""
            for unit in members:
                device_id = self._add_unit(unit)
                placed[device_id] = unit
                if card:
                    self.parts.link(card, device_id, InternalLink(name=_internal_name(unit)))
                else:
                    self._attach(function, device_id)
        return placed

    def _add_bridges(self, units: list[Unit]) -> None:
        needed = {bridge.address: bridge for unit in units for bridge in unit.function.bridges}
        for function in sorted(needed.values(), key=lambda function: function.order):
            role = function.role
            if role in ("root_port", "upstream") or (role == "downstream" and not function.switch):
                kind: DeviceKind = "root_port" if role == "root_port" else "pcie_switch"
                name = function.name if kind == "pcie_switch" else ""
                self._ports_in_use[function.address] = self.parts.add(
                    kind, name=name, address=function.address, numa=function.numa, facts=_pci_facts(function)
                )
        for address, device_id in self._ports_in_use.items():
            self._attach(needed[address], device_id)

    def _attach(self, function: PciFunction, device_id: str) -> None:
        """Link a device to the port above it, or to its CPU."""
        for port in function.bridges:
            switch = port.switch if port.role == "downstream" else None
            upper = self._ports_in_use.get((switch or port).address)
            if upper is not None and port.role != "other_bridge":
                self.parts.link(upper, device_id, self._pcie_link(function, port, device_id))
                return
        cpus = set(self.cpu_of_node.values())
        on_node = None if function.numa is None else self.cpu_of_node.get(function.numa)
        if cpu := cpus.pop() if len(cpus) == 1 else on_node:
            self.parts.link(cpu, device_id, self._root_link(function, device_id))
        else:
            self.notes.missing("NUMA node", "the firmware does not say to which CPU it belongs", device_id)

    def _root_link(self, function: PciFunction, device_id: str) -> Protocol:
        if function.vendor == pci_names.VIRTIO:
            return InternalLink(name="virtio")
        if function.is_bridge or function.config.port_type == "root_complex_endpoint" or function.link.width is None:
            return InternalLink(name="root complex")
        return self._pcie_link(function, None, device_id)

    def _pcie_link(self, function: PciFunction, port: PciFunction | None, device_id: str) -> PcieLink:
        """Return the link above a function; a maximum is what both ends support, MaxPayload the lower setting of
        both.
        """
        link, config = function.link, function.config
        if link.gt_per_s is None or link.width is None:
            self.notes.missing("PCIe link speed and width", "sysfs does not show them", device_id)
        if config.max_payload_bytes is None:
            root_only = 0 < config.size_bytes <= STANDARD_HEADER_BYTES
            why = "only root may read the configuration space" if root_only else "the configuration space is not shown"
            self.notes.missing("MaxPayload, MaxReadRequest and ACS", why, device_id)
        ends = [function, port] if port else [function]
        return msgspec.structs.replace(
            link,
            max_gt_per_s=min((rate for end in ends if (rate := end.link.max_gt_per_s)), default=None),
            max_width=_known_minimum(end.link.max_width for end in ends),
            max_payload_bytes=_known_minimum(end.config.max_payload_bytes for end in ends),
            max_read_request_bytes=config.max_read_request_bytes,
            max_payload_supported_bytes=_known_minimum(end.config.max_payload_supported_bytes for end in ends),
            acs_redirect=port.config.acs_redirect if port else None,
        )

    def _add_card(self, function: PciFunction) -> str:
        device_id = self.parts.add(
            "card", name=function.name, address=function.package, numa=function.numa, facts=_pci_facts(function)
        )
        self._attach(function, device_id)
        return device_id

    def _add_unit(self, unit: Unit) -> str:
        function = unit.function
        facts = {**_pci_facts(function), "driver": function.driver, **unit.facts}
        facts |= self.settings.get(function.address, {})
        name, device_id = function.name, ""
        if unit.kind == "gpu":
            facts["compute_capability"] = pci_names.compute_capability(function.vendor, function.device)
        elif unit.port:
            facts.update({**port_facts(unit.port), **self.settings.get(unit.port.rdma_path, {})})
        elif unit.drive:
            facts.update(drive_facts(unit.drive))
            name, device_id = unit.drive.model or name, unit.drive.kernel_name
        elif unit.kind == "drive":
            device_id = f"nvme-{function.address}"  # no driver has given it a kernel name
        return self.parts.add(
            unit.kind, device_id=device_id, name=name, address=function.address, numa=function.numa, facts=facts
        )


def _known_minimum(numbers: Iterable[int | None]) -> int | None:
    """Return the minimum of the known numbers; None without any."""
    return min((number for number in numbers if number), default=None)


def port_facts(port: NicPort) -> dict[str, Scalar | None]:
    """Return the facts of a NIC port."""
    names = ("netdev", "rdma_device", "rdma_port", "rdma_transport", "state", "firmware", "representors")
    return {name: getattr(port, name) or None for name in names}


def drive_facts(drive: Drive) -> dict[str, Scalar | None]:
    """Return the facts of a drive."""
    return {"size_bytes": drive.size_bytes, "rotational": drive.rotational}


def _pci_facts(function: PciFunction) -> dict[str, Scalar | None]:
    pci_id, pci_class = f"{function.vendor:04x}:{function.device:04x}", f"0x{function.class_code:06x}"
    return {"pci_id": pci_id, "pci_class": pci_class}


def _is_behind_controller(unit: Unit) -> bool:
    """Report whether a drive is below a SATA, SAS or RAID controller, whose PCIe link is not the drive's own."""
    own_link = unit.function.class_code >> 8 == _CLASS_NVME or unit.function.vendor == pci_names.VIRTIO
    return unit.drive is not None and not own_link


def _internal_name(unit: Unit) -> str:
    if unit.drive is None:
        return "card"
    return "namespace" if unit.function.class_code >> 8 == _CLASS_NVME else "drive controller"
