"""The routes that every node must have once BGP has settled, from the plan alone. Pure.

A route is an address and the set of ports for its traffic (ECMP). The ports are those of the neighbours on a shortest
path; hosts do not forward.
"""

from __future__ import annotations

from collections import deque

from railwright.lab.nodes import Cable, LabPlan, Node

Routes = dict[str, frozenset[str]]
"""The ports for each address, without prefix length."""


def expected_routes(plan: LabPlan) -> dict[str, Routes]:
    """Return the routes of every node to the addresses of all others."""
    cables = {node.name: plan.cables_of(node.name) for node in plan.nodes}
    hosts = {node.name for node in plan.of_kind("host")}
    found: dict[str, Routes] = {node.name: {} for node in plan.nodes}
    for owner in plan.nodes:
        for addresses, port in _announcements(owner):
            distance = _distances(owner.name, port, cables, hosts)
            for node in plan.nodes:
                # Switches of one autonomous system reject each other's paths, which would lead down and up again.
                if node.asn == owner.asn:
                    continue
                ports = _ports(node, owner.name, port, distance, cables[node.name], hosts)
                if ports:
                    found[node.name].update(dict.fromkeys(addresses, ports))
    return found


def _announcements(owner: Node) -> list[tuple[tuple[str, ...], str | None]]:
    """Return the addresses of a node, each with the port that announces it, or None if every port does."""
    return [(owner.loopbacks, None), *((rail.addresses, rail.port) for rail in owner.rails)]


def _distances(owner: str, port: str | None, cables: dict[str, tuple[Cable, ...]], hosts: set[str]) -> dict[str, int]:
    """Return the number of cables from each node to the owner, over nodes that forward packets."""
    distance = {owner: 0}
    waiting = deque([owner])
    while waiting:
        name = waiting.popleft()
        for cable in cables[name]:
            peer = cable.peer_of(name)
            if peer in distance or (name == owner and port not in (None, cable.port_of(owner))):
                continue
            distance[peer] = distance[name] + 1
            if peer not in hosts:
                waiting.append(peer)
    return distance


def _ports(
    node: Node, owner: str, port: str | None, distance: dict[str, int], cables: tuple[Cable, ...], hosts: set[str]
) -> frozenset[str]:
    """Return the ports towards neighbours that are one cable nearer; for a host the port of the same rail, if any."""
    ways = []
    for cable in cables:
        peer = cable.peer_of(node.name)
        leads = port in (None, cable.port_of(owner)) if peer == owner else peer not in hosts
        if leads and peer in distance:
            ways.append((distance[peer], cable.port_of(node.name)))
    if port is not None and node.kind == "host":
        ways = [way for way in ways if way[1] == port] or ways
    nearest = min(ways, default=(0, ""))[0]
    return frozenset(name for distance_there, name in ways if distance_there == nearest)
