"""Packets of verbs: an MTU that only the run knows, and headers that only some runs have."""

from __future__ import annotations

from dataclasses import replace as change

from msgspec.structs import replace

from railwright.expected.bands import scale_band
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Constant, Limit, NoLimit
from railwright.limits.network import ROCE_BYTES, find_payload, rdma_mtu
from railwright.limits.sources import IBTA
from railwright.results.workload import Message
from railwright.topology.changes import change_links
from railwright.topology.devices import EthernetLink, InfinibandLink, Link

GRH_BYTES = Constant(40, "bytes of GRH", IBTA)
"""InfiniBand within a subnet does without."""
DETH_BYTES = Constant(8, "bytes of DETH", IBTA)
"""Unreliable datagrams name their source."""


def fill_mtu(workload: Message, machine: Machine) -> Machine:
    """Return the machine whose ports of unknown MTU have that of the run: no file gives InfiniBand's."""
    mtu, protocols = workload.mtu_bytes, [link.protocol for _, link in machine.host.ports_out]
    if not mtu or not any(
        isinstance(one, InfinibandLink | EthernetLink) and one.mtu_bytes is None for one in protocols
    ):
        return machine

    def fill(link: Link) -> Link:
        protocol = link.protocol
        if isinstance(protocol, InfinibandLink) and protocol.mtu_bytes is None:
            return replace(link, protocol=replace(protocol, mtu_bytes=mtu))
        if isinstance(protocol, EthernetLink) and protocol.mtu_bytes is None and protocol.rdma:
            return replace(link, protocol=replace(protocol, mtu_bytes=mtu + int(ROCE_BYTES.value)))
        return link

    case = machine.case
    cluster = replace(machine.cluster, host=change_links(machine.cluster.host, fill))
    if case is not None:
        case = replace(case, cluster=replace(case.cluster, host=change_links(case.cluster.host, fill)))
    return change(machine, cluster=cluster, case=case)


def add_headers(workload: Message, machine: Machine, bounds: Bounds) -> Bounds:
    """Return the bounds of a rate less the headers that packets of this run have beside the usual ones."""
    limit, band = bounds
    protocol = next((link.protocol for _, link in machine.host.ports_out if link.id == _port(limit)), None)
    if not isinstance(limit, Limit) or limit.quantity == "latency_s":
        return bounds
    if not isinstance(protocol, InfinibandLink | EthernetLink) or protocol.mtu_bytes is None:
        return bounds
    is_infiniband = isinstance(protocol, InfinibandLink)
    has = {GRH_BYTES: workload.has_grh and is_infiniband, DETH_BYTES: workload.connection == "UD"}
    more = sum(header.value for header, is_sent in has.items() if is_sent)
    payload = find_payload(protocol)
    if not more or payload is None:
        return bounds
    mtu = protocol.mtu_bytes if is_infiniband else rdma_mtu(protocol.mtu_bytes)
    share = 1 / (1 + more * payload.share / mtu)
    names = " and ".join(f"{header.value:g} {header.unit}" for header, is_sent in has.items() if is_sent)
    reduced = replace(limit, value=limit.value * share, because=f"{limit.because}, less {names}")
    return reduced, scale_band(band, share, share) if band is not None else None


def _port(limit: Limit | NoLimit) -> str:
    """Return the id of the link that limits, as in one host."""
    bottleneck = limit.bottleneck if isinstance(limit, Limit) else ""
    return "--".join(end.partition("@")[0] for end in bottleneck.split("--"))
