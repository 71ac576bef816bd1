"""Maps suspected classes of links to replaceable elements: hosts, NICs, links, line cards, switches, routes."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.diagnosis.localise.explain import MIN_LINKS_OF_CARD, PART_OF_CARD, Suspicion
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.names import route_name
from railwright.diagnosis.localise.procedure import Outcome
from railwright.diagnosis.localise.records import Direction, FaultKind, Suspect, Verdict
from railwright.diagnosis.localise.routes import RouteSuspicion


def build_suspects(outcome: Outcome) -> list[Suspect]:
    """Return the suspects, the most certain first."""
    fabric = outcome.evidence.fabric
    rest = list(outcome.explanation.suspicions)
    found: list[Suspect] = []
    for node in dict.fromkeys(one.switch for one in rest if one.switch >= 0):
        group = [one for one in rest if one.switch == node]
        if any(one.number // 2 >= fabric.nics for one in group):
            found.append(_build_suspect(fabric, "switch", fabric.node_name(node), "both", group))
            rest = [one for one in rest if one.switch != node]
    for taker in (_merge_hosts, _merge_cards, _build_cable_suspects):
        taken, rest = taker(fabric, rest)
        found += taken
    found += [_build_route_suspect(fabric, one) for one in outcome.routes]
    return sorted(found, key=lambda one: (-one.confidence, -one.tests, one.id))


def _merge_hosts(fabric: Fabric, given: list[Suspicion]) -> tuple[list[Suspect], list[Suspicion]]:
    """Merge suspects into hosts whose ports are all suspects in both directions."""
    by_host: dict[int, list[Suspicion]] = {}
    for one in given:
        if one.number // 2 < fabric.nics:
            by_host.setdefault(fabric.nic_host[one.number // 2], []).append(one)
    found: list[Suspect] = []
    taken: set[int] = set()
    for host, group in by_host.items():
        if len({one.number for one in group}) == 2 * len(fabric.nics_of_host[host]):
            switches = [fabric.node_name(one.switch) for one in group if one.switch >= 0]
            found.append(_build_suspect(fabric, "host", fabric.hosts[host], "both", group, switches))
            taken.update(one.number for one in group)
    return found, [one for one in given if one.number not in taken]


def _merge_cards(fabric: Fabric, given: list[Suspicion]) -> tuple[list[Suspect], list[Suspicion]]:
    """Merge suspects into line cards with most ports suspect in one direction or both."""
    by_switch: dict[int, dict[int, Suspicion]] = {}
    for one in given:
        for node in {fabric.upper[one.number // 2], fabric.lower[one.number // 2]}:
            if node >= fabric.nics:
                by_switch.setdefault(node, {})[one.number] = one
    found: list[Suspect] = []
    taken: set[int] = set()
    for node, suspected in by_switch.items():
        if len(suspected) < MIN_LINKS_OF_CARD:
            continue
        for index, cables in enumerate(fabric.cards(node)):
            ways = [[n for c in cables if (n := 2 * c + way) in suspected and n not in taken] for way in (0, 1)]
            min_links = max(MIN_LINKS_OF_CARD, PART_OF_CARD * len(cables))
            full = [way for way in (0, 1) if len(ways[way]) >= min_links]
            if not full or len(cables) == len(fabric.above[node]) + len(fabric.below[node]) <= MIN_LINKS_OF_CARD:
                continue
            numbers = [number for way in full for number in ways[way]]
            direction: Direction = "both" if len(full) == 2 else "up" if full == [0] else "down"
            group = [suspected[number] for number in numbers]
            found.append(_build_suspect(fabric, "line-card", f"{fabric.node_name(node)}/card{index}", direction, group))
            taken.update(numbers)
    return found, [one for one in given if one.number not in taken]


def _build_cable_suspects(fabric: Fabric, given: list[Suspicion]) -> tuple[list[Suspect], list[Suspicion]]:
    """Return a suspect per cable if both directions are equally slow, else one per direction."""
    by_cable: dict[int, list[Suspicion]] = {}
    for one in given:
        by_cable.setdefault(one.number // 2, []).append(one)
    found = []
    for cable, group in by_cable.items():
        kind: FaultKind = "nic" if cable < fabric.nics else "link"
        name = fabric.cable_name(cable)
        alike = (
            len(group) == 2 and abs(group[0].level - group[1].level) < 0.1 and group[0].constant == group[1].constant
        )
        if alike:
            found.append(_build_suspect(fabric, kind, name, "both", group))
        else:
            found += [_build_suspect(fabric, kind, name, "down" if one.number % 2 else "up", [one]) for one in group]
    return found, []


def _build_suspect(
    fabric: Fabric,
    kind: FaultKind,
    name: str,
    direction: Direction,
    group: list[Suspicion],
    alternatives: Iterable[str] = (),
) -> Suspect:
    levels = sorted(one.level for one in group)
    level = levels[len(levels) // 2]
    tests = len({flow for one in group for flow in one.flows})
    verdict: Verdict = "slow" if all(one.constant for one in group) else "slow or occupied"
    own = {one.number for one in group}
    rivals = [fabric.class_name(number) for one in group for number, _ in one.rivals if number not in own]
    steady = "at the same rate" if verdict == "slow" else "at varying rates"
    return Suspect(
        kind=kind,
        id=name,
        direction=direction,
        capacity=round(level, 3),
        verdict=verdict,
        confidence=round(max(one.confidence for one in group), 4),
        tests=tests,
        evidence=f"{tests} flows over it were slow {steady}, {level:.0%} of the expected rate",
        alternatives=tuple(dict.fromkeys((*alternatives, *rivals))),
        action=_format_action(fabric, kind, name, direction, group[0].number // 2),
        verify="railwright locate again: the same flows must reach their rate",
    )


def _build_route_suspect(fabric: Fabric, one: RouteSuspicion) -> Suspect:
    pair = one.key[0] >= 0
    whose = "only these two ports" if pair else "the pairs of ports that use it"
    return Suspect(
        kind="route",
        id=route_name(fabric, one.key),
        direction="both",
        capacity=round(one.level, 3),
        verdict="slow",
        confidence=0.99 if one.tests > 3 else 0.95,
        tests=one.tests,
        evidence=f"all {one.tests} tries were slow at {one.level:.0%}, but other flows clear every link on it",
        action=f"check the forwarding and policing entries for {whose} on the switches of the route",
        verify="railwright locate --route-cover: the same route must reach its rate",
    )


def _format_action(fabric: Fabric, kind: FaultKind, name: str, direction: Direction, cable: int) -> str:
    if kind == "host":
        return f"take {name} out of service and test it alone: railwright prove"
    if kind == "switch":
        return f"check {name}: its fans, power, and the counters of its fabric; drain it if others can carry its load"
    if kind == "line-card":
        return f"check the ports of {name}; reseat or replace the card"
    ends = [fabric.node_name(fabric.lower[cable]), fabric.node_name(fabric.upper[cable])]
    if fabric.ports:
        near, far = fabric.ports[cable]
        ends = [
            ends[0] + (f" port {near}" if cable >= fabric.nics else ""),
            f"{ends[1]} port {far}" if far else ends[1],
        ]
    arrow = {"up": "→", "down": "←"}.get(direction, "↔")
    return f"reseat, then replace the cable and optics {ends[0]} {arrow} {ends[1]}"
