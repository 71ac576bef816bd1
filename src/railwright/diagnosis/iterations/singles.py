"""Single iterations: the start and length of computing in each.

A start is where the mean edge fits best. Its height may differ, since the power of a GPU differs between iterations.
A length is the area under the curve: it integrates samples, so it is finer than the sampling interval.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from railwright.diagnosis.iterations.phase import Track
from railwright.diagnosis.iterations.profile import Phases, Profile, count_bins, find_phases, fold
from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.samples import Curve
from railwright.diagnosis.iterations.shares import MIN_SAMPLES

_MIN_ITERATIONS = 4
_REACH = 0.25
"""The search range for an edge around its mean place, as a part of the period."""
_EDGE, _MAX_SHIFT, _SHIFT = 0.2, 0.1, 0.01
"""The samples that are compared on either side of an edge, how far it is moved, and in which steps, as parts of the
period."""
_MIN_EDGE_SAMPLES = 4
_USUAL, _MEAN_OF_USUAL = 0.9, 0.623
"""The share of squared differences that counts towards the variation, and the mean of the smallest such share of
squares of a normal distribution of deviation 1: P(chi2_3 < q) / 0.9, where P(chi2_1 < q) = 0.9."""


class Singles(NamedTuple):
    """The times of each iteration in seconds."""

    begins_s: list[float]
    """The start of computing in each iteration."""
    computed_s: list[float]
    """The length of computing in each iteration except the last."""

    @property
    def variation(self) -> float:
        """The deviation of single iterations as a part of the period, without drift.

        The tenth of the iterations that differs most is left out.
        """
        return estimate_variation([after - before for before, after in pairwise(self.begins_s)], usual=_USUAL)


def estimate_variation(lasted_s: Sequence[float], usual: float = 1.0) -> float:
    """Return the deviation of single lengths, from differences of neighbours, as a part of their mean.

    `usual` is the part of the differences that counts, the smallest ones: 1, or `_USUAL`.
    """
    squares = sorted((after - before) ** 2 for before, after in pairwise(lasted_s))
    if not squares:
        return 0.0
    counted = squares[: max(1, math.floor(usual * len(squares)))]
    mean = math.fsum(counted) / len(counted) / (_MEAN_OF_USUAL if usual < 1 else 1.0)
    return math.sqrt(mean / 2) * len(lasted_s) / math.fsum(lasted_s)


def find_singles(curve: Curve, found: Estimate) -> Singles | None:
    """Return the single iterations of a stretch from its compute curve; None if their starts are unknown."""
    begins = found.begins_s
    if len(begins) < _MIN_ITERATIONS or found.samples_a_period < MIN_SAMPLES or found.second_period_s is not None:
        return None
    samples = list(_count_samples(curve, begins))
    profile = fold([value for _, value in samples], [count for count, _ in samples], count_bins(found.samples_a_period))
    phases = find_phases(profile) if profile is not None else None
    if profile is None or phases is None or phases.low > curve.off_share * phases.high:
        return None
    reach = _search_range(phases)
    if reach <= 0:
        return None
    shifts = _find_shifts(samples, profile, len(begins))
    area, half_s = _Area(curve, phases), reach * found.period_s
    return Singles(
        begins_s=[begin + shift * found.period_s for begin, shift in zip(begins, shifts, strict=True)],
        computed_s=[area.between(begin - half_s, after - half_s) for begin, after in pairwise(begins)],
    )


def _count_samples(curve: Curve, begins: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the iteration count and the value of each sample between the first and the last begin."""
    middles, values = curve.whole_samples()
    track = Track(list(begins), [float(number) for number in range(len(begins))])
    for value, count in zip(values, track.counts_at(middles), strict=True):
        if count is not None:
            yield count, value


def _find_shifts(samples: Sequence[tuple[float, float]], profile: Profile, count: int) -> list[float]:
    """Return how much later each iteration begins, as a part of the period; 0 where samples are too few."""
    near: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for at, value in samples:
        number = math.floor(at + 0.5)
        if abs(at - number) <= _EDGE:
            near[number].append((at - number, value))
    mean = _interpolate(profile.values)
    return [_fit_shift(those, mean) if len(those) >= _MIN_EDGE_SAMPLES else 0.0 for those in near]


def _interpolate(values: Sequence[float]) -> Callable[[float], float]:
    """Return the profile as a function of the phase."""
    bins = len(values)

    def at(phase: float) -> float:
        place = phase % 1.0 * bins - 0.5
        below = math.floor(place)
        part = place - below
        return values[below % bins] * (1 - part) + values[(below + 1) % bins] * part

    return at


def _fit_shift(samples: Sequence[tuple[float, float]], mean: Callable[[float], float]) -> float:
    """Return the shift at which the mean edge, at any level and of any height above 0, fits the samples best."""
    steps = round(_MAX_SHIFT / _SHIFT)
    values = [value for _, value in samples]
    fits = [_explained([mean(at - step * _SHIFT) for at, _ in samples], values) for step in range(-steps, steps + 1)]
    best = max(range(len(fits)), key=fits.__getitem__)
    if not 0 < best < len(fits) - 1:
        return (best - steps) * _SHIFT
    before, here, after = fits[best - 1 : best + 2]
    bend = before - 2 * here + after
    return (best - steps + (0.5 * (before - after) / bend if bend < 0 else 0.0)) * _SHIFT


def _explained(expected: Sequence[float], values: Sequence[float]) -> float:
    """Return the sum of squares of the values that a line through the expected ones explains, negative if it falls."""
    count = len(values)
    middle, mean = math.fsum(expected) / count, math.fsum(values) / count
    spread = math.fsum((one - middle) ** 2 for one in expected)
    common = math.fsum((one - middle) * (value - mean) for one, value in zip(expected, values, strict=True))
    return common * abs(common) / spread if spread > 0 else -math.inf


def _search_range(phases: Phases) -> float:
    """Return half the pause before the start or half the run after it, at most `_REACH`; 0 without a pause."""
    begin, end = min(phases.on, key=lambda span: min(span[0] % 1.0, 1 - span[0] % 1.0))
    if end - begin >= 1:
        return 0.0
    pause = min((begin - other) % 1.0 or 1.0 for _, other in phases.on)
    return min(_REACH, (end - begin) / 2, pause / 2)


class _Area:
    """The integral of a curve scaled to 0 when off and 1 when on."""

    def __init__(self, curve: Curve, phases: Phases) -> None:
        self._ends = [curve.begin_s, *curve.ends_s]
        step = phases.high - phases.low
        self._parts = [(value - phases.low) / step for value in curve.values]
        lengths = [after - before for before, after in pairwise(self._ends)]
        self._sums = [0.0, *accumulate(part * length for part, length in zip(self._parts, lengths, strict=True))]

    def between(self, from_s: float, to_s: float) -> float:
        """Return the integral in seconds."""
        return self._until(to_s) - self._until(from_s)

    def _until(self, at_s: float) -> float:
        after = bisect_right(self._ends, at_s)
        if after == 0:
            return 0.0
        if after == len(self._ends):
            return self._sums[-1]
        return self._sums[after - 1] + self._parts[after - 1] * (at_s - self._ends[after - 1])
