"""Which routes every node must have once BGP has settled, from the plan alone. Pure.

A route is an address and the set of ports that its traffic may leave by (ECMP). The ports are those of the
neighbours on a shortest path; hosts carry nothing for others.
"""

from __future__ import annotations

from collections import deque

from railwright.lab.model import Cable, LabPlan, Node

Routes = dict[str, frozenset[str]]
"""Address without prefix length -> ports."""


def expected_routes(plan: LabPlan) -> dict[str, Routes]:
    """The routes of every node to the addresses of all others."""
    cables: dict[str, list[Cable]] = {node.name: [] for node in plan.nodes}
    for cable in plan.cables:
        cables[cable.a].append(cable)
        cables[cable.b].append(cable)
    carries = {node.name: node.kind != "host" for node in plan.nodes}
    found: dict[str, Routes] = {node.name: {} for node in plan.nodes}
    for owner in plan.nodes:
        for addresses, port in _announced(owner):
            distance = _distances(owner.name, port, cables, carries)
            for node in plan.nodes:
                # Switches of one autonomous system refuse each other's paths, which lead down and up again.
                if node.asn == owner.asn:
                    continue
                ports = _ports(node, owner, port, distance, cables[node.name], carries)
                if ports:
                    found[node.name].update(dict.fromkeys(addresses, ports))
    return found


def _announced(owner: Node) -> list[tuple[tuple[str, ...], str | None]]:
    """Addresses with the only port that announces them; None: every port."""
    return [(owner.loopbacks, None), *((rail.addresses, rail.port) for rail in owner.rails)]


def _distances(
    owner: str, port: str | None, cables: dict[str, list[Cable]], carries: dict[str, bool]
) -> dict[str, int]:
    """Cables between each node and the owner, by way of nodes that carry for others."""
    distance = {owner: 0}
    waiting = deque([owner])
    while waiting:
        name = waiting.popleft()
        if name != owner and not carries[name]:
            continue
        for cable in cables[name]:
            if name == owner and port is not None and cable.port_of(owner) != port:
                continue
            peer = cable.peer_of(name)
            if peer not in distance:
                distance[peer] = distance[name] + 1
                waiting.append(peer)
    return distance


def _ports(
    node: Node, owner: Node, port: str | None, distance: dict[str, int], cables: list[Cable], carries: dict[str, bool]
) -> frozenset[str]:
    """The ports towards neighbours that are one nearer; of a host the one of the same rail, where there is one."""
    if node.name not in distance:
        return frozenset()
    nearer = []
    for cable in cables:
        peer = cable.peer_of(node.name)
        if peer == owner.name:
            if port is None or cable.port_of(owner.name) == port:
                nearer.append((0, cable))
        elif carries[peer] and peer in distance:
            nearer.append((distance[peer], cable))
    if port is not None and node.kind == "host":
        nearer = [entry for entry in nearer if entry[1].port_of(node.name) == port] or nearer
    least = min((entry[0] for entry in nearer), default=0)
    return frozenset(cable.port_of(node.name) for far, cable in nearer if far == least)
