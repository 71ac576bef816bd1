"""What rounds of real probes show besides rates: silent hosts, links that are gone or flap, loss, stalls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.diagnosis.localise.evidence import Evidence, observe
from railwright.diagnosis.localise.explain import Suspicion, explain
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.names import RouteKey
from railwright.diagnosis.localise.procedure import Outcome
from railwright.diagnosis.localise.records import Suspect, Verdict
from railwright.diagnosis.localise.suspects import suspects_of

_LEAST_TESTS = 3
_CHANCES = 12.0
"""Where a link is expected in so many traces and seen in none, chance has less than e^-12."""
_LOST_PACKETS = 2
_STALLED = 0.01
_OCCUPIED = 0.05
_FILLED, _LEFT_WITHOUT_ANSWERS = 0.5, 0.75
"""Beside a neighbour that takes half of the link over which TCP's answers come, a flow had 0.77 to 0.9 of its rate."""
_LONG_LOST = 5
"""Of 6: more than loss explains."""
_VERIFY = "railwright locate again: it must no longer be named"


class Sign(NamedTuple):
    """What is known of one flow besides its rate."""

    flow: Flow
    reached: bool
    """Whether its destination answered at all."""
    sent: int
    received: int
    long_lost: int | None = None
    """Of the packets as long as the MTU that left it; None where none was sent."""


class Crossings(NamedTuple):
    """What the traces of one round crossed."""

    crossed: dict[int, int]
    """The ways over each class."""
    asked: list[tuple[int, int, int]]
    """(leaf of the source, leaf of the destination, ways that were traced)."""


def all_suspects(
    outcome: Outcome,
    signs: Sequence[Sequence[Sign]],
    crossings: Sequence[Crossings],
    busy: Mapping[int, float],
    set_aside: Mapping[str, str],
) -> list[Suspect]:
    """Suspects by rate, with what the other signs say of them, and those that only other signs show.

    `busy` are classes that carry others' traffic while no probe runs, and the part of their rate that it takes;
    `set_aside` are hosts whose ranks died or were silent, and how.
    """
    fabric = outcome.evidence.fabric
    gone, flapping = _by_crossings(fabric, crossings)
    silent = [*_dead(set_aside), *(one for one in _silent(fabric, signs) if one.id.partition(":")[0] not in set_aside)]
    found = [*silent, *_links(fabric, gone, "down"), *_links(fabric, flapping, "flapping")]
    named = {one.id for one in found}
    hosts = {one.id.partition(":")[0] for one in silent}
    occupied = {number for number, part in busy.items() if part >= _OCCUPIED}
    outcome.routes = [one for one in outcome.routes if not occupied & _ways_back(fabric, one.key)]
    filled = {number for number, part in busy.items() if part >= _FILLED}
    outcome.explanation.suspicions = [
        one
        for one in outcome.explanation.suspicions
        if one.number in occupied or not _waits_for_answers(outcome.evidence, one, filled)
    ]
    beside = {fabric.cable_name(each) for cable in flapping for each in fabric.above[fabric.lower[cable]]}
    by_rate = [
        _read(fabric, one, busy)
        for one in suspects_of(outcome)
        if one.id not in named
        and one.id.partition(":")[0] not in hosts
        # What a link that comes and goes does to rates is of no other element: those beside it carry what it dropped.
        and not (flapping and (one.verdict == "slow or occupied" or one.id in beside))
    ]
    stalls = _stalls(fabric, signs)
    found += [one for one in by_rate if not (one.capacity < _STALLED and _is_part(one, stalls))]
    found += [one for one in stalls if not _is_part(one, found)]
    found += [one for one in _lossy(fabric, signs) if not flapping and not _is_part(one, found)]
    return found


