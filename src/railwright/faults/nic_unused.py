"""A NIC that carries nothing: its port is down, it was left out of NCCL_IB_HCA, or a container was not given it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from railwright.faults.model import Facts, Fault, Finding, Supposed, with_host
from railwright.faults.parts import over_network
from railwright.limits.case import Case
from railwright.results.model import Evidence
from railwright.topology.cluster import ports
from railwright.topology.model import Device, EfaLink, EthernetLink, InfinibandLink, Topology

_MANY = 4
"""From so many NICs on half of them are supposed to be unused too: one of two ports of each card, or of two rails."""


def _look(facts: Facts) -> tuple[Finding, ...]:
    """Ports that are down on a machine with GPUs; what is cabled nowhere else either may be meant to be so."""
    topology = facts.topology
    if not topology.of_kind("gpu"):
        return ()
    nics = [nic for nic, _ in ports(topology)]
    return tuple(_down(topology, nics, nic) for nic in nics if nic.facts.get("state") == "down")


def _down(topology: Topology, nics: list[Device], nic: Device) -> Finding:
    """The second port of a card is often left uncabled; a card of its own whose like is up elsewhere hardly ever is."""
    siblings = {link.b for link in topology.links if link.a in _cards_of(topology, nic)} - {nic.id}
    alike_up = any(other.facts.get("state") == "up" and other.name == nic.name for other in nics)
    likely = alike_up and bool(nic.facts.get("rdma_device")) and not siblings
    return Finding(
        fault=FAULT.name,
        where=(nic.id,),
        certainty="likely" if likely else "possible",
        says=f"the port of {nic.id} is down" + (", while others of its kind are up" if alike_up else ""),
        costs="what it would carry: large collectives over N equal NICs lose 1/N for each (NCCL issue 687)",
        remedy="look at cable, optics and switch port (rdma link, ibstat, mlxlink -d mlx5_N), then set the link up",
        evidence=(Evidence(claim="port", value="down", seen="operstate and RDMA port state"),),
    )


def _cards_of(topology: Topology, nic: Device) -> set[str]:
    cards = {card.id for card in topology.of_kind("card")}
    return {link.a for link in topology.links if link.b == nic.id} & cards


def _without(topology: Topology, unused: Iterable[str]) -> Topology:
    gone = set(unused)
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.id not in gone),
        links=tuple(link for link in topology.links if not gone & {link.a, link.b}),
    )


def _degrade(topology: Topology, where: str) -> Topology:
    """The machine without the NIC `where`."""
    return _without(topology, [where])


def _suppose(case: Case) -> tuple[Supposed, ...]:
    nics = _fastest(case.cluster.host)
    if not over_network(case) or len(nics) < 2:
        return ()
    ways = [("one NIC of each host carries nothing", nics[-1:])]
    if len(nics) >= _MANY:
        unused = nics[1::2]
        ways.append((f"{len(unused)} of {len(nics)} NICs of each host carry nothing", unused))
    return tuple(
        Supposed(
            fault=FAULT.name,
            says=says,
            case=with_host(case, _without(case.cluster.host, unused)),
            tell_apart="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG, which lists NICs"
            " that no connection uses; rdma link; echo $NCCL_IB_HCA",
        )
        for says, unused in ways
    )


def _fastest(host: Topology) -> list[str]:
    """The NICs at the machine's highest line rate: slower ones are for management, and NCCL leaves them out."""
    rates = {
        nic.id: link.protocol.line_rate_bits_per_s or 0.0
        for nic, link in ports(host)
        if isinstance(link.protocol, EthernetLink | InfinibandLink | EfaLink)
    }
    return [name for name, rate in rates.items() if rate == max(rates.values())]


FAULT = Fault(
    name="nic_unused",
    summary="a NIC that could carry data carries none",
    signs=_look,
    degrade=_degrade,
    ways=_suppose,
)
