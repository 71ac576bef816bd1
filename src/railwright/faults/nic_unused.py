"""An idle NIC: its port is down, NCCL_IB_HCA excludes it, or the container does not have it."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.faults.cases import crosses_network, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.topology.changes import change_links, remove_devices
from railwright.topology.cluster import ports
from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink, Topology

_SEVERAL_NICS = 4
"""From this number of NICs on, a further hypothesis is that half of them are unused: one port per card, or one rail."""


def _signs(facts: Facts) -> Findings:
    """Find ports that are down on a machine with GPUs.

    The second port of a card is often uncabled; a single-port card seldom is if others of its model are up.
    """
    topology = facts.topology
    nics = [nic for nic, _ in ports(topology)] if topology.of_kind("gpu") else []
    cards = {card.id for card in topology.of_kind("card")}
    for nic in nics:
        if nic.facts.get("state") != "down":
            continue
        cards_of_nic = {link.a for link in topology.links if link.b == nic.id} & cards
        siblings = {link.b for link in topology.links if link.a in cards_of_nic} - {nic.id}
        alike_up = any(other.facts.get("state") == "up" and other.name == nic.name for other in nics)
        likely = alike_up and bool(nic.facts.get("rdma_device")) and not siblings
        yield FAULT.finding(
            (nic.id,),
            f"the port of {nic.id} is down" + (", while others of its model are up" if alike_up else ""),
            ("port", "down", "operstate and RDMA port state"),
            certainty="likely" if likely else "possible",
        )


def _degrade(topology: Topology, where: str) -> Topology:
    """Return the machine without the NIC `where`."""
    return remove_devices(topology, [where])


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    """Return the machine without the NICs that are down, and with them up like others of their model."""
    all_ports = ports(topology)
    up = {nic.name: link.protocol for nic, link in all_ports if nic.facts.get("state") == "up" and nic.name}
    down = {nic.id: up.get(nic.name) for nic, _ in all_ports if nic.facts.get("state") == "down"}
    known = remove_devices(topology, {name for name, protocol in down.items() if protocol is None})
    new_protocols = {link.id: protocol for nic, link in all_ports if (protocol := down.get(nic.id)) is not None}
    mended = change_links(known, lambda link: replace(link, protocol=new_protocols.get(link.id, link.protocol)))
    return remove_devices(topology, down.keys()), mended


def _hypotheses(case: Case) -> Hypotheses:
    nics = _list_fastest_nics(case.cluster.host)
    if not crosses_network(case) or len(nics) < 2:
        return
    variants = [("one NIC of each host carries nothing", nics[-1:])]
    if len(nics) >= _SEVERAL_NICS:
        # Repeated halving: instances and pods often have the number of NICs of a smaller size.
        left = nics[::2]
        while left:
            unused = [nic for nic in nics if nic not in left]
            variants.append((f"{len(unused)} of {len(nics)} NICs of each host carry nothing", unused))
            left = left[: len(left) // 2]
    for says, unused in variants:
        yield FAULT.supposed(
            says,
            replace_host(case, remove_devices(case.cluster.host, unused)),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG, which lists NICs that"
            " no connection uses; rdma link; echo $NCCL_IB_HCA",
        )


def _list_fastest_nics(host: Topology) -> list[str]:
    """Return the NICs at the highest line rate: slower ones are for management, and NCCL does not use them."""
    rates = {
        nic.id: link.protocol.line_rate_bits_per_s or 0.0
        for nic, link in ports(host)
        if isinstance(link.protocol, EthernetLink | InfinibandLink | EfaLink)
    }
    return [name for name, rate in rates.items() if rate == max(rates.values())]


FAULT = Fault(
    name="nic_unused",
    summary="a NIC that could carry data carries none",
    right="every NIC that could carry data is up",
    costs="the NIC's share: large collectives over N equal NICs lose 1/N for each idle one (NCCL issue 687)",
    remedy="check the cable, optics and switch port (rdma link, ibstat, mlxlink -d mlx5_N), then bring the link up",
    signs=_signs,
    needs=(needs.gpu, needs.nic),
    mend=_build_with_and_without,
    degrade=_degrade,
    ways=_hypotheses,
)
