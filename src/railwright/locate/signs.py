"""Signs in real probes besides rates: silent hosts, missing or flapping links, loss, stalls. Pure."""

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
from railwright.diagnosis.localise.suspects import build_suspects

_MIN_TESTS = 3
_MIN_EXPECTED_PATHS = 12.0
"""A healthy link that this many traces are expected to cross is missing in all of them with a probability of e^-12."""
_LOST_PACKETS = 2
_STALLED = 0.01
_OCCUPIED = 0.05
_FILLED, _RATE_WITHOUT_ACKS = 0.5, 0.75
"""With other traffic on half of the link that carries TCP's ACKs, flows reached 0.77 to 0.9 of their rate."""
_DELAYS_ACKS = 0.5
"""A link with less of its rate queues the ACKs behind the flows of the probes: flows reached 0.84 of their rate."""
_LONG_LOST = 5
"""The number of 6 long packets whose loss is more than random."""
_VERIFY = "railwright locate again: it must no longer be named"


class Sign(NamedTuple):
    """The signs of a flow besides its rate."""

    flow: Flow
    reached: bool
    """True if the destination answered at all."""
    sent: int
    received: int
    long_lost: int | None = None
    """The number of lost packets of those at the MTU that left the sender; None if none was sent."""
    trouble: str = ""
    """The reason why the destination did not answer, if the probe knows it."""


class Crossings(NamedTuple):
    """The classes that the traces of a round crossed."""

    crossed: dict[int, int]
    """The number of traced paths over each class."""
    asked: list[tuple[int, int, int]]
    """(leaf of the source, leaf of the destination, number of traced paths)."""


def find_suspects(
    outcome: Outcome,
    signs: Sequence[Sequence[Sign]],
    crossings: Sequence[Crossings],
    busy: Mapping[int, float],
    set_aside: Mapping[str, str],
    unsure: Sequence[str] = (),
) -> list[Suspect]:
    """Return the suspects by rate, refined by the other signs, and those that only other signs show.

    `busy` maps classes that carry other traffic while no probe runs to its share of their rate. `set_aside` maps hosts
    whose ranks died or were silent to the reason; the `unsure` among them are no suspects.
    """
    fabric = outcome.evidence.fabric
    gone, flapping = _find_uncrossed(fabric, crossings)
    silent = [
        *_dead_hosts({host: why for host, why in set_aside.items() if host not in unsure}),
        *(one for one in _silent_ports(fabric, signs) if one.id.partition(":")[0] not in set_aside),
    ]
    found = [*silent, *_link_suspects(fabric, gone, "down"), *_link_suspects(fabric, flapping, "flapping")]
    named = {one.id for one in found}
    hosts = {one.id.partition(":")[0] for one in silent}
    occupied = {number for number, part in busy.items() if part >= _OCCUPIED}
    outcome.routes = [one for one in outcome.routes if not occupied & _ack_classes(fabric, one.key)]
    filled = {number for number, part in busy.items() if part >= _FILLED}
    delayed = {one.number for one in find_delayed(outcome)}
    outcome.explanation.suspicions = [
        one
        for one in outcome.explanation.suspicions
        if one.number in occupied or not (one.number in delayed or _waits_for_acks(outcome.evidence, one, filled))
    ]
    adjacent = {fabric.cable_name(each) for cable in flapping for each in fabric.above[fabric.lower[cable]]}
    by_rate = [
        _refine_by_traffic(fabric, one, busy)
        for one in build_suspects(outcome)
        if one.id not in named
        and one.id.partition(":")[0] not in hosts
        # A flapping link changes the rates of links next to it, which carry its traffic: they are not at fault.
        and not (flapping and (one.verdict == "slow or occupied" or one.id in adjacent))
    ]
    stalls = _stalling_links(fabric, signs)
    found += [one for one in by_rate if not (one.capacity < _STALLED and _is_part(one, stalls))]
    found += [one for one in stalls if not _is_part(one, found)]
    found += [one for one in _lossy_links(fabric, signs) if not flapping and not _is_part(one, found)]
    return found


