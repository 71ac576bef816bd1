"""When a counter really was updated: a value that is read again is no sample."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.iterations.samples import Curve, Role
from railwright.results.statistics import quantile

_USUAL = 0.1
"""This part of the steps between two changes is at most an update apart, even of a counter that often stands still, as
where its job gets a CPU now and then only.
"""
_SLACK = 2.0
"""Of an update: after more, the counter stood still in between."""


class Steps(NamedTuple):
    """How far a counter moved between the times at which it was read."""

    times_s: Sequence[float]
    moved: Sequence[float]
    """NaN where it was not read: what it moved is in the next one."""


def update_s(steps: Steps) -> float:
    """How often the counter is updated, in seconds, by the times between its changes; 0 where it hardly moves."""
    changes = [at_s for at_s, moved in zip(steps.times_s, steps.moved, strict=True) if moved > 0]
    between = sorted(after - before for before, after in pairwise(changes))
    return quantile(between, _USUAL) if len(between) > 2 else 0.0


def rates(role: Role, every: Sequence[Steps], quiet_below: float) -> Curve:
    """The rates of counters, added up, at the pace of the slowest of them; a counter that rests has a rate of 0."""
    updates = [update_s(steps) for steps in every]
    slowest = max(updates, default=0.0)
    times, totals = _together(every)
    begin_s = times[0] if times else 0.0
    ends, values, last_s, held, rests = array("d"), array("d"), begin_s, 0.0, False
    for at_s, moved in zip(times[1:], totals[1:], strict=True):
        held += moved
        if not moved and at_s - last_s < _SLACK * slowest:
            rests = True
            continue
        if held and rests and at_s - last_s > _SLACK * slowest > 0:
            # It was read and had not moved; it moved within the update that has just been seen.
            ends.append(at_s - slowest)
            values.append(0.0)
            last_s = at_s - slowest
        ends.append(at_s)
        values.append(held / (at_s - last_s))
        last_s, held, rests = at_s, 0.0, False
    return Curve(role, begin_s, ends, values, quiet_below)


def _together(every: Sequence[Steps]) -> tuple[list[float], list[float]]:
    """The first time, and those at which something was read, with what all moved since the one before."""
    begin_s = min((steps.times_s[0] for steps in every if steps.times_s), default=0.0)
    moved: dict[float, float] = {begin_s: 0.0}
    for steps in every:
        for at_s, step in zip(steps.times_s, steps.moved, strict=True):
            if step == step:
                moved[at_s] = moved.get(at_s, 0.0) + max(step, 0.0)
    times = sorted(moved)
    return times, [moved[at_s] for at_s in times]
