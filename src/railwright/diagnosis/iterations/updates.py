"""Detects the actual updates of a counter, because reading an unchanged value is not a sample."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.iterations.samples import Curve, Role
from railwright.results.statistics import quantile

_USUAL = 0.1
"""This quantile of the time between changes is at most one update, even for a counter that is often idle, for
example because its job seldom gets a CPU.
"""
_SLACK = 2.0
"""In updates: after a longer time the counter was idle in between."""


class Steps(NamedTuple):
    """The increments of a counter between its readings."""

    times_s: Sequence[float]
    moved: Sequence[float]
    """NaN if it was not read; the next value includes the increment."""


def update_s(steps: Steps) -> float:
    """Return the update interval of a counter in seconds, from the times between its changes; 0 if it hardly moves."""
    changes = [at_s for at_s, moved in zip(steps.times_s, steps.moved, strict=True) if moved > 0]
    between = sorted(after - before for before, after in pairwise(changes))
    return quantile(between, _USUAL) if len(between) > 2 else 0.0


def build_rate_curve(role: Role, every: Sequence[Steps], quiet_below: float) -> Curve:
    """Sum the rates of counters at the update interval of the slowest; an idle counter has a rate of 0."""
    updates = [update_s(steps) for steps in every]
    slowest = max(updates, default=0.0)
    times, totals = _sum_increments(every)
    begin_s = times[0] if times else 0.0
    ends, values, last_s, held, rests = array("d"), array("d"), begin_s, 0.0, False
    for at_s, moved in zip(times[1:], totals[1:], strict=True):
        held += moved
        if not moved and at_s - last_s < _SLACK * slowest:
            rests = True
            continue
        if held and rests and at_s - last_s > _SLACK * slowest > 0:
            # The counter was idle until the last update interval.
            ends.append(at_s - slowest)
            values.append(0.0)
            last_s = at_s - slowest
        ends.append(at_s)
        values.append(held / (at_s - last_s))
        last_s, held, rests = at_s, 0.0, False
    return Curve(role, begin_s, ends, values, quiet_below)


def _sum_increments(every: Sequence[Steps]) -> tuple[list[float], list[float]]:
    """Return the start and the times of readings, with the total increments since the previous time."""
    begin_s = min((steps.times_s[0] for steps in every if steps.times_s), default=0.0)
    moved: dict[float, float] = {begin_s: 0.0}
    for steps in every:
        for at_s, step in zip(steps.times_s, steps.moved, strict=True):
            if step == step:
                moved[at_s] = moved.get(at_s, 0.0) + max(step, 0.0)
    times = sorted(moved)
    return times, [moved[at_s] for at_s in times]
