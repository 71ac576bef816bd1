"""From a named shape, with changes, to a topology."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from railwright.topology.model import (
    GT_PER_S,
    C2cLink,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    MemoryLink,
    NvlinkLink,
    PcieLink,
    Protocol,
    Scalar,
    SmpLink,
    Topology,
    XgmiLink,
)
from railwright.topology.parts import FABRIC, Parts
from railwright.topology.plan import CHANGES, Plan, planned
from railwright.topology.shapes import SHAPES, canonical_name, unknown_shape
from railwright.topology.shapes.model import GpuPart

__all__ = ["CHANGES", "expand"]

_BUS_BYTES = 8


def expand(name: str, changes: Mapping[str, str]) -> Topology:
    """The machine of that shape with the changes made, each a text like `2` or `400Gb/s`.

    `name` is a shape's, or what its vendor calls it, in upper or lower case.
    NICs, however many, are spread evenly over the PCIe switches and so over the sockets.
    Raises UsageError for an unknown shape or change, and for a value that makes no sense.
    """
    canonical = canonical_name(name)
    if canonical is None:
        raise unknown_shape(name)
    plan = planned(SHAPES[canonical], canonical, changes)
    parts = Parts()
    parts.add("host", name=plan.shape.title, facts=_host_facts(plan, canonical))
    cpus = _add_cpus(parts, plan)
    switches = _add_switches(parts, plan, cpus)
    gpus = _add_gpus(parts, plan, cpus, switches)
    _add_gpu_links(parts, plan, gpus)
    _add_nics(parts, plan, cpus, switches)
    _add_drives(parts, plan, cpus)
    words = [f"{key}={value}" for key, value in changes.items()]
    return Topology(name=" ".join([canonical, *words]), source="shape", devices=parts.devices(), links=parts.links())


def _host_facts(plan: Plan, name: str) -> dict[str, Scalar | None]:
    facts: dict[str, Scalar | None] = {"shape": name, "layout_source": plan.shape.layout.source}
    if plan.shape.nvlink is not None and plan.nvlink_links and plan.shape.nvlink.domain_hosts > 1:
        facts["nvlink_domain_hosts"] = plan.shape.nvlink.domain_hosts
    return facts


def _add_cpus(parts: Parts, plan: Plan) -> list[str]:
    """One cpu and one memory per NUMA node; every node is linked with every other."""
    cpu = plan.shape.cpu
    share = plan.numa_per_socket
    size_bytes, channels, transfers_per_s = cpu.memory
    memory_link = MemoryLink()
    if channels is not None:
        memory_link = MemoryLink(channels=channels // share, transfers_per_s=transfers_per_s, bus_bytes=_BUS_BYTES)
    cpus = []
    for node in range(plan.nodes):
        facts: dict[str, Scalar | None] = {
            "package": node // share,
            "cores": cpu.cores // share,
            "vendor": cpu.cpuid.vendor,
            "architecture": cpu.cpuid.architecture,
            "family": cpu.cpuid.family,
            "model": cpu.cpuid.model,
            "source": cpu.source,
        }
        cpus.append(parts.add("cpu", name=cpu.name, numa=node, facts=facts))
        memory = parts.add("memory", numa=node, facts={"size_bytes": size_bytes // share, "source": cpu.source})
        parts.link(cpus[node], memory, memory_link)
    for one, other in itertools.combinations(range(plan.nodes), 2):
        if one // share == other // share:
            parts.link(cpus[one], cpus[other], SmpLink(name="in socket"))
        else:
            parts.link(cpus[one], cpus[other], cpu.smp)
    return cpus


def _add_switches(parts: Parts, plan: Plan, cpus: list[str]) -> list[tuple[str, int]]:
    """The PCIe switches, each on a root port of its own, as (id, NUMA node)."""
    switches = []
    gpu, layout = plan.shape.gpu, plan.shape.layout
    for index in range(plan.switches):
        node = index * plan.nodes // plan.switches
        root_port = _root_port(parts, cpus, node)
        name = layout.switch_name or "PCIe switch"
        switch = parts.add("pcie_switch", name=name, numa=node, facts={"source": layout.source})
        if gpu is not None:
            uplink = layout.uplink_generation or gpu.pcie.generation
            parts.link(root_port, switch, _pcie(plan, plan.pcie or uplink, gpu.pcie.width))
        switches.append((switch, node))
    return switches


def _root_port(parts: Parts, cpus: list[str], node: int) -> str:
    root_port = parts.add("root_port", numa=node)
    parts.link(cpus[node], root_port, InternalLink(name="root complex"))
    return root_port


def _place(
    parts: Parts, plan: Plan, cpus: list[str], switches: list[tuple[str, int]], at: int, of: int
) -> tuple[str, int]:
    """Where number `at` of `of` like devices goes: spread evenly over the switches, or over the NUMA nodes."""
    if switches:
        return switches[at * len(switches) // of]
    node = at * plan.nodes // of
    return _root_port(parts, cpus, node), node


def _add_gpus(parts: Parts, plan: Plan, cpus: list[str], switches: list[tuple[str, int]]) -> list[str]:
    gpu = plan.shape.gpu
    if gpu is None:
        return []
    gpus = []
    protocol: Protocol
    for index in range(plan.gpus):
        if gpu.attachment == "c2c":
            node = index * plan.nodes // plan.gpus
            upper, protocol = cpus[node], C2cLink()
        elif switches:
            upper, node = switches[index // plan.gpus_per_switch]
            protocol = _pcie(plan, plan.pcie or gpu.pcie.generation, gpu.pcie.width)
        else:
            upper, node = _place(parts, plan, cpus, switches, index, plan.gpus)
            protocol = _pcie(plan, plan.pcie or gpu.pcie.generation, gpu.pcie.width)
        gpus.append(parts.add("gpu", name=gpu.name, numa=node, facts=_gpu_facts(gpu)))
        parts.link(upper, gpus[-1], protocol)
    return gpus


def _gpu_facts(gpu: GpuPart) -> dict[str, Scalar | None]:
    return {
        "vendor": gpu.vendor,
        "compute_capability": gpu.compute_capability,
        "memory_bytes": gpu.memory_bytes,
        "hbm_bandwidth_bytes_per_s": gpu.hbm_bandwidth_bytes_per_s,
        "fp64_tensor_flop_per_s": gpu.fp64_tensor_flop_per_s,
        "source": gpu.source,
    }


def _add_gpu_links(parts: Parts, plan: Plan, gpus: list[str]) -> None:
    """NVLinks to the NVSwitches or between pairs, or Infinity Fabric between all."""
    nvlink, xgmi = plan.shape.nvlink, plan.shape.xgmi
    if xgmi is not None:
        for one, other in itertools.combinations(gpus, 2):
            parts.link(one, other, XgmiLink(generation=xgmi.generation, links=xgmi.links))
    if nvlink is None or not plan.nvlink_links or not gpus:
        return
    for first, second, links in nvlink.pairs:
        if max(first, second) < len(gpus):
            protocol = NvlinkLink(generation=nvlink.generation, links=links, max_links=links)
            parts.link(gpus[first], gpus[second], protocol)
    if nvlink.pairs or (len(gpus) < 2 and nvlink.domain_hosts == 1):
        return
    chips: dict[str, Scalar | None] = {"chips": nvlink.switch_chips, "source": nvlink.source}
    nvswitch = parts.add("nvswitch", name=f"{nvlink.switch_chips} NVSwitches", facts=chips)
    for name in gpus:
        parts.link(
            nvswitch,
            name,
            NvlinkLink(generation=nvlink.generation, links=plan.nvlink_links, max_links=nvlink.links),
        )


def _add_nics(parts: Parts, plan: Plan, cpus: list[str], switches: list[tuple[str, int]]) -> None:
    """The NIC ports; where several share a card's PCIe link, below that card."""
    nic = plan.shape.nic
    names: list[str] = []
    facts: dict[str, Scalar | None] = {"source": nic.source, "gpudirect_tcp": nic.gpudirect_tcp or None}
    cards = -(-plan.nics // nic.ports_per_card)
    for index in range(cards):
        upper, node = _place(parts, plan, cpus, switches, index, cards)
        protocol: Protocol = _pcie(plan, plan.pcie or nic.pcie.generation, nic.pcie.width)
        if nic.ports_per_card > 1:
            card = parts.add("card", name=nic.name, numa=node, facts=facts)
            parts.link(upper, card, protocol)
            upper, protocol = card, InternalLink(name="card")
        for _ in range(min(nic.ports_per_card, plan.nics - len(names))):
            names.append(parts.add("nic", name=nic.name, numa=node, facts=facts))
            parts.link(upper, names[-1], protocol)
    if names:
        parts.add("fabric", device_id=FABRIC)
    for name in names:
        parts.link(name, FABRIC, _port(plan))


def _port(plan: Plan) -> Protocol:
    rate, mtu_bytes = plan.nic_rate_bits_per_s, plan.mtu_bytes
    match plan.nic_protocol:
        case "infiniband":
            return InfinibandLink(line_rate_bits_per_s=rate, mtu_bytes=mtu_bytes)
        case "efa":
            return EfaLink(line_rate_bits_per_s=rate, mtu_bytes=mtu_bytes)
        case _:
            return EthernetLink(line_rate_bits_per_s=rate, mtu_bytes=mtu_bytes, rdma=plan.shape.nic.rdma)


def _add_drives(parts: Parts, plan: Plan, cpus: list[str]) -> None:
    drive = plan.shape.drive
    if drive is None:
        return
    for index in range(plan.drives):
        node = index * plan.nodes // plan.drives
        facts: dict[str, Scalar | None] = {"size_bytes": drive.size_bytes, "source": drive.source}
        name = parts.add("drive", device_id=f"nvme{index}n1", name=drive.name, numa=node, facts=facts)
        parts.link(_root_port(parts, cpus, node), name, _pcie(plan, drive.pcie.generation, drive.pcie.width))


def _pcie(plan: Plan, generation: int | None, width: int | None) -> PcieLink:
    """A healthy link: trained to all that both ends can do. What is not published stays None."""
    speed = GT_PER_S[generation] if generation is not None else None
    return PcieLink(
        gt_per_s=speed,
        width=width,
        max_gt_per_s=speed,
        max_width=width,
        max_payload_bytes=plan.shape.max_payload_bytes,
        acs_redirect=plan.shape.acs_redirect,
    )
