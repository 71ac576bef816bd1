"""Changed topologies: without some devices, or with changed links."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink, Link, PcieLink, Topology


def remove_devices(topology: Topology, gone: Collection[str]) -> Topology:
    """Return the topology without the devices in `gone` and their links."""
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.id not in gone),
        links=tuple(link for link in topology.links if link.a not in gone and link.b not in gone),
    )


def add_gpu_addresses(topology: Topology) -> Topology:
    """Return the topology with an address for each GPU without one, such as those of a shape, in their order.

    A plan needs it, since CUDA orders GPUs by their addresses.
    """
    gpus = {gpu.id: f"0000:{place:02x}:00.0" for place, gpu in enumerate(topology.of_kind("gpu"), 1)}
    devices = tuple(
        replace(device, address=device.address or gpus[device.id]) if device.id in gpus else device
        for device in topology.devices
    )
    return replace(topology, devices=devices)


def add_rdma_names(topology: Topology) -> Topology:
    """Return the topology with a name for each RDMA device without one, such as those of a shape.

    A plan needs it, since benchmarks and searches find ports by their names.
    """
    rdma = {device.id for device, link in topology.ports_out if isinstance(link.protocol, InfinibandLink)
            or (isinstance(link.protocol, EthernetLink) and link.protocol.rdma)}  # fmt: skip
    devices = tuple(
        replace(device, facts={"rdma_device": device.id, **device.facts}) if device.id in rdma else device
        for device in topology.devices
    )
    return replace(topology, devices=devices)


def change_links(topology: Topology, change: Callable[[Link], Link]) -> Topology:
    """Return the topology with `change` applied to every link."""
    return replace(topology, links=tuple(change(link) for link in topology.links))


def add_host_facts(topology: Topology, **facts: bool) -> Topology:
    """Return the topology with facts added to its hosts."""
    devices = tuple(
        replace(device, facts={**device.facts, **facts}) if device.kind == "host" else device
        for device in topology.devices
    )
    return replace(topology, devices=devices)


def change_pcie(topology: Topology, ids: Collection[str], change: Callable[[PcieLink], PcieLink]) -> Topology:
    """Return the topology with `change` applied to the PCIe links in `ids`, for example to model a fault."""

    def changed(link: Link) -> Link:
        protocol = link.protocol
        return replace(link, protocol=change(protocol)) if link.id in ids and isinstance(protocol, PcieLink) else link

    return change_links(topology, changed)


def convert_to_tcp(link: Link) -> Link:
    """Return a port's link as Ethernet without RDMA at the same line rate and MTU; other links are unchanged."""
    protocol = link.protocol
    if not isinstance(protocol, EthernetLink | InfinibandLink | EfaLink):
        return link
    # IP over InfiniBand has the MTU of its port, less 4 bytes (RFC 4391), which does not change the rate of sockets.
    tcp = EthernetLink(
        line_rate_bits_per_s=protocol.line_rate_bits_per_s,
        mtu_bytes=protocol.mtu_bytes,
        rdma=False,
        assumed=protocol.assumed,
    )
    return replace(link, protocol=tcp)
