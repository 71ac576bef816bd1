"""From a named shape, with changes, to a topology."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import msgspec

from railwright.errors import UsageError, unknown_name
from railwright.topology.model import (
    EthernetLink,
    InfinibandLink,
    InternalLink,
    MemoryLink,
    NvlinkLink,
    PcieLink,
    Scalar,
    SmpLink,
    Topology,
)
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.shapes import GT_PER_S, SHAPES, NicPart, NicProtocol, Shape
from railwright.units import format_line_rate, parse_line_rate

_COUNTS: dict[str, tuple[int, ...]] = {
    "gpus": tuple(range(17)),
    "gpus-per-switch": tuple(range(9)),
    "nics": tuple(range(33)),
    "drives": tuple(range(33)),
    "sockets": (1, 2, 4, 8),
    "numa-per-socket": (1, 2, 4),
    "pcie": tuple(GT_PER_S),
    "nvlink": tuple(range(19)),
}
_IB_MTUS_BYTES = (256, 512, 1024, 2048, 4096)
_ETHERNET_MTU_BYTES = (1280, 9978)
"""The smallest that IPv6 allows (RFC 8200), the largest that ConnectX takes (maxmtu in `ip -d link`)."""
_RATE_BITS_PER_S = (1e8, 3.2e12)
_BUS_BYTES = 8
CHANGES = (*_COUNTS, "nic-rate", "nic-protocol", "mtu")


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A shape with all changes made."""

    shape: Shape
    gpus: int
    gpus_per_switch: int
    nics: int
    drives: int
    sockets: int
    numa_per_socket: int
    pcie: int | None
    nvlink_links: int
    nic_rate_bits_per_s: float
    nic_protocol: NicProtocol
    mtu_bytes: int

    @property
    def nodes(self) -> int:
        return self.sockets * self.numa_per_socket

    @property
    def switches(self) -> int:
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


def expand(name: str, changes: Mapping[str, str]) -> Topology:
    """The machine of that shape with the changes made, each a text like `2` or `400Gb/s`.

    NICs, however many, are spread evenly over the PCIe switches and so over the sockets.
    Raises UsageError for an unknown shape or change, and for a value that makes no sense.
    """
    if name not in SHAPES:
        raise unknown_name("shape", name, SHAPES)
    plan = _planned(SHAPES[name], name, changes)
    parts = Parts()
    facts: dict[str, Scalar | None] = {"shape": name, "layout_source": plan.shape.layout.source}
    parts.add("host", name=plan.shape.title, facts=facts)
    cpus = _add_cpus(parts, plan)
    switches = _add_switches(parts, plan, cpus)
    _add_gpus(parts, plan, cpus, switches)
    _add_nics(parts, plan, cpus, switches)
    _add_drives(parts, plan, cpus)
    words = [f"{key}={value}" for key, value in changes.items()]
    return Topology(name=" ".join([name, *words]), source="shape", devices=parts.devices(), links=parts.links())


def _planned(shape: Shape, name: str, changes: Mapping[str, str]) -> _Plan:
    for key in changes:
        if key not in CHANGES:
            raise unknown_name("change", key, CHANGES)
    layout = shape.layout
    counts = {key: _count(key, changes[key]) for key in _COUNTS if key in changes}
    gpus = counts.get("gpus", layout.gpus)
    if gpus and shape.gpu is None:
        raise UsageError(f"{name} has no GPU, so gpus={gpus} says too little", hint="take a shape that has GPUs")
    most_links = shape.nvlink.links if shape.nvlink else 0
    nvlink = counts.get("nvlink", most_links)
    if nvlink > most_links:
        raise UsageError(f"nvlink={nvlink}: a GPU of {name} has {most_links} links", hint=f"give 0 to {most_links}")
    protocol = _protocol(changes.get("nic-protocol", shape.nic.protocol))
    return _Plan(
        shape=shape,
        gpus=gpus,
        gpus_per_switch=counts.get("gpus-per-switch", layout.gpus_per_switch),
        nics=counts.get("nics", layout.nics),
        drives=counts.get("drives", layout.drives),
        sockets=counts.get("sockets", layout.sockets),
        numa_per_socket=counts.get("numa-per-socket", layout.numa_per_socket),
        pcie=counts.get("pcie"),
        nvlink_links=nvlink,
        nic_rate_bits_per_s=_rate(changes.get("nic-rate"), shape.nic),
        nic_protocol=protocol,
        mtu_bytes=_mtu(changes.get("mtu"), protocol, shape.nic),
    )


