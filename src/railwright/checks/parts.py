"""What several checks ask about a machine: what leads out of it, and what a GPU or NIC hangs from."""

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
from railwright.topology.gpus import nvidia_gpus, runs

Told = TypeVar("Told", bound=Hashable)


def is_rdma(link: Link) -> bool:
    """Whether that port can do RDMA."""
    protocol = link.protocol
    return isinstance(protocol, InfinibandLink | EfaLink) or (isinstance(protocol, EthernetLink) and protocol.rdma)


def speaks_iwarp(nic: Device) -> bool:
    """Whether its RDMA goes over TCP, with nothing of RoCE."""
    return nic.facts.get("rdma_transport") == "iWARP"


def rdma_ports(topology: Topology) -> tuple[tuple[Device, Link], ...]:
    """The NICs that can do RDMA, each with its port."""
    return tuple((nic, link) for nic, link in ports(topology) if is_rdma(link))


def rdma_nics(topology: Topology) -> tuple[Device, ...]:
    """The same NICs, each once."""
    return tuple({nic.id: nic for nic, _ in rdma_ports(topology)}.values())


def efas(topology: Topology) -> tuple[Device, ...]:
    """The NICs of AWS that have EFA."""
    return tuple(nic for nic in topology.of_kind("nic") if nic.facts.get("driver") == "efa")


def blind(devices: Callable[[Topology], Iterable[Device]], fact: str, says: str) -> Callable[[Topology], str]:
    """For `Check.asks`: `says` of the devices without a fact, where `{}` stands for their names; empty without them."""

    def ask(topology: Topology) -> str:
        names = [device.id for device in devices(topology) if fact not in device.facts]
        return says.format(runs(names)) if names else ""

    return ask


def links_below_switches(topology: Topology) -> tuple[Link, ...]:
    """The PCIe links between a switch and a GPU, a NIC or a card of NICs."""
    peers = {device.id for device in topology.of_kind("gpu", "nic", "card")}
    switches = {device.id for device in topology.of_kind("pcie_switch")}
    below = (link for link in pcie_links(topology) if peers & {link.a, link.b})
    return tuple(link for link in below if switches & {link.a, link.b})


def pcie_links(topology: Topology) -> list[Link]:
    """The links of PCIe."""
    return [link for link in topology.links if isinstance(link.protocol, PcieLink)]


def nvlink_not_read(topology: Topology) -> bool:
    """Whether the machine could not say where NVLinks lead, as where NVIDIA's library NVML did not answer."""
    return any(one.what.startswith("NVLink of") for one in topology.unknown)


def silent_gpus(topology: Topology) -> tuple[str, ...]:
    """The NVIDIA GPUs of a machine whose library NVML said nothing of any of them, so that none could be looked at.

    Empty where it answered, and for a machine that was not discovered but described: such a one has no settings.
    """
    gpus = [gpu for gpu in nvidia_gpus(topology) if gpu.facts.get("driver", "nvidia") == "nvidia"]
    # Only NVML names the vendor of a GPU that was discovered.
    answered = any(gpu.facts.get("vendor") == "nvidia" for gpu in gpus)
    return () if answered or not nvlink_not_read(topology) else tuple(gpu.id for gpu in gpus)


def grouped(gpus: Iterable[Device], told: Callable[[Device], Told | None]) -> dict[Told, list[str]]:
    """The ids of the GPUs by what `told` says of each. GPUs of which it says None are left out."""
    found: dict[Told, list[str]] = {}
    for gpu in gpus:
        what = told(gpu)
        if what is not None:
            found.setdefault(what, []).append(gpu.id)
    return found


def above(topology: Topology, device_id: str) -> Link | None:
    """The link from a device towards the CPU, past its card; in such a link the end nearer the CPU is `a`."""
    cards = {card.id for card in topology.of_kind("card")}
    kinds = {device.id: device.kind for device in topology.devices}
    upwards = {"cpu", "root_port", "pcie_switch", "card"}
    here, link = device_id, None
    for _ in topology.devices:  # no way up is longer, unless it is a circle
        link = next((one for one in topology.links if one.b == here and kinds.get(one.a) in upwards), None)
        if link is None or link.a not in cards:
            return link
        here = link.a
    return link


def pcie_above(topology: Topology, devices: Iterable[Device]) -> tuple[Link, ...]:
    """The PCIe links that those devices or their cards hang from, each once."""
    found = (above(topology, device.id) for device in devices)
    return tuple({link.id: link for link in found if link is not None and isinstance(link.protocol, PcieLink)}.values())
