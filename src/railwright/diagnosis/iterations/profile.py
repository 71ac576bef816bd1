"""The mean iteration: curves folded by phase, and the phases at which they are on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from railwright.results.statistics import quantile

Spans = list[tuple[float, float]]
"""Parts of the iteration, as phases from 0 to 1; the last one may end beyond 1."""

_MAX_BINS = 128
_MIN_WEIGHT = 1.0
"""The minimum number of samples in a bin; a sample counts in two bins, weighted by distance."""
_MIN_DEVIATIONS = 4.0
"""The deviations by which a run of bins must differ from the middle between off and on."""
_MIN_STEP = 0.05
"""Share of the level when on; a smaller step is not a phase of the work."""
_FEW_BINS = 4
"""Runs of so few bins are mostly flanks, so their extreme is nearest to the level."""


class Profile(NamedTuple):
    """The mean of a curve at each phase."""

    values: list[float]
    deviation: float
    """The deviation of a value, from the spread of single samples."""


class Phases(NamedTuple):
    """The phases of an iteration at which a curve is on, and its levels."""

    on: Spans
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the iteration at which the curve is on."""
        return sum(end - begin for begin, end in self.on)


def count_bins(samples_an_iteration: float) -> int:
    """Return the number of bins at which each has a sample of nearly every iteration."""
    return max(3, min(_MAX_BINS, math.floor(samples_an_iteration + 1e-6)))


def fold(values: Sequence[float], counts: Sequence[float], bins: int) -> Profile | None:
    """Fold samples at iteration counts into a profile; None if a phase has no sample."""
    sums, squares, weights = [0.0] * bins, [0.0] * bins, [0.0] * bins
    for value, count in zip(values, counts, strict=True):
        place = (count % 1.0) * bins - 0.5
        below = math.floor(place)
        for number, weight in ((below, below + 1 - place), (below + 1, place - below)):
            sums[number % bins] += weight * value
            squares[number % bins] += weight * value * value
            weights[number % bins] += weight
    if not values or min(weights) < _MIN_WEIGHT:
        return None
    means = [total / weight for total, weight in zip(sums, weights, strict=True)]
    parts = [
        max(0.0, square / weight - mean * mean) / weight
        for square, weight, mean in zip(squares, weights, means, strict=True)
    ]
    return Profile(means, math.sqrt(quantile(sorted(parts), 0.5)))


def find_phases(profile: Profile) -> Phases | None:
    """Return the phases at which the curve is on; None if it has no two distinct levels."""
    values = profile.values
    low, high = _find_levels(values)
    step = high - low
    if step <= _MIN_STEP * abs(high) or step < _MIN_DEVIATIONS * profile.deviation:
        return None
    runs = _find_runs([(value - low) / step - 0.5 for value in values], profile.deviation / step)
    return Phases(_locate_edges([(value - low) / step for value in values], runs), low, high) if runs else None


def _find_levels(values: Sequence[float]) -> tuple[float, float]:
    """Return the levels off and on: the medians of the values below and above the middle."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    for _ in range(8):
        middle = (low + high) / 2
        below = [value for value in ordered if value <= middle]
        above = [value for value in ordered if value > middle]
        if not below or not above:
            break
        low = quantile(below, 0.5 if len(below) > _FEW_BINS else 0.0)
        high = quantile(above, 0.5 if len(above) > _FEW_BINS else 1.0)
    return low, high


def _find_runs(over: Sequence[float], deviation: float) -> list[tuple[int, int]]:
    """Return (first bin, length) of each run at which the profile is on, around the circle, without chance runs."""
    bins = len(over)
    signs = [value > 0 for value in over]
    while len(set(signs)) == 2:
        runs = _split_runs(signs)
        weakest = min(runs, key=lambda run: _strength(over, run))
        if _strength(over, weakest) >= _MIN_DEVIATIONS * deviation:
            return [(first, length) for first, length in runs if signs[first]]
        for number in range(weakest[0], weakest[0] + weakest[1]):
            signs[number % bins] = not signs[number % bins]
    return []


def _split_runs(signs: Sequence[bool]) -> list[tuple[int, int]]:
    bins = len(signs)
    begins = [number for number in range(bins) if signs[number] != signs[number - 1]]
    return [
        (begin, (after - begin) % bins or bins) for begin, after in zip(begins, begins[1:] + begins[:1], strict=True)
    ]


def _strength(over: Sequence[float], run: tuple[int, int]) -> float:
    """Return the distance of a run's mean from the middle level, times the square root of its length."""
    first, length = run
    return abs(sum(over[number % len(over)] for number in range(first, first + length))) / math.sqrt(length)


def _locate_edges(parts: Sequence[float], runs: Sequence[tuple[int, int]]) -> Spans:
    """Return the start and end of each run from the area under its flanks, independent of the bins' places."""
    bins = len(parts)
    found = []
    for number, (first, length) in enumerate(runs):
        before = runs[number - 1]
        gap_before = (first - before[0] - before[1]) % bins
        after = runs[(number + 1) % len(runs)]
        gap_after = (after[0] - first - length) % bins
        half = length / 2
        rise = _area(parts, first, min(3.0, gap_before / 2), min(3.0, half))
        fall = _area([*reversed(parts)], bins - first - length, min(3.0, gap_after / 2), min(3.0, half))
        found.append(((first - rise) / bins, (first + length + fall) / bins))
    return found


def _area(parts: Sequence[float], edge: int, before: float, after: float) -> float:
    """Return the distance before `edge`, in bins, of a step with the same area between `before` and `after`."""
    bins = len(parts)
    reach_before, reach_after = math.floor(before), max(1, math.floor(after))
    outside = sum(parts[(edge - 1 - number) % bins] for number in range(reach_before))
    inside = sum(parts[(edge + number) % bins] for number in range(reach_after))
    return min(max(outside + inside - reach_after, -after), max(before, 0.0))
