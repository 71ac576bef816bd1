"""The same flows with all ports at work and with a quarter of them: what is slow only beside others is congestion.

A faulty link is slow for one flow, too. A network that has too little room for all, or in which ways meet, is not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round

PURPOSE = "load test"
_PARTS = 4
_MOST = 0.5
"""Where more of the flows of a kind were held back, it is their kind that is, and not a few of them."""


class LoadClass(msgspec.Struct, frozen=True, kw_only=True):
    """The flows that cross as many switches. Rates are of what a flow should reach with all ports at work."""

    switches: int
    flows: int
    """Of which both rates are known."""
    full: float
    """The rate with all ports at work, the one in the middle."""
    quarter: float
    """With a quarter of them."""
    held_back: int
    """The flows that were slow beside the others, and not without them."""
    slow_alone: int
    """The flows that were slow both times."""

    @property
    def is_congested(self) -> bool:
        """Whether it is the load that holds most of them back."""
        return self.held_back > _MOST * self.flows


def load_rounds(fabric: Fabric, full: Round) -> list[Round]:
    """A round with all ports, and its flows in four parts that load every leaf alike."""
    parts: list[list[Flow]] = [[] for _ in range(_PARTS)]
    load: list[dict[int, int]] = [{} for _ in parts]
    for flow in full.flows:
        ends = fabric.leaf_of(flow.source), -1 - fabric.leaf_of(flow.destination)
        place = min(range(_PARTS), key=lambda one: (sum(load[one].get(end, 0) for end in ends), len(parts[one])))
        parts[place].append(flow)
        for end in ends:
            load[place][end] = load[place].get(end, 0) + 1
    return [Round(flows, purpose=PURPOSE) for flows in (full.flows, *parts) if flows]


def load_of(rounds: Sequence[Round], floor: float, *, rate_is_known: bool) -> tuple[LoadClass, ...]:
    """What the rounds of `load_rounds` showed; a flow that has less than `floor` of what it could have is slow.

    Where nobody knows the rate, a flow that has more than it should beside the others tells what it could have.
    """
    if not rounds:
        return ()
    full, *parts = rounds
    alone = {(flow.source, flow.destination, flow.path): ratio
             for one in parts for flow, ratio in zip(one.flows, one.ratio, strict=True)}  # fmt: skip
    classes: dict[int, list[tuple[float, float]]] = {}
    for flow, ratio in zip(full.flows, full.ratio, strict=True):
        quarter = alone[flow.source, flow.destination, flow.path]
        if not math.isnan(ratio + quarter):
            classes.setdefault(len(flow.path) - 1, []).append((ratio, quarter))

    def could(quarter: float) -> float:
        return min(quarter, 1.0) if rate_is_known else quarter

    return tuple(
        LoadClass(
            switches=switches,
            flows=len(seen),
            full=round(statistics.median(ratio for ratio, _ in seen), 4),
            quarter=round(statistics.median(quarter for _, quarter in seen), 4),
            held_back=sum(ratio < floor * could(quarter) and quarter >= floor for ratio, quarter in seen),
            slow_alone=sum(ratio < floor and quarter < floor for ratio, quarter in seen),
        )
        for switches, seen in sorted(classes.items())
    )
