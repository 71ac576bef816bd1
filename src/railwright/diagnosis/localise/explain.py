"""The fewest faults that explain every slow flow, by how much more likely each is than chance.

A class is a suspect if it was accused, at one and the same rate, more often than its companions and the background
explain. Suspects are taken in the order of their weight, and what one explains speaks for no other. So healthy links
beside a broken line card, a whole slow switch or a slow host are not accused for it.

The path map may be wrong for some flows: then a broken link is cleared by a flow that went elsewhere, and a good one
is accused by a flow that came from elsewhere. Neither decides alone. NIC ports are always known, so a flow that was
fast clears them better.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import exp, log

from railwright.diagnosis.localise.evidence import Accusation, Evidence
from railwright.diagnosis.localise.fabric import Fabric

_PRIOR = log(0.005)
"""Of a class to be faulty."""
_PRIOR_OCCUPIED = log(0.00025)
_SAME_RATE = 0.3
"""How likely it is that chance slows a flow to the very rate of another."""
_WRONG_MAP, _WRONG_NIC = 0.04, 0.01
"""How likely a broken link, a broken NIC port is cleared all the same."""
_LEAST_BACKGROUND, _MOST_BACKGROUND = 0.02, 0.25
_WEIGHT_TO_SUSPECT = 2.0
_WEIGHT_TO_RETEST = -4.0
_NOT_EXCLUDED = 3.0
"""A rival that is less than e^3 = 20 times less likely is not excluded."""
_PASSES = 2
_LEAST_LINKS = 4
_MOST_LINKS_OF_SWITCH = 0.85
"""Of a switch that is slow as a whole, at least this part of its links is."""


@dataclass
class Suspicion:
    """A class that explains slow flows."""

    number: int
    level: float
    """The part of the capacity that is left."""
    weight: float
    """The logarithm of how much more likely the fault is than chance."""
    constant: bool
    """Whether the rate was the same in all rounds. If not, the link may be occupied by others, or flap."""
    flows: list[int]
    """The slow flows that it explains."""
    rivals: list[tuple[int, float]] = field(default_factory=list)
    """Classes that explain the same flows, and their weights."""
    switch: int = -1
    """The node of the switch that is slow as a whole, of which this is a link."""

    @property
    def confidence(self) -> float:
        """The probability of this class among its rivals and chance."""
        against = sum(exp(max(weight - self.weight, -50.0)) for _, weight in self.rivals)
        return 1.0 / (1.0 + against + exp(max(-self.weight, -50.0)))


@dataclass
class Explanation:
    """The suspects, and what stays without a cause."""

    suspicions: list[Suspicion]
    unexplained: list[int]
    """Slow flows that no suspect explains: interference, a wrong path, or a fault of one route."""
    background: float
    """The part of all flows that is."""
    doubtful: list[int]
    """Classes that a further test should clear or accuse."""


def explain(evidence: Evidence) -> Explanation:
    """The suspects of all rounds so far, the weightiest first."""
    background = 0.05
    found: list[Suspicion] = []
    rest: list[int] = []
    for _ in range(_PASSES):
        search = _Search(evidence, background)
        found = search.run()
        rest = [flow for flow in evidence.slow() if not search.explainers.get(flow)]
        background = min(max(len(rest) / max(len(evidence.flows), 1), _LEAST_BACKGROUND), _MOST_BACKGROUND)
    return Explanation(found, rest, background, search.doubtful(found))


def _of_one_host(fabric: Fabric, node: int) -> list[int]:
    """The links of the only host below a switch: no flow tells the two apart, and a host is slow more often."""
    nics = fabric.below[node]
    hosts = {fabric.nic_host[nic] for nic in nics if nic < fabric.nics}
    return [2 * nic + way for nic in nics for way in (0, 1)] if len(hosts) == 1 and nics[0] < fabric.nics else []


class _Search:
    """One greedy pass with a given rate of the background."""

    def __init__(self, evidence: Evidence, background: float) -> None:
        self.evidence = evidence
        self.explainers: dict[int, int] = {}
        """Of each slow flow, how many suspects explain it."""
        self._once, self._again = log(1 / background), log(1 / (background * _SAME_RATE))

    def run(self) -> list[Suspicion]:
        whole = self._whole_switches()
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
        return whole + self._without_needless(found)

    def _whole_switches(self) -> list[Suspicion]:
        """Switches of which every link was accused and none is well: one cause, and not as many as links.

        Every flow over a switch enters and leaves it, so that no round can tell what it receives from what it sends.
        """
        fabric, found = self.evidence.fabric, []
        for node in range(fabric.nics, fabric.nics + len(fabric.switches)):
            numbers = fabric.classes_of_switch(node, "both")
            accused = [number for number in numbers if number in self.evidence.accused]
            if len(accused) < max(_LEAST_LINKS, 0.7 * len(numbers)):
                continue
            well = sum(self.evidence.cleared[number] >= len(self.evidence.accused.get(number, ())) for number in numbers
                       if number in self.evidence.accused or self.evidence.cleared[number])  # fmt: skip
            if well > (1 - _MOST_LINKS_OF_SWITCH) * len(numbers):
                continue
            accusations = [one for number in accused for one in self.evidence.accused[number]]
            for number in _of_one_host(fabric, node) or numbers:
                flows = [one.flow for one in self.evidence.accused.get(number, ())]
                own = self.evidence.accused.get(number) or accusations
                middle = sorted(one.level for one in own)[len(own) // 2]
                found.append(Suspicion(number, middle, self._again * 4, True, flows, switch=node))
                self._explain(found[-1], 1)
        return found

    def weigh(self, number: int) -> tuple[float, float, list[Accusation]]:
        """The weight of a constant fault, its level, and the accusations at that level."""
        accusations = self.evidence.accused.get(number, [])
        against = log(_WRONG_NIC if number // 2 < self.evidence.fabric.nics else _WRONG_MAP)
        cleared, margin, explainers = self.evidence.cleared[number], self.evidence.margin, self.explainers
        best: tuple[float, float, list[Accusation]] = (-1e9, 0.0, [])
        for top in {accusation.level for accusation in accusations}:
            same = [one for one in accusations if top * (1 - margin) <= one.level <= top]
            fresh = sum(not explainers.get(one.flow) for one in same)
            faster = sum(one.level > top for one in accusations)
            weight = _PRIOR + (cleared + faster) * against
            if fresh:
                weight += self._once + (fresh - 1) * self._again
            if weight > best[0]:
                best = weight, top, same
        return best

    def _suspicion(self, number: int) -> Suspicion:
        weight, top, same = self.weigh(number)
        accusations = self.evidence.accused[number]
        fresh = [one for one in accusations if not self.explainers.get(one.flow)]
        against = log(_WRONG_MAP) * self.evidence.cleared[number] / 2  # a neighbour may rest for a round
        occupied = _PRIOR_OCCUPIED + len(fresh) * self._once + against
        levels = sorted(one.level for one in same)
        if occupied > weight + 1 and len(fresh) > 2 and 2 * len(same) < len(accusations):
            middle = sorted(one.level for one in fresh)[len(fresh) // 2]
            return Suspicion(number, middle, occupied, False, [one.flow for one in accusations])
        level = levels[len(levels) // 2] if levels else top
        return Suspicion(number, level, weight, True, [one.flow for one in same])

    def _explain(self, suspicion: Suspicion, step: int) -> None:
        for flow in suspicion.flows:
            self.explainers[flow] = self.explainers.get(flow, 0) + step

    def _rivals(self, suspicion: Suspicion) -> list[tuple[int, float]]:
        """Classes on the same flows that would explain them nearly as well."""
        seen: dict[int, int] = {}
        for flow in suspicion.flows:
            for number in self.evidence.flows[flow].path:
                seen[number] = seen.get(number, 0) + 1
        rivals = []
        for number, times in seen.items():
            if number != suspicion.number and 2 * times > len(suspicion.flows):
                weight = self.weigh(number)[0]
                if weight > suspicion.weight - _NOT_EXCLUDED:
                    rivals.append((number, weight))
        return rivals

    def _without_needless(self, found: list[Suspicion]) -> list[Suspicion]:
        """Leave out suspects whose flows others explain by now, the lightest first."""
        kept = []
        for suspicion in sorted(found, key=lambda one: one.weight):
            self._explain(suspicion, -1)
            if self._suspicion(suspicion.number).weight >= _WEIGHT_TO_SUSPECT:
                self._explain(suspicion, 1)
                kept.append(suspicion)
        return sorted(kept, key=lambda one: -one.weight)

    def doubtful(self, found: list[Suspicion]) -> list[int]:
        """What a further round should test: suspects, their rivals, and what may become one."""
        wanted = dict.fromkeys(one.number for one in found)
        wanted |= dict.fromkeys(number for one in found for number, _ in one.rivals)
        wanted |= dict.fromkeys(n for n in self._near if self.weigh(n)[0] > _WEIGHT_TO_RETEST)
        return list(wanted)
