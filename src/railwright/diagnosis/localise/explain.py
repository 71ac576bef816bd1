"""Finds the fewest faults that explain every slow flow, by their likelihood relative to chance.

A class is a suspect if it was accused at a constant rate more often than its companions and the background explain.
Suspects are taken by weight, and flows that one explains do not count for others. So healthy links next to a broken
line card, slow switch or slow host are not accused.

The path map may be wrong for some flows: then a flow on another path clears a broken link or accuses a good one, so a
single flow does not decide. NIC ports are always known, so a fast flow clears them better.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from math import exp, log

from railwright.diagnosis.localise.evidence import Accusation, Evidence
from railwright.diagnosis.localise.fabric import Fabric

_PRIOR = log(0.005)
"""The logarithm of the prior probability that a class is faulty."""
_PRIOR_OF_CARD = log(0.5)
"""The same for a class on a line card with many suspects."""
_PRIOR_OCCUPIED = log(0.00025)
_BACKGROUND, _NO_FLOWS_OUTWEIGH, _BACKGROUND_FLOWS = 0.05, 1e9, 10
"""The assumed background, and the number of flows that outweighs it: the first pass knows none, the second a few."""
_SAME_RATE, _SAME_RATE_FLOWS, _MIN_SAME_RATE = 0.3, 2, 0.05
"""The assumed probability that chance slows a flow to the rate of another, the number of flows that outweighs it, and
its minimum."""
_SHAPE_FLOWS = 60
"""The number of flows that show which rates chance prefers; fewer only show how slow it is."""
_WRONG_MAP, _WRONG_NIC = 0.04, 0.01
"""The probabilities that a broken link and a broken NIC port are cleared by mistake."""
_MIN_BACKGROUND, _MAX_BACKGROUND = 0.02, 0.5
_WEIGHT_TO_SUSPECT, _WEIGHT_OF_SWITCH = 2.0, 16.0
_WEIGHT_TO_RETEST = -4.0
_NOT_EXCLUDED = 3.0
"""A rival is excluded only if it is at least e^3 = 20 times less likely."""
_WIDER = 0.1
_MAX_FLOWS_PER_ROUND = 3
"""The number of flows per round that count against a shared slow link; more add no information."""
_MIN_LINKS = 4
MIN_LINKS_OF_CARD, PART_OF_CARD, _SUSPECT_SHARE_OF_CARD = 4, 0.6, 0.5
"""A line card is slow as a whole if at least this many of its links, and this part of them, are slow. If the last part
of its links is suspect, a single cause is likely."""
_MIN_SLOW_SHARE_OF_SWITCH = 0.85
"""The minimum share of slow links of a switch that is slow as a whole."""
_MAX_CLEARED_SHARE, _PORT_COUNTS = 0.04, 3
"""The share of tests that a wrong path map may turn into clearing ones, and the weight of a port's clearing test, for
which the map is never wrong."""


@dataclass
class Suspicion:
    """A class that explains slow flows."""

    number: int
    level: float
    """The remaining part of the capacity."""
    weight: float
    """The log likelihood ratio of the fault to chance."""
    constant: bool
    """Whether the rate was the same in all rounds; otherwise other traffic may occupy the link, or it may flap."""
    flows: list[int]
    """The slow flows that it explains."""
    rivals: list[tuple[int, float]] = field(default_factory=list)
    """Classes that explain the same flows, with their weights."""
    switch: int = -1
    """The node of this link's switch if the switch is slow as a whole."""

    @property
    def confidence(self) -> float:
        """The probability of this class among its rivals and chance."""
        against = sum(exp(max(weight - self.weight, -50.0)) for _, weight in self.rivals)
        return 1.0 / (1.0 + against + exp(max(-self.weight, -50.0)))


