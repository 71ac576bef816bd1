"""The rates that a lab's plan gives to ranks on its hosts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from railwright.lab.nodes import Cable, LabPlan, RailPort
from railwright.results.records import Fabric
from railwright.units import format_line_rate


def build_fabric(plan: LabPlan, hosts: Sequence[str], rails: Sequence[RailPort]) -> Fabric | None:
    """Return the fabric between the hosts over the ports of those rails; None without a path or a rate."""
    ports = {rail.port for rail in rails}
    host_rates = [sum(_rate(cable) for cable in _select_cables(plan, host, ports)) for host in hosts]
    bottlenecks = [
        _find_bottleneck(plan, port, other)
        for host in hosts[1:]
        for port in _select_cables(plan, hosts[0], ports)
        for other in _select_cables(plan, host, ports)
        if port.rail == other.rail
    ]
    narrowest = min(filter(None, bottlenecks), key=_rate, default=None)
    if narrowest is None or not host_rates or not 0 < min(host_rates) < math.inf:
        return None
    name = f"{narrowest.a_port} of {narrowest.a} to {narrowest.b}, {format_line_rate(_rate(narrowest))}"
    return Fabric(
        name=f"lab {plan.name}",
        ports_bytes_per_s=min(host_rates) / 8,
        flow_bytes_per_s=_rate(narrowest) / 8,
        narrowest=name,
    )


def _rate(cable: Cable) -> float:
    """Return the rate in bits/s; infinite if the plan sets none."""
    return math.inf if cable.rate_bits_per_s is None else cable.rate_bits_per_s


def _select_cables(plan: LabPlan, host: str, ports: Iterable[str]) -> list[Cable]:
    """Return the host's cables at those ports."""
    return [cable for cable in plan.cables_of(host) if cable.port_of(host) in ports]


def _find_bottleneck(plan: LabPlan, start: Cable, end: Cable) -> Cable | None:
    """Return the narrowest cable on the widest path that starts and ends with these cables; None without a path.

    The path grows by the widest cable that leaves the switches reached so far (Prim's order), until it reaches the end.
    """
    hosts = {node.name for node in plan.of_kind("host")}
    above = [cable for cable in plan.cables if cable.a not in hosts]
    reached, narrowest = {start.b}, start
    while end.b not in reached:
        leaving = [cable for cable in above if (cable.a in reached) != (cable.b in reached)]
        if not leaving:
            return None
        widest = max(leaving, key=_rate)
        narrowest = min(narrowest, widest, key=_rate)
        reached |= {widest.a, widest.b}
    return min(narrowest, end, key=_rate)
