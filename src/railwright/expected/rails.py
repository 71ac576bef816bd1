"""The ports that messages between two hosts can use at once.

A library may stripe a large message over several ports, and pairs of processes spread over them. Tables report neither,
so the limit is all of those ports, and the band of a single pair runs from one port to those of its library's default.
"""

from __future__ import annotations

import math
from collections import defaultdict

from msgspec.structs import replace

from railwright.expected.machine import Machine
from railwright.limits.limit import Constant, Expected, Limit, Source
from railwright.limits.path import link_limit
from railwright.results.workload import Message
from railwright.topology.devices import EthernetLink, Link, Path, PcieLink, Topology
from railwright.topology.routes import count_nearest
from railwright.units import KIB

_UCX = Source(
    "UCX src/ucp/core/ucp_context.c", "MAX_RNDV_RAILS 2, MAX_EAGER_RAILS 1, MAX_RMA_RAILS 1; each can be set by UCX_..."
)
_NIXL = Source("NIXL src/utils/ucx", "sets UCX's MAX_RMA_RAILS to 2, in some versions to 4")
_RAILS = Constant(2, "devices over which UCX stripes one large message by default", _UCX)
_EAGER_RAILS = Constant(1, "devices over which UCX sends a message without a handshake by default", _UCX)
_REQUEST_RAILS = Constant(4, "devices over which NIXL stripes one request by default, at most", _NIXL)
_MAX_NAMED = 64
_EAGER_UP_TO_BYTES = 8 * KIB
"""The largest message in bytes that UCX sends without a handshake over InfiniBand, whatever its settings."""


def ports_used(workload: Message, machine: Machine, way: Path) -> int:
    """Return the number of ports of each host that the messages can use: named by the job and used by the library."""
    if workload.by != "library" or way.kind != "NET":
        return 1
    all_ports, named = len(_list_ports(machine.host)), _count_named(machine)
    if _has_all_gpus(workload):
        return max(1, min(all_ports, named))
    given = _read_rails(workload, machine)
    if given is not None:
        wanted = given * workload.pairs
    elif workload.rails:
        wanted = max(workload.rails, workload.pairs)
    else:
        default = int((_REQUEST_RAILS if workload.is_request else _RAILS).value)
        wanted = max(default, count_nearest(machine.graph, way), workload.pairs)
    return max(1, min(all_ports, named, wanted))


def ports_expected(workload: Message, machine: Machine, way: Path) -> tuple[int, int]:
    """Return the number of ports that healthy messages use, as (fewest, most): one for each pair, up to those over
    which the library stripes by default, as far as they are equally near.
    """
    ports = ports_used(workload, machine, way)
    if _has_all_gpus(workload):
        return ports, ports
    fewest = min(workload.pairs, ports)
    if workload.by != "library" or way.kind != "NET":
        return workload.pairs, workload.pairs
    given = _read_rails(workload, machine)
    is_near_only = workload.crosses_gpu or not workload.is_request
    near = count_nearest(machine.graph, way) if is_near_only else ports
    rails = given if given is not None else min(_default_rails(workload), near)
    return fewest, max(fewest, min(ports, rails * workload.pairs))


def _default_rails(workload: Message) -> int:
    if workload.rails:
        return workload.rails
    if workload.is_request:
        return int(_REQUEST_RAILS.value)
    is_eager = (workload.size_bytes or 0) <= _EAGER_UP_TO_BYTES
    return int((_EAGER_RAILS if is_eager else _RAILS).value)


def _has_all_gpus(workload: Message) -> bool:
    """Report whether a request moves parts from all GPUs of a host, as in nixlbench's mode MG."""
    return workload.is_request and workload.varied.get("mode") == "MG"


def _count_named(machine: Machine) -> int:
    """Return the number of ports that the job names; all if it names none."""
    devices = machine.environment.get("UCX_NET_DEVICES", "all")
    if devices == "all":
        return len(_list_ports(machine.host))
    return len({name for name in devices.split(",")[:_MAX_NAMED] if name})


def _read_rails(workload: Message, machine: Machine) -> int | None:
    """Return the job's own number of rails for such messages; None if it sets none."""
    one_sided = workload.is_request or workload.rails
    name = "UCX_MAX_RMA_RAILS" if one_sided else "UCX_MAX_RNDV_RAILS"
    if not one_sided and 0 < (workload.size_bytes or 0) <= _EAGER_UP_TO_BYTES:
        name = "UCX_MAX_EAGER_RAILS"
    rails = machine.environment.get(name, "")
    return int(rails[:3]) if rails.isdecimal() else None


def limit_over_ports(limit: Limit, workload: Message, machine: Machine, way: Path) -> Limit:
    """Return the limit of one port, or the sum of those that the messages can use, at most the rate of their slots."""
    ports = ports_used(workload, machine, way)
    if ports < 2:
        return limit
    value = min(ports * limit.value, sum_port_rates(machine.host))
    if workload.pairs == 1 and not _has_all_gpus(workload):
        value = min(value, _link_rate(way.links[0]), _link_rate(way.links[-1]))
    if value <= limit.value:
        return limit
    users = f"that {workload.pairs} pairs" if workload.pairs > 1 else "that a library"
    return replace(limit, value=value, because=f"{ports} ports {users} can use at once, each: {limit.because}")


def widen_shared_port(
    limit: Limit, band: Expected | None, machine: Machine, way: Path
) -> tuple[Limit, Expected | None]:
    """Return the bounds of a NIC that shares its port with the host's other NICs: while those are idle it may have all
    of the port, as far as its slot allows.
    """
    nics = [machine.host.device(name.partition("@")[0]) for name in way.devices if name.startswith("nic")]
    shared = bool(nics) and all(nic is not None and nic.facts.get("shares_port") is True for nic in nics)
    others = [_link_rate(link) for link in way.links if isinstance(link.protocol, PcieLink)]
    value = min(sum_port_rates(machine.host), *others) if shared and others else limit.value
    if value <= limit.value:
        return limit, band
    because = f"the slot of a NIC whose port others share; alone it exceeds its share, {limit.because}"
    return replace(limit, value=value, because=because), band if band is None else replace(band, high=value)


def _list_ports(host: Topology) -> list[tuple[str, Link]]:
    """Return (NIC, port) of the ports with RDMA, or all ports if none has it."""
    all_ports = [(nic.id, port) for nic, port in host.ports_out]
    able = [(nic, port) for nic, port in all_ports if not isinstance(port.protocol, EthernetLink) or port.protocol.rdma]
    return able or all_ports


def sum_port_rates(host: Topology) -> float:
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
