"""Discovery of a machine: the topology from all sources."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from msgspec.structs import asdict, replace

from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import (
    Device,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    Scalar,
    SmpLink,
    SourceKind,
    Topology,
    Unknown,
)
from railwright.topology.gpus import is_nvidia
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.sources import text
from railwright.topology.sources.block import find_drives
from railwright.topology.sources.cpu import NumaNode, Processor, read_nodes, read_processor
from railwright.topology.sources.memory import read_channels, share
from railwright.topology.sources.network import NicPort, find_ports
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.nvidia import read_probe
from railwright.topology.sources.nvidia_merge import add_nvidia_answers
from railwright.topology.sources.pci import scan_pci
from railwright.topology.sources.pci_devices import PciDevices, drive_facts, find_units, port_facts
from railwright.topology.sources.pci_settings import read_pci_settings
from railwright.topology.sources.rdma_port import read_port
from railwright.topology.sources.root import Root
from railwright.topology.sources.settings import read_settings
from railwright.topology.sources.tools import read_tools
from railwright.topology.sources.virtual_buses import scan_virtual_buses
from railwright.topology.sources.virtualisation import read_virtualisation

_MAX_REFUSED = 20
_SMP_NAMES = {"GenuineIntel": "UPI", "AuthenticAMD": "xGMI"}


def discover(root: Root, source: SourceKind) -> Topology:
    """Return the topology of the machine that `root` shows. Raises nothing: unreadable facts are in `unknown`."""
    notes = Notes()
    parts = Parts()
    processor = read_processor(root, notes)
    nodes = read_nodes(root, notes)
    facts = read_virtualisation(root, notes, cpu_says_virtual=processor.is_virtual)
    software, of_ports = read_tools(root, notes)
    facts |= {"numa_nodes_per_socket": _nodes_per_socket(nodes), **read_settings(root, notes), **software}
    parts.add("host", name=str(facts.pop("product")), facts={"processor": processor.name, **facts})
    cpu_of_node = _add_cpus(root, parts, nodes, processor, notes)
    _add_pci(root, parts, cpu_of_node, notes)
    _add_virtual_buses(root, parts, cpu_of_node, notes)
    if any(device.kind == "nic" for device in parts.devices()):
        parts.add("fabric", device_id=FABRIC)
    devices, links = tuple(_add_port_settings(device, of_ports) for device in parts.devices()), parts.links()
    if gpus := [device for device in devices if device.kind == "gpu" and is_nvidia(device)]:
        devices, links = add_nvidia_answers(parts, gpus, read_probe(root), notes)
    refused = (Unknown(what=item.path, why=item.reason) for item in root.refused[:_MAX_REFUSED])
    return Topology(name=root.name, source=source, devices=devices, links=links, unknown=(*notes.unknown(), *refused))


def _add_port_settings(device: Device, of_ports: Mapping[str, Mapping[str, Scalar]]) -> Device:
    """Return the device; a NIC with the port settings of its netdev if known."""
    settings = of_ports.get(str(device.facts.get("netdev")), {}) if device.kind == "nic" else {}
    return replace(device, facts={**device.facts, **settings}) if settings else device


def _nodes_per_socket(nodes: tuple[NumaNode, ...]) -> int | None:
    """Return the number of NUMA nodes with cores in each socket; None if the sockets are unknown or not alike."""
    packages = Counter(node.package for node in nodes if node.cpus)
    counts = set(packages.values())
    return counts.pop() if None not in packages and len(counts) == 1 else None


def _add_cpus(
    root: Root, parts: Parts, nodes: tuple[NumaNode, ...], processor: Processor, notes: Notes
) -> dict[int, str]:
    """Add CPUs, memory and the links between sockets. Return the cpu device of every NUMA node."""
    with_cores = [node for node in nodes if node.cpus] or list(nodes[:1])
    packages = sorted({node.package for node in with_cores if node.package is not None})
    sizes = [sum(node.memory_bytes or 0 for node in with_cores if node.package == package) for package in packages]
    channels = dict(zip(packages, read_channels(root, notes, sizes_bytes=sizes), strict=False))
    cpu_of_node = {}
    for node in with_cores:
        facts = {
            "package": node.package,
            "cores": node.cores,
            "threads": len(node.cpus) or None,
            "cpu_list": format_cpu_list(node.cpus),
            **asdict(processor.cpuid),
        }
        cpu = parts.add("cpu", device_id=f"cpu{node.number}", name=processor.name, numa=node.number, facts=facts)
        cpu_of_node[node.number] = cpu
    for node in nodes:
        if node.number not in cpu_of_node:  # memory without cores: CXL, or a GPU's own memory
            nearest = min(with_cores, key=lambda second: node.distances.get(second.number, 255))
            cpu_of_node[node.number] = cpu_of_node[nearest.number]
        if node.memory_bytes:
            socket = channels.get(node.package) if node.package is not None and node.cpus else None
            shared_by = sum(second.package == node.package for second in with_cores)
            under = (cpu_of_node[node.number], share(socket, shared_by))
            name, facts = f"memory{node.number}", {"size_bytes": node.memory_bytes}
            parts.add("memory", device_id=name, numa=node.number, facts=facts, under=under)
    for first, second in itertools.combinations(with_cores, 2):
        same_package = first.package is not None and first.package == second.package
        name = "in socket" if same_package else _SMP_NAMES.get(processor.cpuid.vendor, "")
        link = SmpLink(name=name, distance=first.distances.get(second.number))
        parts.link(cpu_of_node[first.number], cpu_of_node[second.number], link)
    return cpu_of_node


def _add_pci(root: Root, parts: Parts, cpu_of_node: dict[int, str], notes: Notes) -> None:
    units = find_units(root, scan_pci(root, notes))
    settings = read_pci_settings(root, units, notes)
    settings |= {unit.port.rdma_path: read_port(root, unit.port, notes) for unit in units if unit.port is not None}
    placed = PciDevices(parts, notes, cpu_of_node, settings).add(units)
    for device_id, unit in placed.items():
        if unit.kind == "nic":
            _link_to_fabric(parts, device_id, unit.port, notes, driver=unit.function.driver)
        elif unit.kind == "drive" and unit.drive is None:
            notes.missing("kernel name", f"no block device (driver: {unit.function.driver or 'none'})", device_id)


def _add_virtual_buses(root: Root, parts: Parts, cpu_of_node: dict[int, str], notes: Notes) -> None:
    for path, entries in scan_virtual_buses(root).items():
        numa = text.number(root.read(f"{path}/numa_node"))
        cpu = cpu_of_node.get(numa if numa is not None and numa >= 0 else min(cpu_of_node))
        bus = "Xen" if path.rpartition("/")[2].startswith(("vif-", "vbd-")) else "VMBus"
        under = (cpu, InternalLink(name=bus)) if cpu else None
        for port in find_ports(root, path, entries):
            facts = {**port_facts(port), **read_port(root, port, notes)}
            nic = parts.add("nic", name=f"{bus} network", facts=facts, under=under)
            _link_to_fabric(parts, nic, port, notes, driver=bus)
        for drive in find_drives(root, path, entries):
            name = drive.model or f"{bus} drive"
            parts.add("drive", device_id=drive.kernel_name, name=name, facts=drive_facts(drive), under=under)


def _link_to_fabric(parts: Parts, nic: str, port: NicPort | None, notes: Notes, *, driver: str) -> None:
    if port is None:
        notes.missing("line rate", f"no network or RDMA device (driver: {driver or 'none'})", nic)
        parts.link(nic, FABRIC, EthernetLink())
        return
    if port.link.line_rate_bits_per_s is None:
        why = "the port is down" if port.state == "down" else f"driver {driver or 'none'} does not say"
        notes.missing("line rate", why, nic)
    if isinstance(port.link, InfinibandLink):
        notes.missing("InfiniBand MTU", "sysfs does not show it, only the verbs library does", nic)
    parts.link(nic, FABRIC, port.link)