def _ways_back(fabric: Fabric, route: RouteKey) -> set[int]:
    """The classes over which TCP's answers may come: where others fill one of them, they slow the flow itself."""
    source, destination, path = route
    near, far = fabric.lower[path[0] // 2], fabric.lower[path[-1] // 2]
    ends = set[int]()
    if source >= 0:
        near, far, ends = fabric.leaf_of(source), fabric.leaf_of(destination), {2 * destination, 2 * source + 1}
    return ends | {2 * cable for cable in fabric.above[far]} | {2 * cable + 1 for cable in fabric.above[near]}


def _waits_for_answers(evidence: Evidence, one: Suspicion, filled: set[int]) -> bool:
    """Whether every flow that speaks against a class may have TCP's answers over one that others fill."""
    if one.level < _LEFT_WITHOUT_ANSWERS or not filled:
        return False
    flows = (evidence.flows[number] for number in one.flows)
    return all(filled & _ways_back(evidence.fabric, (flow.source, flow.destination, flow.path)) for flow in flows)


def _is_part(one: Suspect, of: Iterable[Suspect]) -> bool:
    """Whether an element is among others, or a part of one of them."""
    ends = {one.id, *one.id.split("-"), one.id.partition(":")[0]}
    return any(other.id in ends for other in of)


def _by_crossings(fabric: Fabric, crossings: Sequence[Crossings]) -> tuple[set[int], set[int]]:
    """Cables between switches that no trace crossed, and those that were there in some rounds and not in others."""
    crossed: dict[int, int] = {}
    for one in crossings:
        for number, times in one.crossed.items():
            crossed[number] = crossed.get(number, 0) + times
    total = _chances(fabric, [each for one in crossings for each in one.asked], set())
    gone = {number // 2 for number, chance in total.items() if chance >= _CHANCES and not crossed.get(number)}
    flapping: set[int] = set()
    while absences := _absences(fabric, crossings, gone | flapping):
        # Ways between other leaves and one below this cable are gone with it: they accuse nothing else.
        flapping.add(max(absences, key=lambda cable: absences[cable]))
    return gone, flapping


def _absences(fabric: Fabric, crossings: Sequence[Crossings], known: set[int]) -> dict[int, float]:
    """Of each cable, the ways that should have crossed it in rounds in which none did in that direction."""
    found: dict[int, float] = {}
    for one in crossings:
        for number, chance in _chances(fabric, one.asked, known).items():
            if chance >= _CHANCES and not one.crossed.get(number):
                found[number // 2] = found.get(number // 2, 0.0) + chance
    return found


def _chances(fabric: Fabric, asked: Iterable[tuple[int, int, int]], gone: set[int]) -> dict[int, float]:
    """How many of the traced ways should cross each class if the cables that are not gone are chosen evenly.

    Only ways over one switch between leaves are counted, as in a fabric of two tiers.
    """
    chances: dict[int, float] = {}
    for source, destination, ways in asked:
        options = []
        for up in fabric.above[source]:
            down = fabric.joining.get((destination, fabric.upper[up]), ())
            options += [(up, other) for other in down if not {up, other} & gone]
        for up, down_cable in options:
            for number in (2 * up, 2 * down_cable + 1):
                chances[number] = chances.get(number, 0.0) + ways / len(options)
    return chances


def _links(fabric: Fabric, cables: Iterable[int], verdict: Verdict) -> list[Suspect]:
    says = {
        "down": "no path crosses it, of many that should by chance",
        "flapping": "paths crossed it in some rounds, and none in others: routes come and go",
    }
    return [
        Suspect(
            kind="link",
            id=fabric.cable_name(cable),
            direction="both",
            capacity=0.0,
            verdict=verdict,
            confidence=0.99,
            tests=0,
            evidence=says[verdict],
            action=f"look at both ports of {fabric.cable_name(cable)}: carrier, error counters, log; reseat the cable",
            verify=_VERIFY,
        )
        for cable in sorted(cables)
    ]


def _dead(set_aside: Mapping[str, str]) -> list[Suspect]:
    """Hosts whose rank died, or kept the others waiting."""
    return [
        Suspect(
            kind="host",
            id=host,
            direction="both",
            capacity=0.0,
            verdict="silent",
            confidence=0.99,
            tests=1,
            evidence=f"its rank did not go on: {why}",
            action=f"see whether {host} is up and answers, then screen it alone: railwright prove",
            verify=_VERIFY,
        )
        for host, why in set_aside.items()
    ]


def _silent(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """Ports that no flow reached and none left."""
    tries: dict[int, int] = {}
    reached: set[int] = set()
    for sign in (sign for one in signs for sign in one):
        for nic in (sign.flow.source, sign.flow.destination):
            tries[nic] = tries.get(nic, 0) + 1
            if sign.reached:
                reached.add(nic)
    return [
        Suspect(
            kind="nic",
            id=fabric.node_name(nic),
            direction="both",
            capacity=0.0,
            verdict="silent",
            confidence=0.99,
            tests=count,
            evidence=f"none of {count} flows to and from it found a way, and the other hosts reach each other",
            action=f"see whether it is up, then its cable to {fabric.node_name(fabric.leaf_of(nic))}",
            verify=_VERIFY,
        )
        for nic, count in sorted(tries.items())
        if count >= _LEAST_TESTS and nic not in reached and reached
    ]


def _read(fabric: Fabric, one: Suspect, busy: Mapping[int, float]) -> Suspect:
    """A suspect by rate, with what else is known of it."""
    if one.kind not in ("link", "nic"):
        return one
    cable = next(number for number in range(len(fabric.lower)) if fabric.cable_name(number) == one.id)
    ways = {"up": (0,), "down": (1,)}.get(one.direction, (0, 1))
    taken = max(busy.get(2 * cable + way, 0.0) for way in ways)
    if taken >= _OCCUPIED:
        evidence = f"{one.evidence}; others' packets take {taken:.0%} of it while no probe runs"
        action = f"find who sends over {one.id}: the link itself may be well"
        return replace(one, verdict="occupied", evidence=evidence, action=action)
    # The ports of a lab keep their rate while nobody else sends: rates that changed are TCP's own sharing.
    return replace(one, verdict="slow") if one.verdict == "slow or occupied" else one


def is_marked(sign: Sign) -> bool:
    """Whether something else than its rate speaks against a flow."""
    return bool(_loses(sign) or _loses_long(sign))


def _loses(sign: Sign) -> bool | None:
    return sign.sent - sign.received >= _LOST_PACKETS if sign.sent and sign.received else None


def _loses_long(sign: Sign) -> bool | None:
    usable = sign.long_lost is not None and sign.received > 0
    return (sign.long_lost or 0) >= _LONG_LOST if usable else None


def _stalls(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """The links over which short packets pass and those as long as the MTU vanish."""
    return [
        replace(
            suspect,
            verdict="stalls",
            capacity=0.0,
            evidence=f"{suspect.tests} flows over it lost all packets as long as the MTU, and short ones pass",
            action=f"compare the MTU of both ports of {suspect.id}",
        )
        for suspect, _ in _explained(fabric, signs, _loses_long)
    ]


def _explained(
    fabric: Fabric, signs: Sequence[Sequence[Sign]], is_bad: Callable[[Sign], bool | None]
) -> list[tuple[Suspect, set[int]]]:
    """The elements that explain bad flows, by the same search as for rates, with their classes.

    A bad flow counts as one of half its rate; one of which it is not known is left out.
    """
    rounds = []
    for one in signs:
        tried = [(sign.flow, bad) for sign in one if (bad := is_bad(sign)) is not None]
        if tried:
            rounds.append(Round([flow for flow, _ in tried], [0.5 if bad else 1.0 for _, bad in tried]))
    if not any(ratio < 1 for one in rounds for ratio in one.ratio):
        return []
    evidence = observe(fabric, rounds)
    explanation = explain(evidence)
    return [
        (suspect, {one.number for one in explanation.suspicions if fabric.cable_name(one.number // 2) == suspect.id})
        for suspect in suspects_of(Outcome(evidence, explanation, [], rounds))
    ]


def _lossy(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """The links that explain lost packets of trains that leave them idle."""
    every = [sign for one in signs for sign in one if sign.sent]
    found = []
    for suspect, numbers in _explained(fabric, signs, _loses):
        over = [sign for sign in every if numbers & set(sign.flow.path)]
        part = sum(sign.sent - sign.received for sign in over) / max(sum(sign.sent for sign in over), 1)
        evidence = f"{suspect.tests} flows over it lost packets, {part:.2%} of all, on idle links"
        found.append(replace(suspect, verdict="lossy", capacity=round(1 - part, 4), evidence=evidence))
    return found
