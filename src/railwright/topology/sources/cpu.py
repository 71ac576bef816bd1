"""NUMA nodes and their CPUs: one `cpu` device per node that has cores, and the distances between nodes."""

from __future__ import annotations

import re

import msgspec

from railwright.topology.parts import Cpuid
from railwright.topology.sources import text
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import Root, Unreadable

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_MAX_NODES = 1024


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node. `package` is the socket, None if unknown."""

    number: int
    cpus: tuple[int, ...]
    package: int | None
    cores: int | None
    memory_bytes: int | None
    distances: dict[int, int]
    """ACPI SLIT distance to each node, 10 = local; empty if unreadable."""


class Processor(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the first CPU in /proc/cpuinfo; empty or None if missing."""

    name: str = ""
    cpuid: Cpuid = Cpuid(architecture="")
    is_virtual: bool = False


def read_nodes(root: Root, notes: Notes) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes; one node with all CPUs if the kernel does not show nodes."""
    numbers = text.id_list(root.read(f"{_NODES}/online"))
    if not numbers:
        numbers = tuple(sorted(int(name[4:]) for name in root.names(_NODES) if re.fullmatch(r"node\d{1,4}", name)))
    if not numbers or len(numbers) > _MAX_NODES:
        notes.missing("NUMA nodes", f"/{_NODES} does not list them; all CPUs are taken as one node")
        return (_node(root, 0, _online_cpus(root, notes), _total_memory(root, notes), {}, notes),)
    nodes = []
    for number in numbers:
        path = f"{_NODES}/node{number}"
        cpus = text.id_list(root.read(f"{path}/cpulist"))
        if cpus is None:
            notes.missing("CPUs", f"/{_NODES}/node*/cpulist cannot be read", f"NUMA node {number}")
            cpus = _online_cpus(root, notes) if len(numbers) == 1 else ()
        if len(numbers) == 1:
            # Some VMs add memory later and omit it from the node's own count.
            memory_bytes = _total_memory(root, notes)
        else:
            memory_bytes = text.kib(root.text(f"{path}/meminfo"), r"Node \d+ MemTotal")
            if memory_bytes is None:
                notes.missing("memory size", f"/{_NODES}/node*/meminfo cannot be read", f"NUMA node {number}")
        nodes.append(_node(root, number, cpus, memory_bytes, _distances(root, path, numbers, notes), notes))
    return tuple(nodes)


def read_processor(root: Root, notes: Notes) -> Processor:
    """Return the processor's name and numbers."""
    content = root.read("proc/cpuinfo")
    if isinstance(content, Unreadable):
        notes.missing("processor name", f"/proc/cpuinfo {content.reason}")
        return Processor()
    fields: dict[str, str] = {}
    for line in content.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip()[:4096])
    architecture = "x86_64" if "vendor_id" in fields else "arm64" if "CPU implementer" in fields else ""
    if not architecture:
        notes.missing("processor name", "/proc/cpuinfo is not of a known architecture")
    vendor = fields.get("vendor_id", fields.get("CPU implementer", ""))
    family, model = (text.number(fields.get(name, "")) for name in ("cpu family", "model"))
    return Processor(
        name=fields.get("model name", "")[:100],
        cpuid=Cpuid(vendor=vendor[:32], architecture=architecture, family=family, model=model),
        is_virtual="hypervisor" in fields.get("flags", "").split(),
    )


def _node(
    root: Root, number: int, cpus: tuple[int, ...], memory_bytes: int | None, distances: dict[int, int], notes: Notes
) -> NumaNode:
    package, cores = None, None
    if cpus:
        package = text.number(root.read(f"{_CPUS}/cpu{cpus[0]}/topology/physical_package_id"))
        siblings = {text.word(root.read(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list")) for cpu in cpus}
        cores = len(siblings - {""}) or None
        if package is None or package < 0:
            package = None
            notes.missing("socket", f"/{_CPUS}/cpu*/topology cannot be read", f"NUMA node {number}")
    return NumaNode(number=number, cpus=cpus, package=package, cores=cores, memory_bytes=memory_bytes,
                    distances=distances)  # fmt: skip


def _online_cpus(root: Root, notes: Notes) -> tuple[int, ...]:
    cpus = text.id_list(root.read(f"{_CPUS}/online"))
    if not cpus:
        found = re.findall(r"(?m)^processor\s*:\s*(\d{1,6})$", root.text("proc/cpuinfo"))
        cpus = tuple(sorted({int(number) for number in found}))
    if not cpus:
        notes.missing("CPUs", f"neither /{_CPUS}/online nor /proc/cpuinfo lists them")
    return cpus


def _distances(root: Root, path: str, numbers: tuple[int, ...], notes: Notes) -> dict[int, int]:
    values = [text.number(part) for part in root.text(f"{path}/distance").split()]
    if len(values) != len(numbers) or any(value is None or not 1 <= value <= 255 for value in values):
        if len(numbers) > 1:
            notes.missing("distance between NUMA nodes", f"/{_NODES}/node*/distance cannot be read")
        return {}
    return {number: value for number, value in zip(numbers, values, strict=True) if value is not None}


def _total_memory(root: Root, notes: Notes) -> int | None:
    size_bytes = text.kib(root.text("proc/meminfo"), "MemTotal")
    if size_bytes is None:
        notes.missing("memory size", "/proc/meminfo cannot be read")
    return size_bytes
