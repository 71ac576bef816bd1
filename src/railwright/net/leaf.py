"""What a leaf forwards, where it is a namespace of this machine: its kernel's own table."""

from __future__ import annotations

import msgspec

from railwright.errors import CannotJudge
from railwright.net.model import Address, Forwarding
from railwright.net.pod import argv_within
from railwright.process import run

_ASK_S = 10.0


class _Hop(msgspec.Struct):
    dev: str = ""
    gateway: str = ""


class _Route(msgspec.Struct):
    dst: str
    dev: str = ""
    gateway: str = ""
    protocol: str = ""
    type: str = "unicast"
    metric: int = 0
    nexthops: list[_Hop] = []


def route_to(netns: str, address: Address) -> Forwarding:
    """The leaf's host route to the address: the one that counts. Raises CannotJudge."""
    exact = f"{address}/{address.max_prefixlen}"
    argv = ["ip", "-json", f"-{address.version}", "route", "show", "exact", exact]
    ended = run(argv_within(netns, argv), timeout_s=_ASK_S)
    said = "".join(ended.output)
    try:
        routes = msgspec.json.decode(said or "[]", type=list[_Route])
    except msgspec.MsgspecError as error:
        raise CannotJudge(f"what the leaf in {netns} says is not understood: {said[-200:]}") from error
    if not routes:
        return Forwarding(f"no route to {address}", False)
    route = min(routes, key=lambda one: one.metric)
    if route.type != "unicast":
        return Forwarding(f"{address} {route.type} ({route.protocol or 'no protocol'})", False)
    hops = ", ".join(hop.gateway or hop.dev for hop in route.nexthops or [_Hop(route.dev, route.gateway)])
    return Forwarding(f"{address} via {hops} ({route.protocol or 'no protocol'})", True)