def _count(key: str, text: str) -> int:
    allowed = _COUNTS[key]
    span = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 4 else ", ".join(str(value) for value in allowed)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) in allowed):
        raise UsageError(f"{key}={text[:40]} makes no sense", hint=f"{key} can be {span}")
    return int(text)


def _rate(text: str | None, nic: NicPart) -> float:
    if text is None:
        return nic.line_rate_bits_per_s
    rate = parse_line_rate(text)
    low, high = _RATE_BITS_PER_S
    if not low <= rate <= high:
        span = f"{format_line_rate(low)} to {format_line_rate(high)}"
        raise UsageError(f"nic-rate={text[:40]} makes no sense", hint=f"nic-rate can be {span}")
    return rate


def _protocol(text: str) -> NicProtocol:
    if text == "ethernet":
        return "ethernet"
    if text == "infiniband":
        return "infiniband"
    raise UsageError(f"nic-protocol={text[:40]} makes no sense", hint="nic-protocol can be ethernet or infiniband")


def _mtu(text: str | None, protocol: NicProtocol, nic: NicPart) -> int:
    if text is None:
        return nic.mtu_bytes[protocol]
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else -1
    low, high = _ETHERNET_MTU_BYTES
    if protocol == "infiniband" and value not in _IB_MTUS_BYTES:
        raise UsageError(
            f"mtu={text[:40]} is not an InfiniBand MTU", hint=f"mtu can be {', '.join(map(str, _IB_MTUS_BYTES))}"
        )
    if protocol == "ethernet" and not low <= value <= high:
        raise UsageError(f"mtu={text[:40]} makes no sense", hint=f"mtu can be {low} to {high} bytes")
    return value


