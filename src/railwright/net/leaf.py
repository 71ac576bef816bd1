"""The routes of a leaf that is a namespace of this machine, from its kernel's table."""

from __future__ import annotations

from railwright.net.pod import KernelRoute, ip
from railwright.net.view import Address, Forwarding


def find_route(netns: str, address: Address) -> Forwarding:
    """Return the leaf's host route to the address with the lowest metric. Raises CannotJudge if `ip` fails."""
    exact = f"{address}/{address.max_prefixlen}"
    routes = ip(netns, list[KernelRoute], f"-{address.version}", "route", "show", "exact", exact)
    if not routes:
        return Forwarding(f"no route to {address}", False)
    route = min(routes, key=lambda candidate: candidate.metric)
    if route.type != "unicast":
        return Forwarding(f"{address} {route.type} ({route.protocol})", False)
    hops = ", ".join(hop.gateway or hop.dev for hop in route.hops)
    return Forwarding(f"{address} via {hops} ({route.protocol})", True)
