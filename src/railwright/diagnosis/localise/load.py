"""Compares flows with all ports busy and with a quarter of them: flows that are slow only together are congested.

A faulty link also slows a single flow. An oversubscribed network, or one with colliding paths, does not.
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
_CONGESTED_SHARE = 0.5
"""Above this share of held back flows the whole class is congested."""


class LoadClass(msgspec.Struct, frozen=True, kw_only=True):
    """Flows with the same number of switches. Rates are shares of the expected rate with all ports busy."""

    switches: int
    flows: int
    """The number of flows with both rates known."""
    full: float
    """The median rate with all ports busy."""
    quarter: float
    """The median rate with a quarter of the ports busy."""
    held_back: int
    """The flows that were slow only with all ports busy."""
    slow_alone: int
    """The flows that were slow both times."""

    @property
    def is_congested(self) -> bool:
        """Whether the load holds most of the flows back."""
        return self.held_back > _CONGESTED_SHARE * self.flows


def load_rounds(fabric: Fabric, full: Round) -> list[Round]:
    """Return a round with all ports, and its flows in four parts that load every leaf equally."""
    parts: list[list[Flow]] = [[] for _ in range(_PARTS)]
    load: list[dict[int, int]] = [{} for _ in parts]
    for flow in full.flows:
        ends = fabric.leaf_of(flow.source), -1 - fabric.leaf_of(flow.destination)
        place = min(range(_PARTS), key=lambda one: (sum(load[one].get(end, 0) for end in ends), len(parts[one])))
        parts[place].append(flow)
        for end in ends:
            load[place][end] = load[place].get(end, 0) + 1
    return [Round(flows, purpose=PURPOSE) for flows in (full.flows, *parts) if flows]


def evaluate_load(rounds: Sequence[Round], floor: float, *, rate_is_known: bool) -> tuple[LoadClass, ...]:
    """Evaluate the rounds of `load_rounds`; a flow below `floor` of its possible rate is slow.

    If the rate is unknown, the rate with a quarter of the ports shows the possible rate.
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
