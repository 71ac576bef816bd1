"""Queries that several checks share: a machine's ports, and the links above its GPUs and NICs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from railwright.topology.cluster import ports
from railwright.topology.devices import (
    Device,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    Link,
    PcieLink,
    Topology,
)
from railwright.topology.gpus import format_runs, nvidia_gpus

Group = TypeVar("Group", bound=Hashable)


def is_rdma(link: Link) -> bool:
    """Report whether the port supports RDMA."""
    protocol = link.protocol
    return isinstance(protocol, InfinibandLink | EfaLink) or (isinstance(protocol, EthernetLink) and protocol.rdma)


def speaks_iwarp(nic: Device) -> bool:
    """Report whether the NIC's RDMA is iWARP, which runs over TCP and not RoCE."""
    return nic.facts.get("rdma_transport") == "iWARP"


def rdma_ports(topology: Topology) -> tuple[tuple[Device, Link], ...]:
    """Return the NICs that support RDMA, each with its port."""
    return tuple((nic, link) for nic, link in ports(topology) if is_rdma(link))


def rdma_nics(topology: Topology) -> tuple[Device, ...]:
    """Return the NICs that support RDMA, without duplicates."""
    return tuple({nic.id: nic for nic, _ in rdma_ports(topology)}.values())


def efas(topology: Topology) -> tuple[Device, ...]:
    """Return the EFA adapters."""
    return tuple(nic for nic in topology.of_kind("nic") if nic.facts.get("driver") == "efa")


def blind(devices: Callable[[Topology], Iterable[Device]], fact: str, says: str) -> Callable[[Topology], str]:
    """Return a function for `Check.asks` that names the devices without a fact.

    The `{}` in `says` is replaced by their names. The function returns an empty string if no device lacks the fact.
    """

    def ask(topology: Topology) -> str:
        names = [device.id for device in devices(topology) if fact not in device.facts]
        return says.format(format_runs(names)) if names else ""

    return ask


def links_below_switches(topology: Topology) -> tuple[Link, ...]:
    """Return the PCIe links between a switch and a GPU, a NIC or a NIC card."""
    peers = {device.id for device in topology.of_kind("gpu", "nic", "card")}
    switches = {device.id for device in topology.of_kind("pcie_switch")}
    below = (link for link in pcie_links(topology) if peers & {link.a, link.b})
    return tuple(link for link in below if switches & {link.a, link.b})


def pcie_links(topology: Topology) -> list[Link]:
    """Return the PCIe links."""
    return [link for link in topology.links if isinstance(link.protocol, PcieLink)]


def nvlink_not_read(topology: Topology) -> bool:
    """Report whether the NVLink topology is unknown, for example because NVML did not answer."""
    return any(entry.what.startswith("NVLink of") for entry in topology.unknown)


def silent_gpus(topology: Topology) -> tuple[str, ...]:
    """Return the NVIDIA GPUs of a machine if NVML reported none of them, so that none could be inspected.

    Empty if NVML answered, and for a described machine, which has no settings.
    """
    gpus = [gpu for gpu in nvidia_gpus(topology) if gpu.facts.get("driver", "nvidia") == "nvidia"]
    # Only NVML names the vendor of a GPU that was discovered.
    answered = any(gpu.facts.get("vendor") == "nvidia" for gpu in gpus)
    return () if answered or not nvlink_not_read(topology) else tuple(gpu.id for gpu in gpus)


def group_ids(gpus: Iterable[Device], told: Callable[[Device], Group | None]) -> dict[Group, list[str]]:
    """Group the ids of devices by the value of `told`; devices for which it returns None are left out."""
    found: dict[Group, list[str]] = {}
    for gpu in gpus:
        value = told(gpu)
        if value is not None:
            found.setdefault(value, []).append(gpu.id)
    return found


def find_uplink(topology: Topology, device_id: str) -> Link | None:
    """Return the link from a device towards the CPU, skipping its card; `a` is the end nearer the CPU."""
    cards = {card.id for card in topology.of_kind("card")}
    kinds = {device.id: device.kind for device in topology.devices}
    upwards = {"cpu", "root_port", "pcie_switch", "card"}
    here, link = device_id, None
    for _ in topology.devices:  # bounds the walk if the links form a cycle
        link = next(
            (
                link_above
                for link_above in topology.links
                if link_above.b == here and kinds.get(link_above.a) in upwards
            ),
            None,
        )
        if link is None or link.a not in cards:
            return link
        here = link.a
    return link


def list_pcie_uplinks(topology: Topology, devices: Iterable[Device]) -> tuple[Link, ...]:
    """Return the upstream PCIe links of the devices or of their cards, without duplicates."""
    found = (find_uplink(topology, device.id) for device in devices)
    return tuple({link.id: link for link in found if link is not None and isinstance(link.protocol, PcieLink)}.values())
