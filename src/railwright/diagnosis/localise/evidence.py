"""Evidence from rounds for each class of links: how often it carried its full rate, and how often it did not.

The decoding is "max of mins": a class can carry at least the rate of its flows. A class is *cleared* by a round in
which its flows filled it and together reached their rate, and *accused* by one in which not even the fastest flow
reached its own. If only some flows did, the link is not congested and the cause is elsewhere: the class is neither.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round

MIN_GAP, _MAX_GAP = 0.05, 0.15
_SIGMAS = 3.5
_NORMAL_95 = 1.645
_NEAR_MEDIAN = 0.9
"""Share of the median rate: slower flows do not count towards the variation of healthy ones."""
_MIN_SCALE = 0.95
"""The minimum of `Evidence.scale`: overheads such as headers take at most the rest of a flow's share."""
_FULL_SHARE = 0.9
"""Only a round that fills a class to this part of its capacity can clear it."""


class Accusation(NamedTuple):
    """A round in which a class did not carry its rate."""

    level: float
    """The total rate of its flows over their expected rate."""
    flow: int
    """The index of the flow over all rounds."""


@dataclass
class Evidence:
    """The decoded evidence of all rounds."""

    fabric: Fabric
    floor: float
    """A flow below this part of its share is slow."""
    noise: float
    """The estimated standard deviation of healthy flows."""
    scale: float
    """The part of their share that healthy flows reach."""
    cleared: list[int]
    """The number of rounds that cleared each class."""
    accused: dict[int, list[Accusation]] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    """The measured rate over the share of each flow of all rounds, 1 for healthy flows, NaN for lost probes."""
    filled: list[float] = field(default_factory=list)
    """The largest part of each class that any round filled."""
    carried: list[float] = field(default_factory=list)
    """Each class's highest total rate in one round, in units of a NIC port's rate: a lower bound of its capacity."""
    starts: list[int] = field(default_factory=list)
    """The index of the first flow of each round."""

    def add(self, one: Round) -> None:
        """Decode another round."""
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
                self.cleared[each] += fill >= _FULL_SHARE
            elif best[each] < self.floor:
                self.accused.setdefault(each, []).append(Accusation(total[each] / want[each], who[each]))

    def round_of(self, flow: int) -> int:
        """Return the index of a flow's round."""
        return bisect_right(self.starts, flow) - 1

    def slow_flows(self) -> list[int]:
        """Return the indexes of the slow flows."""
        return [number for number, ratio in enumerate(self.ratio) if ratio < self.floor]

    def trusts(self, number: int) -> bool:
        """Report whether a class was cleared often enough to test others over it."""
        cleared, accused = self.cleared[number], len(self.accused.get(number, ()))
        needed = 1 if number // 2 < self.fabric.nics else 2
        return cleared >= needed and cleared > accused

    def is_well(self, number: int) -> bool:
        """Report whether a class is certainly healthy, even if single entries of the path map are wrong."""
        cleared = self.cleared[number]
        # A flow's own ports are always known, so a single fast flow clears them.
        return (
            cleared > 0
            if number // 2 < self.fabric.nics
            else cleared > 1 or cleared > len(self.accused.get(number, ()))
        )

    @property
    def margin(self) -> float:
        """The relative difference within which two rates count as equal."""
        return min(max(0.08, 4 * self.noise), 0.3)


def observe(fabric: Fabric, rounds: Sequence[Round], least_gap: float = MIN_GAP) -> Evidence:
    """Decode rounds. Rates are compared with those of healthy flows in the same rounds.

    A flow that misses less than `least_gap` of its rate is never slow.
    """
    scale, noise = _estimate_healthy(rounds)
    floor = 1 - min(max(_SIGMAS * noise, least_gap), _MAX_GAP)
    found = Evidence(fabric, floor, noise, scale, [0] * fabric.classes)
    found.filled, found.carried = [0.0] * fabric.classes, [0.0] * fabric.classes
    for one in rounds:
        found.add(one)
    return found


def _estimate_healthy(rounds: Iterable[Round]) -> tuple[float, float]:
    """Return the level and spread of healthy flows, estimated from the upper half of the flows that are not slow."""
    ratios = sorted(ratio for one in rounds for ratio in one.ratio if not math.isnan(ratio))
    if not ratios:
        return 1.0, 0.0
    middle = ratios[len(ratios) // 2]
    if middle <= _NEAR_MEDIAN * ratios[-1]:  # more than half of all flows are slow, and the few fast ones are not noise
        middle = ratios[min(int(len(ratios) * 0.98), len(ratios) - 1)]
    # Slow flows lower the median: a slow link in one direction may slow half of all flows.
    rest = ratios[bisect_left(ratios, _NEAR_MEDIAN * middle) :]
    upper = rest[len(rest) // 2 :]
    middle, high = upper[0], upper[min(int(len(upper) * 0.9), len(upper) - 1)]
    # If everything is slow, the flows are compared with their expected rate.
    noise = (high - middle) / middle / _NORMAL_95 if middle else 0.0
    return min(max(middle, _MIN_SCALE), 1 / _MIN_SCALE), noise
