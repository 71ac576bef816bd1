"""What rounds say of each class of links: how often it was seen to carry its full rate, and how often not.

The decoding is "max of mins": a class can carry at least what its flows carried. A class is *cleared* by a round in
which its flows together had their rate, and *accused* by one in which not even the fastest had it. Where one flow of
several had its rate, the link shares nothing out, so that what slowed the others lies elsewhere: neither.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round

LEAST_GAP, _MOST_GAP = 0.05, 0.15
_SIGMAS = 3.5
_NORMAL_95 = 1.645
_NEAR = 0.9
"""Of the rate in the middle: a flow that has less does not tell how much healthy ones vary."""
_LEAST_SCALE = 0.95
"""Headers and the like take no more of a flow's share."""
_FULL = 0.9
"""A link that is filled to this part is tested; its full rate clears it."""


class Accusation(NamedTuple):
    """A round in which a class did not carry its rate."""

    level: float
    """The rate of its flows together over what they should reach."""
    flow: int
    """The number of that flow, over all rounds."""


@dataclass
class Evidence:
    """All rounds, decoded."""

    fabric: Fabric
    floor: float
    """Below this part of its share a flow is slow."""
    noise: float
    """The standard deviation of healthy flows, estimated."""
    scale: float
    """What healthy flows reach of their share."""
    cleared: list[int]
    """By class: the rounds that cleared it."""
    accused: dict[int, list[Accusation]] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    """By flow over all rounds: the measured rate over the share, 1 where healthy flows are; NaN where it was lost."""
    filled: list[float] = field(default_factory=list)
    """By class: the largest part of it that any round filled."""
    carried: list[float] = field(default_factory=list)
    """By class: the most that its flows of one round carried together, in rates of a NIC port. It can do no less."""
    starts: list[int] = field(default_factory=list)
    """The number of the first flow of each round."""

    def add(self, one: Round) -> None:
        """Decode one more round."""
        classes, capacity = self.fabric.classes, self.fabric.capacity
        total, want, best, who = [0.0] * classes, [0.0] * classes, [0.0] * classes, [-1] * classes
        first = len(self.flows)
        self.starts.append(first)
        for number, (flow, raw) in enumerate(zip(one.flows, one.ratio, strict=True), first):
            ratio = raw / self.scale
            self.flows.append(flow)
            self.ratio.append(ratio)
            if math.isnan(ratio):
                continue
            share, rate = flow.share, flow.share * ratio
            for each in flow.path:
                total[each] += rate
                want[each] += share
                if ratio >= best[each]:
                    best[each], who[each] = ratio, number
        for each in range(classes):
            if not want[each]:
                continue
            fill = want[each] / capacity[each >> 1]
            if fill > self.filled[each]:
                self.filled[each] = fill
            if total[each] > self.carried[each]:
                self.carried[each] = total[each]
            if total[each] >= self.floor * want[each]:
                self.cleared[each] += fill >= _FULL
            elif best[each] < self.floor:
                self.accused.setdefault(each, []).append(Accusation(total[each] / want[each], who[each]))

    def round_of(self, flow: int) -> int:
        """The number of the round of a flow."""
        return bisect_right(self.starts, flow) - 1

    def slow(self) -> list[int]:
        """The flows that were slow."""
        return [number for number, ratio in enumerate(self.ratio) if ratio < self.floor]

    def trusts(self, number: int) -> bool:
        """Whether a class was cleared often enough for others to be tested over it."""
        cleared, accused = self.cleared[number], len(self.accused.get(number, ()))
        least = 1 if number // 2 < self.fabric.nics else 2
        return cleared >= least and cleared > accused

    def is_well(self, number: int) -> bool:
        """Whether a class is beyond doubt, also if single entries of the map of paths are wrong."""
        cleared = self.cleared[number]
        # A flow's own ports are always known, so that one flow that was fast clears them.
        return (
            cleared > 0
            if number // 2 < self.fabric.nics
            else cleared > 1 or cleared > len(self.accused.get(number, ()))
        )

    @property
    def margin(self) -> float:
        """The relative distance within which two rates are the same."""
        return min(max(0.08, 4 * self.noise), 0.3)


def observe(fabric: Fabric, rounds: Sequence[Round], least_gap: float = LEAST_GAP) -> Evidence:
    """Decode rounds. Rates are held against what healthy flows of the same rounds reached.

    A flow that lacks less than `least_gap` of its rate is never slow.
    """
    scale, noise = _healthy(rounds)
    floor = 1 - min(max(_SIGMAS * noise, least_gap), _MOST_GAP)
    found = Evidence(fabric, floor, noise, scale, [0] * fabric.classes)
    found.filled, found.carried = [0.0] * fabric.classes, [0.0] * fabric.classes
    for one in rounds:
        found.add(one)
    return found


def _healthy(rounds: Iterable[Round]) -> tuple[float, float]:
    """The level of healthy flows, and their spread around it: by the upper half of those that are not slow."""
    ratios = sorted(ratio for one in rounds for ratio in one.ratio if not math.isnan(ratio))
    if not ratios:
        return 1.0, 0.0
    middle = ratios[len(ratios) // 2]
    if middle <= _NEAR * ratios[-1]:  # more than half of all flows are slow: a few high ones are no noise
        middle = ratios[min(int(len(ratios) * 0.98), len(ratios) - 1)]
    # Slow flows lower the median: where one link of two directions is slow, half of all flows may be.
    rest = ratios[bisect_left(ratios, _NEAR * middle) :]
    upper = rest[len(rest) // 2 :]
    middle, high = upper[0], upper[min(int(len(upper) * 0.9), len(upper) - 1)]
    # Where all is slow, the flows are held against what they should reach.
    noise = (high - middle) / middle / _NORMAL_95 if middle else 0.0
    return min(max(middle, _LEAST_SCALE), 1 / _LEAST_SCALE), noise
