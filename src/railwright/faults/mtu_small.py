"""An MTU too small for RDMA's largest packets: more headers for the same data, and more packets to process.

RDMA packets carry 256 to 4096 bytes (InfiniBand Architecture Specification 1.5). Over Ethernet Linux takes the largest
size that leaves room for all possible headers (include/rdma/ib_addr.h, iboe_get_mtu): an MTU of 1500 gives 1024, and
4096 gives 2048. At 1500 the headers cost 5.5 % more of the line rate than at 9000, and small packets cost time:
18.9 GB/s instead of 23.7 in published nccl-tests of a DGX Spark.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.finding import PartPlace
from railwright.checks.parts import rdma_ports, speaks_iwarp
from railwright.faults.cases import crosses_network, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.network import LINUX_ROCE_BYTES, RDMA_MTUS, find_payload, largest_rdma_mtu
from railwright.topology.changes import change_links
from railwright.topology.devices import EthernetLink, InfinibandLink, Link, Topology

_MAX_PACKET_BYTES = max(int(mtu.value) for mtu in RDMA_MTUS)
_JUMBO = 9000
"""The recommended MTU: any Ethernet MTU from 4192 gives RDMA packets of 4096 bytes, and switches support 9000."""


class _Small(NamedTuple):
    """An Ethernet MTU and the size of the RDMA packets that fit in it, in bytes."""

    ethernet: int
    rdma: int


_SUPPOSED = (_Small(1500, 1024), _Small(4096, 2048))
"""Ethernet's default MTU, and the mistake of setting the MTU to the payload size."""


def _signs(facts: Facts) -> Findings:
    unknown: list[PartPlace] = []
    for nic, link in rdma_ports(facts.topology):
        protocol = link.protocol
        if nic.facts.get("state") == "down" or not isinstance(protocol, EthernetLink | InfinibandLink):
            continue  # EFA splits messages itself
        if speaks_iwarp(nic):
            continue  # with iWARP, TCP splits messages
        where = [PartPlace(nic.id), PartPlace(link.id)]
        packet = _packet_bytes(protocol)
        if protocol.mtu_bytes is None:
            unknown += where
        elif packet < _MAX_PACKET_BYTES:
            ethernet = isinstance(protocol, EthernetLink)
            leaves = f" limits RDMA to packets of {packet} bytes" if ethernet else ""
            change = f"set MTU {_JUMBO} on the port and on every switch on the path"
            if not ethernet:
                change = "set MTU 4096 for the partition in the subnet manager"
            yield FAULT.finding(
                where,
                f"MTU {protocol.mtu_bytes} of {nic.id}{leaves}, but {_MAX_PACKET_BYTES} is possible",
                ("mtu", str(protocol.mtu_bytes), "MTU of the port"),
                certainty="seen" if _is_for_gpus(facts.topology, protocol) else "possible",
                costs=_format_costs(protocol),
                remedy=f"{change}, then check active_mtu with ibv_devinfo",
            )
    if unknown:
        yield FAULT.blind(
            unknown,
            f"the RDMA MTU of {len(unknown) // 2} NICs cannot be read",
            remedy="ibv_devinfo -d mlx5_N | grep active_mtu must show 4096",
        )


def _packet_bytes(protocol: EthernetLink | InfinibandLink) -> int:
    """Return the payload of an RDMA packet on the port in bytes, 0 if not even the smallest fits."""
    mtu = protocol.mtu_bytes or 0
    if isinstance(protocol, InfinibandLink):
        return mtu
    return largest_rdma_mtu(mtu - LINUX_ROCE_BYTES.value)


def _is_for_gpus(topology: Topology, protocol: EthernetLink | InfinibandLink) -> bool:
    """Report whether the port serves GPUs; ports slower than the fastest are for management."""
    rates = [
        link.protocol.line_rate_bits_per_s or 0.0
        for _, link in rdma_ports(topology)
        if isinstance(link.protocol, EthernetLink | InfinibandLink)
    ]
    return bool(topology.of_kind("gpu")) and (protocol.line_rate_bits_per_s or 0.0) >= max(rates)


def _format_costs(protocol: EthernetLink | InfinibandLink) -> str:
    healthy = find_payload(
        replace(protocol, mtu_bytes=_JUMBO if isinstance(protocol, EthernetLink) else _MAX_PACKET_BYTES)
    )
    now = find_payload(protocol)
    assert healthy is not None
    assert now is not None
    return (
        f"{healthy.share - now.share:.1%} of the line rate in headers alone (limits), and more where the packet rate"
        " limits: 18.9 GB/s instead of 23.7 at MTU 1500 (DGX Spark, published nccl-tests)"
    )


def _degrade(topology: Topology, where: str) -> Topology:
    """Set the port of a NIC or link id to Ethernet's default MTU, or to InfiniBand packets of 1024 bytes."""
    return change_links(topology, lambda link: _lower_mtu(link, _SUPPOSED[0]) if where in (link.id, link.a) else link)


def _lower_mtu(link: Link, small: _Small) -> Link:
    """Lower the MTU of an RDMA port; other ports and smaller MTUs stay unchanged."""
    protocol = link.protocol
    if isinstance(protocol, InfinibandLink) and (protocol.mtu_bytes or 0) > small.rdma:
        return replace(link, protocol=replace(protocol, mtu_bytes=small.rdma))
    if isinstance(protocol, EthernetLink) and protocol.rdma and (protocol.mtu_bytes or 0) > small.ethernet:
        return replace(link, protocol=replace(protocol, mtu_bytes=small.ethernet))
    return link


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    return topology, change_links(topology, _raise_mtu)


def _raise_mtu(link: Link) -> Link:
    """Raise the MTU of an RDMA port to allow the largest packets."""
    protocol = link.protocol
    if isinstance(protocol, InfinibandLink) and protocol.mtu_bytes:
        return replace(link, protocol=replace(protocol, mtu_bytes=_MAX_PACKET_BYTES))
    if isinstance(protocol, EthernetLink) and protocol.rdma and protocol.mtu_bytes:
        return replace(link, protocol=replace(protocol, mtu_bytes=max(protocol.mtu_bytes, _JUMBO)))
    return link


def _hypotheses(case: Case) -> Hypotheses:
    host = case.cluster.host
    if not crosses_network(case):
        return
    roce = any(isinstance(link.protocol, EthernetLink) for _, link in rdma_ports(host))
    for small in _SUPPOSED:
        changed = change_links(host, partial(_lower_mtu, small=small))
        if changed != host:
            ethernet = f"an Ethernet MTU of {small.ethernet}, so RDMA packets carry {small.rdma} bytes"
            yield FAULT.supposed(
                f"the NICs have {ethernet if roce else f'an InfiniBand MTU of {small.rdma}'}",
                replace_host(case, changed),
                "ibv_devinfo -d mlx5_N | grep active_mtu; ib_write_bw -d mlx5_N --report_gbits",
            )


FAULT = Fault(
    name="mtu_small",
    summary="an MTU too small for RDMA's largest packets",
    right="the MTU fits RDMA's largest packets",
    signs=_signs,
    needs=(needs.rdma_nic,),
    mend=_build_with_and_without,
    degrade=_degrade,
    ways=_hypotheses,
)
