"""Maps names of elements to their classes of links."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, cast

from railwright.diagnosis.localise.fabric import Fabric, Path, build_path
from railwright.diagnosis.localise.records import Fault
from railwright.errors import UsageError, unknown_name

RouteKey = tuple[int, int, Path]
"""(source port, destination port, classes); for a route that is slow for all pairs both ports are -1 and the classes
are those between the leaves."""


class Names:
    """The names of a fabric's elements."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._hosts = {name: number for number, name in enumerate(fabric.hosts)}
        self._switches = {name: fabric.nics + number for number, name in enumerate(fabric.switches)}
        self._cables = {fabric.cable_name(number): number for number in range(len(fabric.lower))}

    def classes_of(self, fault: Fault) -> list[int]:
        """Return the classes of a fault; empty for a route. Raises UsageError for an unknown element."""
        if fault.kind == "route":
            self.route(fault.id)
            return []
        if fault.kind == "host":
            nics = self._fabric.nics_of_host[_look_up(self._hosts, fault.id, "host")]
            return [number for nic in nics for number in _classes_of_cable(nic, fault.direction)]
        if fault.kind == "switch":
            return self._fabric.classes_of_switch(_look_up(self._switches, fault.id, "switch"), _check_direction(fault))
        if fault.kind == "line-card":
            return self._of_card(fault)
        return _classes_of_cable(_look_up(self._cables, fault.id, "cable"), fault.direction)

    def _of_card(self, fault: Fault) -> list[int]:
        switch, _, card = fault.id.partition("/card")
        node = _look_up(self._switches, switch, "switch")
        cards = self._fabric.cards(node)
        if not (card.isascii() and card.isdigit()) or len(card) > 6 or int(card) >= len(cards):
            raise UsageError(
                f"there is no line card {fault.id[:60]}", hint=f"{switch} has /card0 to /card{len(cards) - 1}"
            )
        whole = self._fabric.classes_of_switch(node, _check_direction(fault))
        return [number for number in whole if number // 2 in cards[int(card)]]

    def route(self, text: str) -> RouteKey:
        """Parse a route such as `leaf0>leaf3@spine1` or `host0:nic0>host5:nic0@spine1`. Raises UsageError."""
        ends, at, over = text.partition("@")
        source, arrow, destination = ends.partition(">")
        hint = "write leaf0>leaf3@spine1, or host0:nic0>host5:nic0@spine1"
        if not at or not arrow:
            raise UsageError(f"route must be FROM>TO@SWITCHES, got {text[:60]}", hint=hint)
        nics = [self._cables.get(name, -1) for name in (source, destination)]
        nics = [nic if nic < self._fabric.nics else -1 for nic in nics]
        if -1 not in nics:
            leaves = [self._fabric.leaf_of(nic) for nic in nics]
        else:
            nics, leaves = [-1, -1], [_look_up(self._switches, name, "switch") for name in (source, destination)]
        nodes = [leaves[0], *(_look_up(self._switches, name, "switch") for name in over.split(",")), leaves[1]]
        middle = len(nodes) // 2
        up = [self._cable(low, high) for low, high in pairwise(nodes[: middle + 1])]
        down = [self._cable(low, high) for high, low in pairwise(nodes[middle:])][::-1]
        if len(up) != len(down):
            raise UsageError(f"route must go up as many tiers as down, got {text[:60]}", hint=hint)
        if nics[0] >= 0:
            prescribed = self._fabric.ways(nics[0], nics[1]) if self._fabric.ways is not None else None
            if prescribed is not None:
                return nics[0], nics[1], prescribed
            return nics[0], nics[1], build_path([nics[0], *up], [nics[1], *down])
        return -1, -1, build_path(up, down)

    def _cable(self, lower: int, upper: int) -> int:
        cables = self._fabric.joining.get((lower, upper))
        if not cables:
            names = f"{self._fabric.node_name(lower)} and {self._fabric.node_name(upper)}"
            raise UsageError(f"no cable joins {names}", hint="name the switches in the order of the route")
        return cables[0]


def route_name(fabric: Fabric, key: RouteKey) -> str:
    """Return the name of a route, as parsed by `Names.route`."""
    source, destination, path = key
    between = path if source < 0 else path[1:-1]
    ends = [fabric.node_name(source), fabric.node_name(destination)] if source >= 0 else []
    nodes = [fabric.lower[number // 2] if number % 2 == 0 else fabric.upper[number // 2] for number in between]
    nodes.append(fabric.lower[between[-1] // 2])
    ends = ends or [fabric.node_name(nodes[0]), fabric.node_name(nodes[-1])]
    return f"{ends[0]}>{ends[1]}@{','.join(fabric.node_name(node) for node in nodes[1:-1])}"


def _look_up(names: dict[str, int], name: str, kind: str) -> int:
    if name not in names:
        if len(names) > 2000:
            raise UsageError(f"there is no {kind} named {name[:60]!r}", hint=f"give a name like {next(iter(names))}")
        raise unknown_name(kind, name, names)
    return names[name]


def _classes_of_cable(cable: int, direction: str) -> list[int]:
    directions = {"up": [0], "out": [0], "down": [1], "in": [1]}.get(direction, [0, 1])
    return [2 * cable + way for way in directions]


def _check_direction(fault: Fault) -> Literal["out", "in", "both"]:
    if fault.direction in ("up", "down"):
        raise UsageError(
            f"direction of a {fault.kind} must be out, in or both, got {fault.direction}", hint="write out, in or both"
        )
    return cast("Literal['out', 'in', 'both']", fault.direction)
