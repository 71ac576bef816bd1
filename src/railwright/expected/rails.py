"""Ports that messages between two hosts can use at once.

A library may stripe a large message over several ports, and pairs of processes spread over them. Neither is said by a
table, so all of those are the limit; what is expected is one port of a pair alone.
"""

from __future__ import annotations

import math
from collections import defaultdict

from msgspec.structs import replace

from railwright.expected.machine import Machine
from railwright.limits.limit import Constant, Limit, Source
from railwright.limits.path import link_limit
from railwright.results.workload import Message
from railwright.topology.devices import EthernetLink, Link, Path, PcieLink, Topology
from railwright.topology.routes import equally_near

_UCX = Source("UCX src/ucp/core/ucp_context.c, NIXL src/utils/ucx", "MAX_RNDV_RAILS 2, and MAX_RMA_RAILS 2 of NIXL")
_RAILS = Constant(2, "devices over which UCX stripes one large message by default", _UCX)
_MOST_NAMED = 64


def ports_used(workload: Message, machine: Machine, way: Path) -> int:
    """How many ports of each host the messages can use: of those the job names, and the library takes."""
    if workload.by != "library" or way.kind != "NET":
        return 1
    asked = machine.environment
    every = named = len(_ports(machine.host))
    if (devices := asked.get("UCX_NET_DEVICES", "all")) != "all":
        named = len({name for name in devices.split(",")[:_MOST_NAMED] if name})
    told = asked.get("UCX_MAX_RNDV_RAILS", "")
    if told.isdecimal():
        wanted = int(told[:3]) * workload.pairs
    else:
        wanted = max(int(_RAILS.value), equally_near(machine.graph, way), workload.pairs)
    return max(1, min(every, named, wanted))


def over_ports(limit: Limit, workload: Message, machine: Machine, way: Path) -> Limit:
    """The limit of one port, or the sum of those that the messages can use, no more than their slots carry."""
    ports = ports_used(workload, machine, way)
    if ports < 2:
        return limit
    value = min(ports * limit.value, _slots(machine.host))
    if workload.pairs == 1:
        value = min(value, _rate(way.links[0]), _rate(way.links[-1]))
    if value <= limit.value:
        return limit
    which = f"that {workload.pairs} pairs" if workload.pairs > 1 else "that a library"
    return replace(limit, value=value, because=f"{ports} ports {which} can use at once, each: {limit.because}")


def _ports(host: Topology) -> list[tuple[str, Link]]:
    """(NIC, port) of those that have RDMA, or of all where none has."""
    every = [(nic.id, port) for nic, port in host.ports_out]
    able = [(nic, port) for nic, port in every if not isinstance(port.protocol, EthernetLink) or port.protocol.rdma]
    return able or every


def _slots(host: Topology) -> float:
    """What all ports carry together in bytes/s, those of one card no more than its slot; inf where it is not known."""
    slots = {link.b: link for link in host.links if isinstance(link.protocol, PcieLink)}
    cards = {card.id for card in host.of_kind("card")}
    card_of = {link.b: link.a for link in host.links if link.a in cards}
    behind: dict[Link | str, list[Link]] = defaultdict(list)
    for nic, port in _ports(host):
        behind[slots.get(card_of.get(nic, nic), nic)].append(port)
    return sum(min(_rate(slot), sum(map(_rate, ports))) for slot, ports in behind.items())


def _rate(link: Link | str) -> float:
    limit = link_limit(link) if isinstance(link, Link) else None
    return limit.value if isinstance(limit, Limit) else math.inf
