"""The NICs of a machine in the order of their distance from a GPU or a memory, by the names that UCX gives them."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.topology.devices import Device, Topology
from railwright.topology.paths import KIND_ORDER, Graph


def rank_nics(topology: Topology, device: str) -> list[tuple[int, Device]]:
    """Return the NICs that are up, the nearest first, each with the rank of its path to a device.

    NICs without RDMA count only if the machine has no other. Empty if the machine does not have the device.
    """
    usable = [nic for nic, _ in topology.ports_out if name_nic(nic) and nic.facts.get("state") != "down"]
    able = [nic for nic in usable if nic.facts.get("rdma_device")] or usable
    if topology.device(device) is None:
        return []
    graph = Graph(topology)
    paths = ((graph.find(nic.id, device), nic) for nic in {nic.id: nic for nic in able}.values())
    found = [(KIND_ORDER.index(path.kind), nic) for path, nic in paths if path is not None]
    return sorted(found, key=lambda pair: pair[0])


def pair_ports(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of the ports of two hosts that belong together: those of one name, or else in order."""
    named = [(place, second.index(name)) for place, name in enumerate(first) if name in second]
    return named or [(place, place) for place in range(min(len(first), len(second)))]


def name_nic(nic: Device) -> str:
    """Return a NIC's name in UCX_NET_DEVICES, such as `mlx5_0:1` or `eth0`, or an empty string if it is unknown."""
    if device := nic.facts.get("rdma_device"):
        return f"{device}:{nic.facts.get('rdma_port', 1)}"
    return str(nic.facts.get("netdev", ""))
