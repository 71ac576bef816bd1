"""The ports that messages between two hosts can use at once.

A library may stripe a large message over several ports, and pairs of processes spread over them. Tables report neither,
so the limit is all of those ports, and the band is that of one port of a single pair.
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
from railwright.topology.routes import count_nearest

_UCX = Source("UCX src/ucp/core/ucp_context.c, NIXL src/utils/ucx", "MAX_RNDV_RAILS 2, and MAX_RMA_RAILS 2 of NIXL")
_RAILS = Constant(2, "devices over which UCX stripes one large message by default", _UCX)
_MAX_NAMED = 64


def ports_used(workload: Message, machine: Machine, way: Path) -> int:
    """Return the number of ports of each host that the messages can use: named by the job and used by the library."""
    if workload.by != "library" or way.kind != "NET":
        return 1
    environment = machine.environment
    all_ports = named = len(_list_ports(machine.host))
    if (devices := environment.get("UCX_NET_DEVICES", "all")) != "all":
        named = len({name for name in devices.split(",")[:_MAX_NAMED] if name})
    rails = environment.get("UCX_MAX_RNDV_RAILS", "")
    if rails.isdecimal():
        wanted = int(rails[:3]) * workload.pairs
    else:
        wanted = max(int(_RAILS.value), count_nearest(machine.graph, way), workload.pairs)
    return max(1, min(all_ports, named, wanted))


def limit_over_ports(limit: Limit, workload: Message, machine: Machine, way: Path) -> Limit:
    """Return the limit of one port, or the sum of those that the messages can use, at most the rate of their slots."""
    ports = ports_used(workload, machine, way)
    if ports < 2:
        return limit
    value = min(ports * limit.value, _sum_port_rates(machine.host))
    if workload.pairs == 1:
        value = min(value, _link_rate(way.links[0]), _link_rate(way.links[-1]))
    if value <= limit.value:
        return limit
    users = f"that {workload.pairs} pairs" if workload.pairs > 1 else "that a library"
    return replace(limit, value=value, because=f"{ports} ports {users} can use at once, each: {limit.because}")


def _list_ports(host: Topology) -> list[tuple[str, Link]]:
    """Return (NIC, port) of the ports with RDMA, or all ports if none has it."""
    all_ports = [(nic.id, port) for nic, port in host.ports_out]
    able = [(nic, port) for nic, port in all_ports if not isinstance(port.protocol, EthernetLink) or port.protocol.rdma]
    return able or all_ports


def _sum_port_rates(host: Topology) -> float:
    """Return the total rate of all ports in bytes/s, each card's at most that of its slot; inf if a rate is unknown."""
    slots = {link.b: link for link in host.links if isinstance(link.protocol, PcieLink)}
    cards = {card.id for card in host.of_kind("card")}
    card_of = {link.b: link.a for link in host.links if link.a in cards}
    behind: dict[Link | str, list[Link]] = defaultdict(list)
    for nic, port in _list_ports(host):
        behind[slots.get(card_of.get(nic, nic), nic)].append(port)
    return sum(min(_link_rate(slot), sum(map(_link_rate, ports))) for slot, ports in behind.items())


def _link_rate(link: Link | str) -> float:
    limit = link_limit(link) if isinstance(link, Link) else None
    return limit.value if isinstance(limit, Limit) else math.inf
