"""An MTU below what RDMA can use: more headers for the same data, and more packets for NIC and switch to handle.

RDMA packets carry 256 to 4096 bytes (InfiniBand Architecture Specification 1.5). Over Ethernet Linux takes the largest
that leaves room for all headers there could be (include/rdma/ib_addr.h, iboe_get_mtu): an MTU of 1500 gives 1024, and
4096 gives 2048. With 1500 the headers cost 5.5 % of the line rate more than with 9000, and small packets cost time: DGX
Spark, published nccl-tests: 18.9 GB/s instead of 23.7.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.parts import rdma_ports, speaks_iwarp
from railwright.faults.cases import over_network, with_host
from railwright.faults.fault import Fault, Ways
from railwright.limits.case import Case
from railwright.limits.network import LINUX_ROCE_BYTES, RDMA_MTUS, largest_rdma_mtu, payload_of
from railwright.topology.changes import with_links
from railwright.topology.devices import EthernetLink, InfinibandLink, Link, Topology

_BEST = max(int(mtu.value) for mtu in RDMA_MTUS)
_JUMBO = 9000
"""What remedies ask for: any Ethernet MTU from 4192 gives RDMA packets of 4096 bytes, and switches take 9000."""


class _Small(NamedTuple):
    """An MTU of the port and the RDMA packets that it leaves, in bytes."""

    ethernet: int
    rdma: int


_SUPPOSED = (_Small(1500, 1024), _Small(4096, 2048))
"""Ethernet's own MTU, and the mistake of giving the payload's size as the MTU."""


def _signs(facts: Facts) -> Findings:
    unknown: list[OfPart] = []
    for nic, link in rdma_ports(facts.topology):
        protocol = link.protocol
        if nic.facts.get("state") == "down" or not isinstance(protocol, EthernetLink | InfinibandLink):
            continue  # EFA cuts its packets itself
        if speaks_iwarp(nic):
            continue  # TCP does
        where = [OfPart(nic.id), OfPart(link.id)]
        packet = _packet(protocol)
        if protocol.mtu_bytes is None:
            unknown += where
        elif packet < _BEST:
            ethernet = isinstance(protocol, EthernetLink)
            leaves = f" leaves RDMA packets of {packet} bytes" if ethernet else ""
            change = f"set MTU {_JUMBO} on the port and on every switch between"
            if not ethernet:
                change = "set MTU 4096 for the partition in the subnet manager"
            yield FAULT.finding(
                where,
                f"MTU {protocol.mtu_bytes} of {nic.id}{leaves}, {_BEST} is possible",
                ("mtu", str(protocol.mtu_bytes), "MTU of the port"),
                certainty="seen" if _is_for_gpus(facts.topology, protocol) else "possible",
                costs=_costs(protocol),
                remedy=f"{change}, then look at active_mtu of ibv_devinfo",
            )
    if unknown:
        yield FAULT.blind(
            unknown,
            f"the RDMA MTU of {len(unknown) // 2} NICs cannot be read",
            remedy="ibv_devinfo -d mlx5_N | grep active_mtu: 4096 is the best",
        )


def _packet(protocol: EthernetLink | InfinibandLink) -> int:
    """Payload bytes of an RDMA packet on that port, 0 where not even the least fits."""
    mtu = protocol.mtu_bytes or 0
    if isinstance(protocol, InfinibandLink):
        return mtu
    return largest_rdma_mtu(mtu - LINUX_ROCE_BYTES.value)


def _is_for_gpus(topology: Topology, protocol: EthernetLink | InfinibandLink) -> bool:
    """Ports slower than the machine's fastest are for management, where a small MTU is usual."""
    rates = [
        link.protocol.line_rate_bits_per_s or 0.0
        for _, link in rdma_ports(topology)
        if isinstance(link.protocol, EthernetLink | InfinibandLink)
    ]
    return bool(topology.of_kind("gpu")) and (protocol.line_rate_bits_per_s or 0.0) >= max(rates)


def _costs(protocol: EthernetLink | InfinibandLink) -> str:
    healthy = payload_of(replace(protocol, mtu_bytes=_JUMBO if isinstance(protocol, EthernetLink) else _BEST))
    now = payload_of(protocol)
    assert healthy is not None
    assert now is not None
    return (
        f"{healthy.share - now.share:.1%} of the line rate in headers alone (limits), and more where packets cost time:"
        " 18.9 GB/s instead of 23.7 at MTU 1500 (DGX Spark, published nccl-tests)"
    )


def _degrade(topology: Topology, where: str) -> Topology:
    """The port `where` (its NIC's id or its link's) with Ethernet's own MTU, or with InfiniBand packets of 1024."""
    return with_links(topology, lambda link: _with_mtu(link, _SUPPOSED[0]) if where in (link.id, link.a) else link)


def _with_mtu(link: Link, small: _Small) -> Link:
    """A port at that MTU; one that is no RDMA port or has a smaller MTU already stays as it is."""
    protocol = link.protocol
    if isinstance(protocol, InfinibandLink) and (protocol.mtu_bytes or 0) > small.rdma:
        return replace(link, protocol=replace(protocol, mtu_bytes=small.rdma))
    if isinstance(protocol, EthernetLink) and protocol.rdma and (protocol.mtu_bytes or 0) > small.ethernet:
        return replace(link, protocol=replace(protocol, mtu_bytes=small.ethernet))
    return link


def _mend(topology: Topology) -> tuple[Topology, Topology]:
    return topology, with_links(topology, _with_room)


def _with_room(link: Link) -> Link:
    """A port with an MTU that gives RDMA its largest packets."""
    protocol = link.protocol
    if isinstance(protocol, InfinibandLink) and protocol.mtu_bytes:
        return replace(link, protocol=replace(protocol, mtu_bytes=_BEST))
    if isinstance(protocol, EthernetLink) and protocol.rdma and protocol.mtu_bytes:
        return replace(link, protocol=replace(protocol, mtu_bytes=max(protocol.mtu_bytes, _JUMBO)))
    return link


def _ways(case: Case) -> Ways:
    host = case.cluster.host
    if not over_network(case):
        return
    roce = any(isinstance(link.protocol, EthernetLink) for _, link in rdma_ports(host))
    for small in _SUPPOSED:
        changed = with_links(host, partial(_with_mtu, small=small))
        if changed != host:
            ethernet = f"an Ethernet MTU of {small.ethernet}, so that RDMA packets carry {small.rdma} bytes"
            yield FAULT.supposed(
                f"the NICs have {ethernet if roce else f'an InfiniBand MTU of {small.rdma}'}",
                with_host(case, changed),
                "ibv_devinfo -d mlx5_N | grep active_mtu; ib_write_bw -d mlx5_N --report_gbits",
            )


FAULT = Fault(
    name="mtu_small",
    summary="an MTU that leaves RDMA less than its largest packets",
    signs=_signs,
    needs=(needs.rdma_nic,),
    mend=_mend,
    degrade=_degrade,
    ways=_ways,
)
