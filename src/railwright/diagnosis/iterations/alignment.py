"""Aligns iterations by their whole shape.

The tracked phase comes from one harmonic; a short burst or gap has equal power in all harmonics, so noise easily turns
one. Therefore each stretch of a few iterations is shifted to the best fit with the mean of the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from railwright.diagnosis.iterations.correlation import standardise
from railwright.diagnosis.iterations.phase import Track
from railwright.diagnosis.iterations.profile import count_bins
from railwright.diagnosis.iterations.samples import Grid

_ITERATIONS = 4
"""The number of iterations in a stretch."""
_REACH = 0.1
"""The largest shift of a stretch, as a part of an iteration."""
_MIN_CELLS = 8
_PASSES = 2


def align_track(grid: Grid, track: Track) -> Track:
    """Return the track with shifted counts, or unchanged if an iteration has too few cells."""
    if track.cells_an_iteration < _MIN_CELLS:
        return track
    curves = [standardise(role) for role in grid.roles]
    for _ in range(_PASSES):
        track = _shift_counts(curves, track)
    return track


def _shift_counts(curves: Sequence[Sequence[float]], track: Track) -> Track:
    bins = count_bins(track.cells_an_iteration)
    counts = track.counts_at([cell + 0.5 for cell in range(len(curves[0]))])
    stretches = max(1, round(track.iterations / _ITERATIONS))
    length = track.iterations / stretches
    sums = [[[0.0] * bins for _ in curves] for _ in range(stretches)]
    for cell, count in enumerate(counts):
        if count is not None:
            stretch = min(stretches - 1, max(0, int((count - track.counts[0]) / length)))
            place = int((count % 1.0) * bins) % bins
            for curve, into in zip(curves, sums[stretch], strict=True):
                into[place] += curve[cell]
    means = [[sum(values) for values in zip(*(one[role] for one in sums), strict=True)] for role in range(len(curves))]
    shifts = [_find_shift(one, means, bins) for one in sums]
    middles = [track.counts[0] + (number + 0.5) * length for number in range(stretches)]
    moved = [count + _interpolate(middles, shifts, count) for count in track.counts]
    if any(after <= before for before, after in pairwise(moved)):
        return track
    return Track(track.places, moved)


def _find_shift(one: Sequence[Sequence[float]], means: Sequence[Sequence[float]], bins: int) -> float:
    """Return the shift of a stretch that fits the mean of the others best, in iterations."""
    others = [[mean - own for mean, own in zip(*pair, strict=True)] for pair in zip(means, one, strict=True)]
    reach = max(1, int(_REACH * bins))

    def fit(shift: int) -> float:
        return sum(
            value * mean[(place + shift) % bins]
            for own, mean in zip(one, others, strict=True)
            for place, value in enumerate(own)
        )

    fits = {shift: fit(shift) for shift in range(-reach - 1, reach + 2)}
    best = max(range(-reach, reach + 1), key=fits.__getitem__)
    before, here, after = (fits[best + step] for step in (-1, 0, 1))
    bend = before - 2 * here + after
    part = min(max(0.5 * (before - after) / bend, -0.5), 0.5) if bend < 0 else 0.0
    return (best + part) / bins


def _interpolate(middles: Sequence[float], shifts: Sequence[float], count: float) -> float:
    """Interpolate the shift at a count between the middles of stretches."""
    after = bisect_right(middles, count)
    if after == 0 or after == len(middles):
        return shifts[min(after, len(middles) - 1)]
    part = (count - middles[after - 1]) / (middles[after] - middles[after - 1])
    return shifts[after - 1] + part * (shifts[after] - shifts[after - 1])