def _add_cpus(parts: Parts, plan: _Plan) -> list[str]:
    """One cpu and one memory per NUMA node; every node is linked with every other."""
    cpu = plan.shape.cpu
    share = plan.numa_per_socket
    cpus = []
    for node in range(plan.nodes):
        facts: dict[str, Scalar | None] = {
            "package": node // share,
            "cores": cpu.cores // share,
            "vendor": cpu.vendor,
            "architecture": cpu.architecture,
            "family": cpu.family,
            "model": cpu.model,
            "source": cpu.source,
        }
        cpus.append(parts.add("cpu", name=cpu.name, numa=node, facts=facts))
        memory = parts.add("memory", numa=node, facts={"size_bytes": cpu.memory_bytes // share, "source": cpu.source})
        channels = MemoryLink(
            channels=cpu.memory_channels // share, transfers_per_s=cpu.memory_transfers_per_s, bus_bytes=_BUS_BYTES
        )
        parts.link(cpus[node], memory, channels)
    for one, other in itertools.combinations(range(plan.nodes), 2):
        if one // share == other // share:
            parts.link(cpus[one], cpus[other], SmpLink(name="in socket"))
        else:
            link = SmpLink(name=cpu.smp_name, links=cpu.smp_links, gt_per_s=cpu.smp_gt_per_s)
            parts.link(cpus[one], cpus[other], link)
    return cpus


def _add_switches(parts: Parts, plan: _Plan, cpus: list[str]) -> list[tuple[str, int]]:
    """The PCIe switches, each on a root port of its own, as (id, NUMA node)."""
    switches = []
    gpu = plan.shape.gpu
    for index in range(plan.switches):
        node = index * plan.nodes // plan.switches
        root_port = _root_port(parts, cpus, node)
        facts = {"source": plan.shape.layout.source}
        switch = parts.add("pcie_switch", name=plan.shape.layout.switch_name, numa=node, facts=facts)
        if gpu is not None:
            parts.link(root_port, switch, _pcie(plan, plan.pcie or gpu.pcie_generation, gpu.pcie_width))
        switches.append((switch, node))
    return switches


def _root_port(parts: Parts, cpus: list[str], node: int) -> str:
    root_port = parts.add("root_port", numa=node)
    parts.link(cpus[node], root_port, InternalLink(name="root complex"))
    return root_port


def _place(
    parts: Parts, plan: _Plan, cpus: list[str], switches: list[tuple[str, int]], at: int, of: int
) -> tuple[str, int]:
    """Where number `at` of `of` like devices goes: spread evenly over the switches, or over the NUMA nodes."""
    if switches:
        return switches[at * len(switches) // of]
    node = at * plan.nodes // of
    return _root_port(parts, cpus, node), node


def _add_gpus(parts: Parts, plan: _Plan, cpus: list[str], switches: list[tuple[str, int]]) -> None:
    gpu, nvlink = plan.shape.gpu, plan.shape.nvlink
    if gpu is None or not plan.gpus:
        return
    facts: dict[str, Scalar | None] = {
        "compute_capability": gpu.compute_capability,
        "memory_bytes": gpu.memory_bytes,
        "source": gpu.source,
    }
    gpus = []
    for index in range(plan.gpus):
        if switches:
            upper, node = switches[index // plan.gpus_per_switch]
        else:
            upper, node = _place(parts, plan, cpus, switches, index, plan.gpus)
        gpus.append(parts.add("gpu", name=gpu.name, numa=node, facts=facts))
        parts.link(upper, gpus[-1], _pcie(plan, plan.pcie or gpu.pcie_generation, gpu.pcie_width))
    if nvlink is None or not plan.nvlink_links or plan.gpus < 2:
        return
    chips: dict[str, Scalar | None] = {"chips": nvlink.switch_chips, "source": nvlink.source}
    nvswitch = parts.add("nvswitch", name=f"{nvlink.switch_chips} NVSwitches", facts=chips)
    for name in gpus:
        parts.link(
            nvswitch,
            name,
            NvlinkLink(generation=nvlink.generation, links=plan.nvlink_links, max_links=nvlink.links),
        )


def _add_nics(parts: Parts, plan: _Plan, cpus: list[str], switches: list[tuple[str, int]]) -> None:
    nic = plan.shape.nic
    names = []
    for index in range(plan.nics):
        upper, node = _place(parts, plan, cpus, switches, index, plan.nics)
        names.append(parts.add("nic", name=nic.name, numa=node, facts={"source": nic.source}))
        parts.link(upper, names[-1], _pcie(plan, plan.pcie or nic.pcie_generation, nic.pcie_width))
    if names:
        parts.add("fabric", device_id=FABRIC)
    rate, mtu_bytes = plan.nic_rate_bits_per_s, plan.mtu_bytes
    for name in names:
        if plan.nic_protocol == "infiniband":
            parts.link(name, FABRIC, InfinibandLink(line_rate_bits_per_s=rate, mtu_bytes=mtu_bytes))
        else:
            parts.link(name, FABRIC, EthernetLink(line_rate_bits_per_s=rate, mtu_bytes=mtu_bytes, rdma=nic.rdma))


def _add_drives(parts: Parts, plan: _Plan, cpus: list[str]) -> None:
    drive = plan.shape.drive
    for index in range(plan.drives):
        node = index * plan.nodes // plan.drives
        facts: dict[str, Scalar | None] = {"size_bytes": drive.size_bytes, "source": drive.source}
        name = parts.add("drive", device_id=f"nvme{index}n1", name=drive.name, numa=node, facts=facts)
        parts.link(_root_port(parts, cpus, node), name, _pcie(plan, drive.pcie_generation, drive.pcie_width))


def _pcie(plan: _Plan, generation: int, width: int) -> PcieLink:
    """A healthy link: trained to all that both ends can do."""
    speed = GT_PER_S[generation]
    return PcieLink(
        gt_per_s=speed,
        width=width,
        max_gt_per_s=speed,
        max_width=width,
        max_payload_bytes=plan.shape.max_payload_bytes,
        acs_redirect=plan.shape.acs_redirect,
    )