@dataclass
class Explanation:
    """The suspects, and the unexplained flows."""

    suspicions: list[Suspicion]
    unexplained: list[int]
    """Slow flows that no suspect explains: interference, a wrong path, or a fault of one route."""
    background: float
    """The unexplained part of all flows."""
    doubtful: list[int]
    """Classes that a further test should clear or accuse."""


def explain(evidence: Evidence) -> Explanation:
    """Return the suspects of all rounds so far, the highest weight first."""
    found: list[Suspicion] = []
    rest: list[int] = []
    for assumed_flows in (_NO_FLOWS_OUTWEIGH, _BACKGROUND_FLOWS):
        chance = _Chance(evidence, rest, assumed_flows)
        search = _Search(evidence, chance, _find_slow_cards(evidence, found))
        found = search.run()
        rest = [flow for flow in evidence.slow_flows() if not search.explainers.get(flow)]
    background = min(max(len(rest) / max(len(evidence.flows), 1), _MIN_BACKGROUND), _MAX_BACKGROUND)
    return Explanation(found, rest, background, search.doubtful(found))


def _find_slow_cards(evidence: Evidence, found: list[Suspicion]) -> set[int]:
    """Return the classes of line cards with many suspects, for which a single cause is more likely."""
    fabric = evidence.fabric
    suspects = {one.number for one in found if one.constant}
    nodes = {node for number in suspects for node in (fabric.lower[number // 2], fabric.upper[number // 2])}
    slow: set[int] = set()
    for node in sorted(node for node in nodes if node >= fabric.nics):
        for cables in fabric.cards(node):
            numbers = {2 * cable + way for cable in cables for way in (0, 1)}
            if len(numbers & suspects) >= max(MIN_LINKS_OF_CARD, _SUSPECT_SHARE_OF_CARD * len(cables)):
                slow |= numbers
    return slow


def _find_only_links(fabric: Fabric, node: int) -> list[int]:
    """Return the links of a switch's only host, which no flow can distinguish from the switch's own links."""
    nics = fabric.below[node]
    hosts = {fabric.nic_host[nic] for nic in nics if nic < fabric.nics}
    return [2 * nic + way for nic in nics for way in (0, 1)] if len(hosts) == 1 and nics[0] < fabric.nics else []


class _Chance:
    """The probability that a flow over a healthy class is slow, by the slow flows that no suspect explained before.

    A class is compared with the flows of other classes: among few hosts its own would hide its fault. If the class is
    healthy, chance slowed its own flows too, so each makes the next more probable, as in Polya's urn.
    """

    def __init__(self, evidence: Evidence, unexplained: list[int], assumed_flows: float) -> None:
        self._ratio, self._total, self._assumed_flows = evidence.ratio, len(evidence.flows), assumed_flows
        self._unexplained = set(unexplained)
        self._rates = sorted(evidence.ratio[flow] for flow in unexplained)

    def weigh(self, own: Collection[int], fresh: int, low: float | None, high: float) -> float:
        """Return the weight against chance of `fresh` slow flows of a class, at rates of `low` to `high`.

        `own` are all slow flows of the class. Without `low`, the rates vary and repeat none.
        """
        rates = [self._ratio[flow] for flow in own if flow in self._unexplained]
        others = len(self._rates) - len(rates)
        slow, total = others + _BACKGROUND * self._assumed_flows, self._total - len(own) + self._assumed_flows
        parts = (min(max((slow + n) / (total + n), _MIN_BACKGROUND), _MAX_BACKGROUND) for n in range(fresh))
        as_slow = bisect_right(self._rates, high) - sum(rate <= high for rate in rates)
        least, assumed = (0.0, 1.0) if low is None else (low, _SAME_RATE)
        same = as_slow - bisect_left(self._rates, least) + sum(rate < least for rate in rates)
        part = (as_slow + assumed * _SAME_RATE_FLOWS) / (others + _SAME_RATE_FLOWS)
        part = (same + part * _SHAPE_FLOWS) / (others + _SHAPE_FLOWS)
        return -sum(map(log, parts)) - max(fresh - 1, 0) * log(max(part, _MIN_SAME_RATE))


class _Search:
    """A greedy pass with a given background."""

    def __init__(self, evidence: Evidence, chance: _Chance, of_cards: set[int]) -> None:
        self.evidence, self._chance, self._of_cards = evidence, chance, of_cards
        self.explainers: dict[int, int] = {}
        """The number of suspects that explain each slow flow."""
        self._sharing: dict[int, dict[int, list[int]]] = {}
        """The slow flows over each shared link by round: the fastest accuses the link, which explains all of them."""
        capacity = evidence.fabric.capacity
        for flow in evidence.slow_flows() if max(capacity) > 1 + _WIDER else ():
            for number in evidence.flows[flow].path:
                if capacity[number // 2] > 1 + _WIDER:
                    self._sharing.setdefault(number, {}).setdefault(evidence.round_of(flow), []).append(flow)

    def _own(self, number: int) -> list[int]:
        """Return the slow flows that accuse a class."""
        if number in self._sharing:
            return list(chain.from_iterable(self._sharing[number].values()))
        return [one.flow for one in self.evidence.accused.get(number, ())]

    def _fresh(self, number: int, accusation: Accusation) -> int:
        """Return the number of unexplained slow flows in an accusation, which may exceed 1 for a shared link."""
        rounds = self._sharing.get(number)
        flows = rounds[self.evidence.round_of(accusation.flow)] if rounds else [accusation.flow]
        return min(sum(not self.explainers.get(flow) for flow in flows), _MAX_FLOWS_PER_ROUND)

    def run(self) -> list[Suspicion]:
        whole = self._find_slow_switches()
        heap = []
        for number in self.evidence.accused:
            weight = self.weigh(number)[0]
            if weight > _WEIGHT_TO_RETEST:
                heap.append((-weight, number))
        self._near = [number for _, number in heap]
        heapq.heapify(heap)
        found: list[Suspicion] = []
        while heap:
            negative, number = heapq.heappop(heap)
            suspicion = self._suspicion(number)
            if suspicion.weight < _WEIGHT_TO_SUSPECT:
                continue
            if suspicion.weight < -negative - 1e-9:
                heapq.heappush(heap, (-suspicion.weight, number))
                continue
            suspicion.rivals = self._rivals(suspicion)
            self._explain(suspicion, 1)
            found.append(suspicion)
        return whole + self._add_rest_of_cards(self._drop_needless(found))

    def _find_slow_switches(self) -> list[Suspicion]:
        """Find switches with most links accused and few healthy, which have a single cause.

        Every flow over a switch enters and leaves it, so no round can distinguish receiving from sending.
        """
        fabric, found = self.evidence.fabric, []
        for node in range(fabric.nics, fabric.nics + len(fabric.switches)):
            numbers = fabric.classes_of_switch(node, "both")
            accused = [number for number in numbers if number in self.evidence.accused]
            if len(accused) < 0.7 * len(numbers) or len(set(map(fabric.twin_of, accused))) < _MIN_LINKS:
                continue
            if sum(map(self.evidence.is_well, numbers)) > (1 - _MIN_SLOW_SHARE_OF_SWITCH) * len(numbers):
                continue
            if any(map(self._clears_more_than_a_wrong_map, fabric.cards(node))):
                continue
            accusations = [one for number in accused for one in self.evidence.accused[number]]
            for number in (not self._was_tested_apart(node) and _find_only_links(fabric, node)) or numbers:
                flows = [one.flow for one in self.evidence.accused.get(number, ())]
                own = self.evidence.accused.get(number) or accusations
                middle = sorted(one.level for one in own)[len(own) // 2]
                found.append(Suspicion(number, middle, _WEIGHT_OF_SWITCH, True, flows, switch=node))
        slow = {one.number for one in found}
        # An accusation names one of the flows that share a slow link; the switch explains all of them.
        for flow in self.evidence.slow_flows() if slow else ():
            self.explainers[flow] = sum(number in slow for number in self.evidence.flows[flow].path)
        return found

    def _was_tested_apart(self, node: int) -> bool:
        """Report whether the links above a switch were slow for flows that did not fill the ports below it."""
        evidence, capacity = self.evidence, self.evidence.fabric.capacity
        numbers = (2 * cable + way for cable in self.evidence.fabric.above[node] for way in (0, 1))
        accusing = ((one, number) for number in numbers for one in evidence.accused.get(number, ()))
        return any(evidence.flows[one.flow].share < 0.6 * min(capacity[number // 2], 1) for one, number in accusing)

    def _clears_more_than_a_wrong_map(self, cables: tuple[int, ...]) -> bool:
        """Report whether the links of a line card were cleared more often than a wrong path map explains."""
        cleared, accused, nics = self.evidence.cleared, self.evidence.accused, self.evidence.fabric.nics
        numbers = [2 * cable + way for cable in cables for way in (0, 1)]
        clears = sum(cleared[number] * (_PORT_COUNTS if number // 2 < nics else 1) for number in numbers)
        tests = sum(cleared[number] + len(accused.get(number, ())) for number in numbers)
        return clears > 2 + _MAX_CLEARED_SHARE * tests

    def weigh(self, number: int) -> tuple[float, float, list[Accusation]]:
        """Return the weight of a constant fault, its level, and the accusations at that level."""
        accusations = self.evidence.accused.get(number, [])
        against = log(_WRONG_NIC if number // 2 < self.evidence.fabric.nics else _WRONG_MAP)
        cleared, margin = self.evidence.cleared[number], self.evidence.margin
        best: tuple[float, float, list[Accusation]] = (-1e9, 0.0, [])
        own = self._own(number)
        for top in {accusation.level for accusation in accusations}:
            same = [one for one in accusations if top * (1 - margin) <= one.level <= top]
            fresh = sum(self._fresh(number, one) for one in same)
            faster = sum(one.level > top for one in accusations)
            weight = (_PRIOR_OF_CARD if number in self._of_cards else _PRIOR) + (cleared + faster) * against
            if fresh:
                weight += self._chance.weigh(own, fresh, top * (1 - margin), top * (1 + margin / 2))
            if weight > best[0]:
                best = weight, top, same
        return best

    def _suspicion(self, number: int) -> Suspicion:
        weight, top, same = self.weigh(number)
        accusations = self.evidence.accused[number]
        fresh = [one for one in accusations if self._fresh(number, one)]
        against = log(_WRONG_MAP) * self.evidence.cleared[number] / 2  # a neighbour may be idle for a round
        count = sum(self._fresh(number, one) for one in fresh)
        highest = max((one.level for one in fresh), default=1.0)
        occupied = _PRIOR_OCCUPIED + self._chance.weigh(self._own(number), count, None, highest) + against
        levels = sorted(one.level for one in same)
        shared = list(chain.from_iterable(self._sharing.get(number, {}).values()))
        # Different rates make a constant level unlikely: few flows have it, or too few for a suspect.
        changes = 2 * len(same) < len(accusations) or (len(same) < len(accusations) and weight < _WEIGHT_TO_SUSPECT)
        if occupied > weight + 1 and len(fresh) > 2 and changes:
            middle = sorted(one.level for one in fresh)[len(fresh) // 2]
            flows = dict.fromkeys([*(one.flow for one in accusations), *shared])
            return Suspicion(number, middle, occupied, False, list(flows))
        level = levels[len(levels) // 2] if levels else top
        flows = dict.fromkeys([*(one.flow for one in same), *shared])
        return Suspicion(number, level, weight, True, list(flows))

    def _explain(self, suspicion: Suspicion, step: int) -> None:
        for flow in suspicion.flows:
            self.explainers[flow] = self.explainers.get(flow, 0) + step

    def _rivals(self, suspicion: Suspicion) -> list[tuple[int, float]]:
        """Return classes on the same flows that explain them nearly as well."""
        seen: dict[int, int] = {}
        for flow in suspicion.flows:
            for number in self.evidence.flows[flow].path:
                seen[number] = seen.get(number, 0) + 1
        rivals = []
        for number, times in seen.items():
            accused = number != suspicion.number and number in self.evidence.accused
            if accused and 2 * times > len(suspicion.flows):
                weight = self._suspicion(number).weight
                if weight > suspicion.weight - _NOT_EXCLUDED:
                    rivals.append((number, weight))
        return rivals

    def _drop_needless(self, found: list[Suspicion]) -> list[Suspicion]:
        """Drop suspects whose flows others also explain, the lowest weight first."""
        kept = []
        for suspicion in sorted(found, key=lambda one: one.weight):
            self._explain(suspicion, -1)
            if self._suspicion(suspicion.number).weight >= _WEIGHT_TO_SUSPECT:
                self._explain(suspicion, 1)
                kept.append(suspicion)
        return sorted(kept, key=lambda one: -one.weight)

    def _add_rest_of_cards(self, found: list[Suspicion]) -> list[Suspicion]:
        """Add the remaining links of line cards that are slow as a whole and were never cleared.

        If the card is on both ends of most flows, each flow has two equally slow causes.
        """
        fabric = self.evidence.fabric
        level_of = {one.number: one.level for one in found if one.constant}
        nodes = {node for number in level_of for node in (fabric.lower[number // 2], fabric.upper[number // 2])}
        more: dict[int, Suspicion] = {}
        for node in sorted(node for node in nodes if node >= fabric.nics):
            for cables in fabric.cards(node):
                levels = sorted(level_of[number] for c in cables for number in (2 * c, 2 * c + 1) if number in level_of)
                if len(levels) >= MIN_LINKS_OF_CARD:
                    more |= self._rest_of_card(cables, levels[len(levels) // 2], level_of)
        for one in more.values():
            self._explain(one, 1)
        return found + list(more.values())

    def _rest_of_card(self, cables: tuple[int, ...], level: float, level_of: dict[int, float]) -> dict[int, Suspicion]:
        evidence, tolerance = self.evidence, self.evidence.margin * level
        known, others = ([0, 0], [dict[int, Suspicion](), dict[int, Suspicion]()])
        for number in (2 * cable + way for cable in cables for way in (0, 1)):
            way = number % 2
            if number in level_of:
                known[way] += abs(level_of[number] - level) <= tolerance
                continue
            flows = [one.flow for one in evidence.accused.get(number, ()) if abs(one.level - level) <= tolerance]
            if flows and not evidence.is_well(number):
                others[way][number] = Suspicion(number, level, _WEIGHT_TO_SUSPECT, True, flows)
        least, most_of_it = max(MIN_LINKS_OF_CARD, PART_OF_CARD * len(cables)), _MIN_SLOW_SHARE_OF_SWITCH * len(cables)
        slow = [known[way] >= least for way in (0, 1)]
        # If one direction is slow as a whole, or half of both, the rest is slow too unless it is healthy.
        doubtful = [known[way] + len(others[way]) >= most_of_it for way in (0, 1)]
        half = all(doubtful) and sum(known) >= least
        taken = [slow[way] or (doubtful[way] and (slow[1 - way] or half)) for way in (0, 1)]
        return {number: one for way in (0, 1) if taken[way] for number, one in others[way].items()}

    def doubtful(self, found: list[Suspicion]) -> list[int]:
        """Return the classes to test in a further round: suspects, rivals, and candidates."""
        wanted = dict.fromkeys(one.number for one in found)
        wanted |= dict.fromkeys(number for one in found for number, _ in one.rivals)
        wanted |= dict.fromkeys(n for n in self._near if self.weigh(n)[0] > _WEIGHT_TO_RETEST)
        return list(wanted)
