"""Reading an unchanged counter is not a sample, and an idle counter has a rate of 0."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from railwright.diagnosis.iterations.analysis import estimate_iterations
from railwright.diagnosis.iterations.samples import interval_s
from railwright.diagnosis.iterations.updates import Steps, build_rate_curve, update_s


def counted(total_at, updates_s, ticks_s):
    """Return the increments of a counter between ticks, if it is updated only every `updates_s`."""
    seen = [total_at(math.floor(tick / updates_s) * updates_s) for tick in ticks_s]
    return Steps(ticks_s, [math.nan, *(after - before for before, after in pairwise(seen))])


def ticks(seconds, random):
    return [0.01 * (number + 0.5 * random.random()) for number in range(int(100 * seconds))]


def test_the_pace_is_that_of_the_updates_and_not_of_the_ticks():
    for updates_s in (0.01, 0.05, 0.5):
        steps = counted(lambda at: 1e9 * at, updates_s, ticks(20, Random(1)))
        assert update_s(steps) == pytest.approx(updates_s, rel=0.35), updates_s
        curve = build_rate_curve("traffic", [steps], 1e6)
        assert interval_s([curve]) == pytest.approx(updates_s, rel=0.35), updates_s
        assert sorted(curve.values)[len(curve.values) // 2] == pytest.approx(1e9, rel=0.35), updates_s


def test_no_period_below_three_real_updates_is_claimed():
    """A job with a period of 0.4 s, on counters updated twice a second and 50 times a second."""

    def total(at):
        return 1e9 * (at // 0.4 * 0.2 + min(at % 0.4, 0.2))

    slow = estimate_iterations([build_rate_curve("traffic", [counted(total, 0.5, ticks(30, Random(2)))], 1e6)])
    assert [one.period_s for one in slow.estimates if one.period_s < 1.5] == []
    (found,) = estimate_iterations(
        [build_rate_curve("traffic", [counted(total, 0.02, ticks(30, Random(2)))], 1e6)]
    ).estimates
    assert found.period_s == pytest.approx(0.4, rel=0.01)


def test_rest_is_a_rate_of_nothing_and_no_gap():
    steps = Steps([0.0, 1.0, 2.0, 3.0, 4.0, 9.0, 10.0, 11.0, 12.0], [math.nan, 5, 5, 5, 5, 0, 5, 5, 5])
    curve = build_rate_curve("traffic", [steps], 0)
    assert list(curve.ends_s) == [1, 2, 3, 4, 9, 10, 11, 12]
    assert list(curve.values) == [5, 5, 5, 5, 0, 5, 5, 5]


def test_what_was_not_read_at_a_tick_is_in_the_next():
    steps = Steps([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [math.nan, 5, math.nan, 10, 5, 5])
    assert list(build_rate_curve("compute", [steps], 0).values) == [5, 5, 5, 5]


def test_a_counter_that_never_moved_has_no_pace():
    assert update_s(Steps([0.0, 1.0, 2.0], [math.nan, 0, 0])) == 0
    assert list(build_rate_curve("compute", [], 0).ends_s) == []
