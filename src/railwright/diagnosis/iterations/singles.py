"""Single iterations: the start and length of computing in each, from the area under the curve.

The area integrates samples, so edges are finer than the sampling interval, and noise averages out.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from railwright.diagnosis.iterations.phase import Track
from railwright.diagnosis.iterations.profile import Phases, count_bins, find_phases, fold
from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.samples import Curve
from railwright.diagnosis.iterations.shares import MIN_SAMPLES
from railwright.results.statistics import quantile

_MIN_ITERATIONS = 4
_REACH = 0.25
"""The search range for an edge around its mean place, as a part of the period."""
_MIN_EDGE_SAMPLES = 4
"""The fewest samples on either side of an edge that resolve the variation of its time. Our choice."""
_DEVIATION_OF_MEDIAN = 1.4826 / math.sqrt(2)
"""The factor from the median difference of neighbours to a normal deviation."""


class Singles(NamedTuple):
    """The times of each iteration in seconds."""

    begins_s: list[float]
    """The start of computing in each iteration."""
    computed_s: list[float]
    """The length of computing in each iteration except the last."""
    noise_s: float
    """The deviation of each start because of noise in the samples."""
    edge_samples: float
    """The samples on either side of an edge."""

    @property
    def variation(self) -> float | None:
        """The deviation of single iterations as a part of the period, without drift; None with too few samples.

        Within few samples, a level that differs between iterations looks like an edge that moves.
        """
        if self.edge_samples < _MIN_EDGE_SAMPLES:
            return None
        noise = 6 * self.noise_s**2  # of the second difference of begins
        return estimate_variation([after - before for before, after in pairwise(self.begins_s)], noise)


def estimate_variation(lasted_s: Sequence[float], noise: float = 0.0) -> float:
    """Return the deviation of single lengths, from differences of neighbours, as a part of their mean."""
    squares = [(after - before) ** 2 for before, after in pairwise(lasted_s)]
    if not squares:
        return 0.0
    mean_s = math.fsum(lasted_s) / len(lasted_s)
    return math.sqrt(max(0.0, math.fsum(squares) / len(squares) - noise) / 2) / mean_s


def find_singles(curve: Curve, found: Estimate) -> Singles | None:
    """Return the single iterations of a stretch from its compute curve; None if their starts are unknown."""
    begins = found.begins_s
    if len(begins) < _MIN_ITERATIONS or found.samples_a_period < MIN_SAMPLES or found.second_period_s is not None:
        return None
    phases = _find_curve_phases(curve, found)
    if phases is None:
        return None
    reach = _search_range(phases)
    if reach <= 0:
        return None
    area = _Area(curve, phases)
    half_s = reach * found.period_s
    rises = [begin + half_s - area.between(begin - half_s, begin + half_s) for begin in begins]
    computed = [area.between(begin - half_s, after - half_s) for begin, after in pairwise(begins)]
    return Singles(rises, computed, area.noise_s(2 * half_s), half_s / area.step_s)


def _find_curve_phases(curve: Curve, found: Estimate) -> Phases | None:
    middles, values = curve.whole_samples()
    track = Track(list(found.begins_s), [float(number) for number in range(len(found.begins_s))])
    every = zip(values, track.counts_at(middles), strict=True)
    kept = [(value, count) for value, count in every if count is not None]
    profile = fold([value for value, _ in kept], [count for _, count in kept], count_bins(found.samples_a_period))
    return find_phases(profile) if profile is not None else None


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
        differences = sorted(abs(after - before) for before, after in pairwise(self._parts))
        self._noise = _DEVIATION_OF_MEDIAN * quantile(differences, 0.5) if differences else 0.0
        self.step_s = quantile(sorted(lengths), 0.5)
        """The median interval of the samples."""

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

    def noise_s(self, over_s: float) -> float:
        """Return the deviation of an integral over a duration."""
        return self._noise * math.sqrt(self.step_s * over_s)
