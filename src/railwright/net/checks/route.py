"""The pod's routes: packets to the rail's prefixes and to each peer leave by this interface."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from railwright.errors import CannotJudge
from railwright.net.recorded import find_expected
from railwright.net.view import ON_THE_NODE, Address, Bad, Check, Network, Note, Port, Unseen, View


def _judge(view: View, note: Note) -> str:
    port = view.existing_port()
    words = _format_routes(port)
    note("routes", words or "none", "ip route show table all")
    for way in view.ways:
        note(f"to {way.target}", way.interface or way.why or "nowhere", "ip route get")
    if not _find_prefixes(view) and not view.ways:
        why = "the prefixes of the rail's pods are not known here"
        raise CannotJudge(why, hint=f"{ON_THE_NODE}, or name a peer with --to")
    for prefix in _find_uncovered(view, port):
        says = f"no route of {port.name} leads to {prefix}, where the network's pods are"
        raise Bad(says, _suggest_route(view, port, prefix, "permanently: add it to the routes of the network's ipam"))
    for way in view.ways:
        if way.interface != port.name:
            says = f"packets to {way.target} leave by {way.interface or 'no interface'}, not by {port.name}"
            raise Bad(
                says,
                _suggest_route(view, port, way.target, "find the route that wins: ip route show table all; ip rule"),
            )
    return words


def _format_routes(port: Port) -> str:
    shown = [
        f"{route.destination} {f'via {route.gateway}' if route.gateway else 'on link'}"
        for route in port.routes
        if not route.destination.is_link_local and not route.destination.is_multicast and route.table != "local"
    ]
    return ", ".join(dict.fromkeys(shown))


def _find_uncovered(view: View, port: Port) -> list[Network]:
    """Return the prefixes that the main table does not cover, for the families of the interface's addresses."""
    routes = [route.destination for route in port.routes if route.table == "main"]
    return [one for one in _find_prefixes(view) if port.sources(one.version) and not _covers(routes, one)]


def _find_prefixes(view: View) -> tuple[Network, ...]:
    """Return the prefixes of the rail's pods or, without railwrightd, those that the network's IPAM routes."""
    if not isinstance(view.rail, Unseen):
        return tuple(view.rail.prefixes)
    return () if isinstance(view.recorded, Unseen) else view.recorded.routes


def _covers(routes: Iterable[Network], prefix: Network) -> bool:
    """Report whether one or several of the routes together cover the whole prefix."""
    if isinstance(prefix, IPv4Network):
        return any(prefix.subnet_of(one) for one in collapse_addresses(r for r in routes if isinstance(r, IPv4Network)))
    return any(prefix.subnet_of(one) for one in collapse_addresses(r for r in routes if isinstance(r, IPv6Network)))


def _suggest_route(view: View, port: Port, target: Address | Network, words: str) -> str:
    expected = find_expected(view)
    attached = expected.gateways if expected else ()
    gateways = [one for one in (*attached, *port.gateways()) if one.version == target.version]
    via = f"via {gateways[0]} " if gateways else ""
    command = f"ip -{target.version} route replace {target} {via}dev {shlex.quote(port.name)}{' onlink' if via else ''}"
    return f"{view.inside(command)}; {words}"


CHECK = Check("route", _judge, after=("interface", "address"))