def find_delayed(outcome: Outcome) -> list[Suspicion]:
    """Return the suspicions that a much slower one explains: the ACKs of all their flows may cross its link."""
    suspicions = outcome.explanation.suspicions
    slow = {one.number for one in suspicions if one.level < _DELAYS_ACKS}
    return [one for one in suspicions if one.switch < 0 and _waits_for_acks(outcome.evidence, one, slow)]


def _ack_classes(fabric: Fabric, route: RouteKey) -> set[int]:
    """Return the classes that TCP's ACKs may cross: other traffic that fills such a class slows the flow."""
    source, destination, path = route
    near, far = fabric.lower[path[0] // 2], fabric.lower[path[-1] // 2]
    ends = set[int]()
    if source >= 0:
        near, far, ends = fabric.leaf_of(source), fabric.leaf_of(destination), {2 * destination, 2 * source + 1}
    return ends | {2 * cable for cable in fabric.above[far]} | {2 * cable + 1 for cable in fabric.above[near]}


def _waits_for_acks(evidence: Evidence, one: Suspicion, filled: set[int]) -> bool:
    """Report whether the ACKs of every flow that implicates a class may cross a filled class."""
    if one.level < _RATE_WITHOUT_ACKS or not filled:
        return False
    flows = (evidence.flows[number] for number in one.flows)
    return all(filled & _ack_classes(evidence.fabric, (flow.source, flow.destination, flow.path)) for flow in flows)


def _is_part(one: Suspect, of: Iterable[Suspect]) -> bool:
    """Report whether an element is among others, or part of one of them."""
    ends = {one.id, *one.id.split("-"), one.id.partition(":")[0]}
    return any(other.id in ends for other in of)


def _find_uncrossed(fabric: Fabric, crossings: Sequence[Crossings]) -> tuple[set[int], set[int]]:
    """Return the cables between switches that no trace crossed, and those crossed only in some rounds."""
    crossed: dict[int, int] = {}
    for one in crossings:
        for number, times in one.crossed.items():
            crossed[number] = crossed.get(number, 0) + times
    total = _expected_paths(fabric, [each for one in crossings for each in one.asked], set())
    gone = {
        number // 2 for number, chance in total.items() if chance >= _MIN_EXPECTED_PATHS and not crossed.get(number)
    }
    flapping: set[int] = set()
    while absences := _absences(fabric, crossings, gone | flapping):
        # Paths to the leaf below this cable are missing because of it, and implicate nothing else.
        flapping.add(max(absences, key=lambda cable: absences[cable]))
    return gone, flapping


def _absences(fabric: Fabric, crossings: Sequence[Crossings], known: set[int]) -> dict[int, float]:
    """Return, for each cable, the expected paths in rounds in which no path crossed it in that direction."""
    found: dict[int, float] = {}
    for one in crossings:
        for number, chance in _expected_paths(fabric, one.asked, known).items():
            if chance >= _MIN_EXPECTED_PATHS and not one.crossed.get(number):
                found[number // 2] = found.get(number // 2, 0.0) + chance
    return found


def _expected_paths(fabric: Fabric, asked: Iterable[tuple[int, int, int]], gone: set[int]) -> dict[int, float]:
    """Return the expected number of traced paths over each class if ECMP spreads them evenly over present cables.

    Only paths over a single switch between leaves count, as in a fabric of two tiers.
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


def _link_suspects(fabric: Fabric, cables: Iterable[int], verdict: Verdict) -> list[Suspect]:
    says = {
        "down": "no path crosses it, of many that should",
        "flapping": "paths crossed it in some rounds, and none in others: its routes flap",
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
            action=f"check both ports of {fabric.cable_name(cable)}: carrier, error counters, log; reseat the cable",
            verify=_VERIFY,
        )
        for cable in sorted(cables)
    ]


def _dead_hosts(set_aside: Mapping[str, str]) -> list[Suspect]:
    """Return a suspect for each host whose rank died or kept the others waiting."""
    return [
        Suspect(
            kind="host",
            id=host,
            direction="both",
            capacity=0.0,
            verdict="silent",
            confidence=0.99,
            tests=1,
            evidence=f"its rank stopped: {why}",
            action=f"check that {host} is up and answers, then screen it alone: railwright prove",
            verify=_VERIFY,
        )
        for host, why in set_aside.items()
    ]


def _silent_ports(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """Return a suspect for each port whose flows, at least 3, all went unanswered, if other ports were reached."""
    tries: dict[int, int] = {}
    reached: set[int] = set()
    troubles: dict[int, str] = {}
    for sign in (sign for one in signs for sign in one):
        for nic in (sign.flow.source, sign.flow.destination):
            tries[nic] = tries.get(nic, 0) + 1
            if sign.reached:
                reached.add(nic)
            elif sign.trouble:
                troubles.setdefault(nic, sign.trouble)
    return [
        Suspect(
            kind="nic",
            id=fabric.node_name(nic),
            direction="both",
            capacity=0.0,
            verdict="silent",
            confidence=0.99,
            tests=count,
            evidence=f"none of {count} flows to and from it arrived, and the other hosts reach each other"
            + (f": {troubles[nic]}" if nic in troubles else ""),
            action=f"check that it is up, then its cable to {fabric.node_name(fabric.leaf_of(nic))}",
            verify=_VERIFY,
        )
        for nic, count in sorted(tries.items())
        if count >= _MIN_TESTS and nic not in reached and reached
    ]


def _refine_by_traffic(fabric: Fabric, one: Suspect, busy: Mapping[int, float]) -> Suspect:
    """Return a suspect by rate, refined by the other traffic on it."""
    if one.kind not in ("link", "nic"):
        return one
    cable = next(number for number in range(len(fabric.lower)) if fabric.cable_name(number) == one.id)
    ways = {"up": (0,), "down": (1,)}.get(one.direction, (0, 1))
    taken = max(busy.get(2 * cable + way, 0.0) for way in ways)
    if taken >= _OCCUPIED:
        evidence = f"{one.evidence}; other traffic takes {taken:.0%} of it while no probe runs"
        action = f"find the sender of the traffic on {one.id}: the link itself may be healthy"
        return replace(one, verdict="occupied", evidence=evidence, action=action)
    # A lab's port keeps its rate while no other traffic flows: rates that varied come from TCP's own sharing.
    return replace(one, verdict="slow") if one.verdict == "slow or occupied" else one


def is_marked(sign: Sign) -> bool:
    """Report whether a flow has a bad sign besides its rate."""
    return bool(_loses_packets(sign) or _loses_long_packets(sign))


def _loses_packets(sign: Sign) -> bool | None:
    return sign.sent - sign.received >= _LOST_PACKETS if sign.sent and sign.received else None


def _loses_long_packets(sign: Sign) -> bool | None:
    usable = sign.long_lost is not None and sign.received > 0
    return (sign.long_lost or 0) >= _LONG_LOST if usable else None


def _stalling_links(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """Return the links that pass short packets and drop those at the MTU."""
    return [
        replace(
            suspect,
            verdict="stalls",
            capacity=0.0,
            evidence=f"{suspect.tests} flows over it lost all packets at the MTU, and short ones passed",
            action=f"compare the MTU of both ports of {suspect.id}",
        )
        for suspect, _ in _explain_bad_flows(fabric, signs, _loses_long_packets)
    ]


def _explain_bad_flows(
    fabric: Fabric, signs: Sequence[Sequence[Sign]], is_bad: Callable[[Sign], bool | None]
) -> list[tuple[Suspect, set[int]]]:
    """Return the elements that explain bad flows, by the same search as for rates, with their classes.

    A bad flow counts as a flow at half its rate; a flow of unknown state is left out.
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
        for suspect in build_suspects(Outcome(evidence, explanation, [], rounds))
    ]


def _lossy_links(fabric: Fabric, signs: Sequence[Sequence[Sign]]) -> list[Suspect]:
    """Return the links that explain the packets lost by probes, which leave the links idle."""
    sent_signs = [sign for one in signs for sign in one if sign.sent]
    found = []
    for suspect, numbers in _explain_bad_flows(fabric, signs, _loses_packets):
        over = [sign for sign in sent_signs if numbers & set(sign.flow.path)]
        part = sum(sign.sent - sign.received for sign in over) / max(sum(sign.sent for sign in over), 1)
        evidence = f"{suspect.tests} flows over it lost packets, {part:.2%} of all, on idle links"
        found.append(replace(suspect, verdict="lossy", capacity=round(1 - part, 4), evidence=evidence))
    return found
