"""The shape of a machine: its parts and their layout, as a file that a user can change.

A shape spreads parts evenly and has one kind of each. `list_differences` tells where a machine does not.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar, cast

from msgspec.structs import replace

from railwright.topology.devices import (
    GT_PER_S,
    C2cLink,
    Device,
    DeviceKind,
    EthernetLink,
    InternalLink,
    Link,
    MemoryLink,
    NetworkLink,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
    XgmiLink,
)
from railwright.topology.gpu_models import is_model
from railwright.topology.parts import Cpuid
from railwright.topology.paths import Affinity
from railwright.topology.shapes.catalogue import CATALOGUE
from railwright.topology.shapes.parts import (
    CpuPart,
    DrivePart,
    GpuMemory,
    GpuPart,
    Layout,
    Memory,
    NicPart,
    NvlinkPart,
    Pcie,
    Shape,
    Source,
    XgmiPart,
)
from railwright.units import GIB

_Protocol = TypeVar("_Protocol", NvlinkLink, XgmiLink)
_GENERATIONS = {speed: generation for generation, speed in GT_PER_S.items()}
_ALIKE: dict[DeviceKind, str] = {"gpu": "GPUs", "nic": "NICs", "drive": "drives"}
"""The kinds of device of which a shape has one model."""
_SOCKETS, _NUMA_PER_SOCKET = (1, 2, 4, 8), (1, 2, 4)


def to_shape(topology: Topology) -> Shape:
    """Return the shape that resembles a machine most. Facts that the machine does not tell are left out."""
    return _Reader(topology).shape()


def list_differences(topology: Topology, shape: Topology) -> tuple[str, ...]:
    """Return how a machine differs from its expanded shape, a clause each."""
    return tuple(_differ(topology, shape))


def _differ(topology: Topology, shape: Topology) -> Iterator[str]:
    for kind, plural in _ALIKE.items():
        names = Counter(device.name for device in topology.of_kind(kind))
        if len(names) > 1:
            yield f"the {plural} are not alike: {', '.join(f'{count}x {name}' for name, count in names.most_common(4))}"
    here, there = _near(topology), _near(shape)
    moved = sorted(pair for pair in here if here[pair] != there.get(pair, ""))
    if moved:
        gpu, nic = moved[0]
        yield (
            f"{len(moved)} of {len(here)} paths between GPUs and NICs are of another kind,"
            f" such as {gpu} to {nic}: {here[moved[0]]} on the machine, {there.get(moved[0], 'none')} here"
        )


def _near(topology: Topology) -> dict[tuple[str, str], str | None]:
    affinity = Affinity(topology)
    return {(gpu.id, nic.id): affinity.kind(gpu.id, nic.id) for gpu in affinity.gpus for nic in affinity.nics}


class _Reader:
    """The parts of a machine."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._above: dict[str, Link] = {}
        for link in topology.links:
            if isinstance(link.protocol, PcieLink | InternalLink | C2cLink | MemoryLink):
                self._above.setdefault(link.b, link)
        self._gpus = topology.of_kind("gpu")
        self._nics = tuple(device for device, _ in topology.ports_out)
        self._drives = topology.of_kind("drive")
        cpus = topology.of_kind("cpu")
        packages = {cpu.facts.get("package", cpu.id) for cpu in cpus}
        self._sockets = _largest(_SOCKETS, len(packages))
        self._share = _largest(_NUMA_PER_SOCKET, len(cpus) // self._sockets)

    def shape(self) -> Shape:
        host = self._topology.device("host0")
        facts = host.facts if host else {}
        pcie = self._pcie_link(self._gpus[0]) if self._gpus else None
        nvlink, xgmi = self._nvlink(), self._xgmi()
        return Shape(
            title=(host.name if host else "") or self._topology.name[:120],
            layout=self._layout(),
            cpu=self._cpu(),
            gpu=self._gpu() if self._gpus else None,
            nvlink=nvlink,
            xgmi=xgmi,
            nic=self._nic(),
            drive=self._drive() if self._drives else None,
            max_payload_bytes=_payload(pcie),
            payload_assumed=pcie is None or pcie.max_payload_bytes is None or pcie.payload_assumed,
            acs_redirect=bool(pcie and pcie.acs_redirect),
            peer_to_peer=facts.get("peer_to_peer") is not False,
            gpudirect_rdma=facts.get("gpudirect_rdma") is not False,
            nccl_protocol=_protocol(str(facts.get("nccl_protocol", ""))),
            sources=self._sources("layout"),
        )

    def _sources(self, *facts: str, device: Device | None = None) -> tuple[Source, ...]:
        known = str(device.facts.get("source", "")) if device else ""
        if not known and facts == ("layout",) and (host := self._topology.device("host0")):
            known = str(host.facts.get("layout_source", ""))
        return (Source(facts=facts, document=(known or f"{self._topology.name}, by railwright topo")[:1000]),)

    def _layout(self) -> Layout:
        trees = Counter(self._tree(gpu) for gpu in self._gpus)
        switched = [tree for tree in trees if tree]
        per_switch = round(statistics.median(trees[tree] for tree in switched)) if switched else 0
        uplink = self._above[switched[0]].protocol if switched else None
        speed = _pcie(uplink) if isinstance(uplink, PcieLink) else Pcie()
        own = _pcie(self._pcie_link(self._gpus[0])) if self._gpus else Pcie()
        device = self._topology.device(switched[0]) if switched else None
        beyond = bool(switched) and bool(self._nics) and not any(self._tree(nic) in trees for nic in self._nics)
        return Layout(
            sockets=cast("Literal[1, 2, 4, 8]", self._sockets),
            numa_per_socket=cast("Literal[1, 2, 4]", self._share),
            gpus=min(len(self._gpus), 16),
            gpus_per_switch=min(per_switch, 8),
            switch_name=(device.name if device else "") or "PCIe switch",
            uplink_generation=speed.generation if speed.generation != own.generation else None,
            uplink_assumed=speed.assumed,
            nics=min(len(self._nics), 32),
            nics_on_root_ports=beyond,
            drives=min(len(self._drives), 32),
        )

    def _tree(self, device: Device) -> str:
        """Return the topmost switch above a device, or an empty text."""
        found, link = "", self._above.get(device.id)
        while link is not None:
            upper = self._topology.device(link.a)
            if upper is None or upper.kind in ("root_port", "cpu"):
                break
            found = upper.id if upper.kind == "pcie_switch" else found
            link = self._above.get(upper.id)
        return found

    def _pcie_link(self, device: Device) -> PcieLink | None:
        """Return the PCIe link of a device, or of the card that it is on."""
        link = self._above.get(device.id)
        while link is not None and not isinstance(link.protocol, PcieLink):
            upper = self._topology.device(link.a)
            link = self._above.get(link.a) if upper is not None and upper.kind == "card" else None
        return link.protocol if link is not None and isinstance(link.protocol, PcieLink) else None

    def _cpu(self) -> CpuPart:
        cpus = self._topology.of_kind("cpu")
        if not cpus:
            return CpuPart(name="unknown")
        facts = cpus[0].facts
        cores, size = _whole(facts.get("cores")), 0
        for memory in self._topology.of_kind("memory"):
            size += _whole(memory.facts.get("size_bytes")) or 0
        channels = next((link.protocol for link in self._topology.links if isinstance(link.protocol, MemoryLink)), None)
        memory_part = Memory(gib=size / GIB / self._sockets if size else None)
        if channels is not None and channels.channels and channels.transfers_per_s:
            memory_part = replace(
                memory_part,
                channels=channels.channels * self._share,
                mt_per_s=round(channels.transfers_per_s / 1e6),
                assumed=bool(channels.assumed),
            )
        return CpuPart(
            name=cpus[0].name,
            cpuid=Cpuid(
                vendor=str(facts.get("vendor", "")),
                architecture=str(facts.get("architecture", "")),
                family=_whole(facts.get("family")),
                model=_whole(facts.get("model")),
            ),
            cores=cores * self._share if cores else None,
            memory=memory_part,
            smp=self._smp(),
            sources=self._sources("cpuid", "cores", "memory", "smp", device=cpus[0]),
        )

    def _smp(self) -> SmpLink:
        """Return the link between two sockets."""
        package = {cpu.id: cpu.facts.get("package", cpu.id) for cpu in self._topology.of_kind("cpu")}
        for link in self._topology.links:
            if isinstance(link.protocol, SmpLink) and package.get(link.a) != package.get(link.b):
                return replace(link.protocol, distance=None)
        return SmpLink()

    def _gpu(self) -> GpuPart:
        gpu = self._gpus[0]
        facts = gpu.facts
        known = next((part for part in CATALOGUE.gpus.values() if is_model(gpu.name, part.name)), None)
        memory, rate = _whole(facts.get("memory_bytes")), facts.get("hbm_bandwidth_bytes_per_s")
        fp64 = facts.get("fp64_tensor_flop_per_s")
        link = self._above.get(gpu.id)
        c2c = link.protocol if link is not None and isinstance(link.protocol, C2cLink) else None
        part = GpuPart(
            name=gpu.name,
            vendor=_vendor(str(facts.get("vendor", "nvidia"))),
            compute_capability=str(facts.get("compute_capability", "")),
            memory=GpuMemory(
                gib=memory / GIB if memory else None, gb_per_s=rate / 1e9 if isinstance(rate, int | float) else None
            ),
            fp64_tensor_tflops=fp64 / 1e12 if isinstance(fp64, int | float) else None,
            attachment="c2c" if c2c is not None else "pcie",
            c2c_gb_per_s=c2c.bytes_per_s / 1e9 if c2c is not None and c2c.bytes_per_s else None,
            pcie=_pcie(self._pcie_link(gpu)),
            integrated=facts.get("integrated") is True,
            sources=self._sources("memory", "pcie", device=gpu),
        )
        if known is None or "source" in facts:
            return part
        return replace(  # a driver tells neither rate
            part,
            memory=replace(part.memory, gb_per_s=part.memory.gb_per_s or known.memory.gb_per_s),
            fp64_tensor_tflops=part.fp64_tensor_tflops or known.fp64_tensor_tflops,
            sources=(*part.sources, *known.sources),
        )

    def _nvlink(self) -> NvlinkPart | None:
        pairs, first = self._joined(NvlinkLink)
        if first is None:
            return None
        switches = self._topology.of_kind("nvswitch")
        chips = sum(_whole(switch.facts.get("chips")) or 1 for switch in switches)
        own_links = [
            link.protocol
            for link in self._topology.links
            if isinstance(link.protocol, NvlinkLink) and self._gpus[0].id in (link.a, link.b)
        ]
        links = sum(protocol.links for protocol in own_links) or first.links
        most = sum(protocol.max_links or protocol.links for protocol in own_links)
        host = self._topology.device("host0")
        return NvlinkPart(
            generation=first.generation,
            links=links,
            max_links=most if most > links else None,
            switch_chips=min(chips, 64),
            pairs=pairs,
            domain_hosts=_whole(host.facts.get("nvlink_domain_hosts")) if host else None,
            sources=self._sources("links", "generation", device=switches[0] if switches else None),
        )

    def _xgmi(self) -> XgmiPart | None:
        pairs, first = self._joined(XgmiLink)
        if first is None:
            return None
        every = len(self._gpus) * (len(self._gpus) - 1) // 2
        alike = len(pairs) == every and len({count for *_, count in pairs}) == 1
        return XgmiPart(
            generation=first.generation,
            links=first.links,
            name=first.name,
            gb_per_s=first.bytes_per_s and first.bytes_per_s / 1e9,
            most_gpus=max(len(self._gpus), 2),
            pairs=() if alike else pairs,
            sources=self._sources("links", "generation", "most_gpus", "pairs"),
        )

    def _joined(self, kind: type[_Protocol]) -> tuple[tuple[tuple[int, int, int], ...], _Protocol | None]:
        """Return (GPU, GPU, links) of each pair with direct links, and the protocol of the first link of a GPU."""
        numbers = {gpu.id: number for number, gpu in enumerate(self._gpus[:16])}
        first: _Protocol | None = None
        pairs = []
        for link in self._topology.links:
            if isinstance(link.protocol, kind) and (link.a in numbers or link.b in numbers):
                first = first or link.protocol
                if link.a in numbers and link.b in numbers:
                    pairs.append((numbers[link.a], numbers[link.b], link.protocol.links))
        return tuple(pairs), first

    def _nic(self) -> NicPart:
        if not self._nics:
            return NicPart(name="none", port=EthernetLink())
        nic, link = self._topology.ports_out[0]
        parents = Counter(self._above[each.id].a for each in self._nics if each.id in self._above)
        upper = self._topology.device(self._above[nic.id].a) if nic.id in self._above else None
        ports = parents[upper.id] if upper is not None and upper.kind == "card" else 1
        return NicPart(
            name=nic.name or str(nic.facts.get("rdma_device", "")) or "NIC",
            port=cast("NetworkLink", link.protocol),
            gpudirect_tcp=nic.facts.get("gpudirect_tcp") is True,
            ports_per_card=cast("Literal[1, 2, 4]", _largest((1, 2, 4), ports)),
            shares_port=nic.facts.get("shares_port") is True,
            pcie=_pcie(self._pcie_link(nic)),
            sources=self._sources("port", "pcie", device=nic),
        )

    def _drive(self) -> DrivePart:
        drive = self._drives[0]
        size = _whole(drive.facts.get("size_bytes"))
        return DrivePart(
            name=drive.name or "NVMe SSD",
            gb=size / 1e9 if size else None,
            pcie=_pcie(self._pcie_link(drive)),
            sources=self._sources("gb", "pcie", device=drive),
        )


def _pcie(link: PcieLink | None) -> Pcie:
    """Return the speed and width of a healthy link."""
    if link is None:
        return Pcie()
    generation = _GENERATIONS.get(link.max_gt_per_s or link.gt_per_s or 0.0)
    return Pcie(generation, link.max_width or link.width, assumed=bool(link.assumed))


def _largest(allowed: Iterable[int], number: int) -> int:
    """Return the largest allowed number that is not above `number`."""
    return max((each for each in allowed if each <= number), default=1)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _vendor(text: str) -> Literal["nvidia", "amd", "intel"]:
    return "amd" if text == "amd" else "intel" if text == "intel" else "nvidia"


def _protocol(text: str) -> Literal["", "LL", "LL128", "Simple"]:
    return "LL" if text == "LL" else "LL128" if text == "LL128" else "Simple" if text == "Simple" else ""


def _payload(link: PcieLink | None) -> Literal[128, 256, 512, 1024, 2048, 4096]:
    sizes: tuple[Literal[128, 256, 512, 1024, 2048, 4096], ...] = (128, 256, 512, 1024, 2048, 4096)
    return next((size for size in sizes if link is not None and link.max_payload_bytes == size), 256)
