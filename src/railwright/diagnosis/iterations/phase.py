"""Tracks the phase of a job within its iterations, from curves with a known period that may drift.

The curves are demodulated by their period (complex demodulation); the remaining phase is the drift.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from railwright.diagnosis.iterations.correlation import standardise
from railwright.diagnosis.iterations.samples import Grid

_WINDOW_PERIODS = 4
_WINDOW_CELLS = 48
"""The minimum window in cells, so that noise does not turn the phase."""
_HARMONICS = 4
_PLAIN_ENOUGH = 0.25
"""The first harmonic, which cannot be miscounted, is used if it has this part of the strongest one's power."""
_STILL_THERE = 0.4
"""Share of the upper quartile of amplitudes; below it the curves do not have this period."""


class Track(NamedTuple):
    """Iteration counts at places of a grid, linear in between."""

    places: list[float]
    """In cells, rising."""
    counts: list[float]
    """Iterations since an arbitrary start."""

    @property
    def iterations(self) -> float:
        """The number of iterations between the first and the last place."""
        return self.counts[-1] - self.counts[0]

    @property
    def cells_an_iteration(self) -> float:
        """The mean number of cells per iteration."""
        return (self.places[-1] - self.places[0]) / self.iterations

    def counts_at(self, places: Iterable[float]) -> list[float | None]:
        """Return the count at each of ascending places; None outside the track."""
        found: list[float | None] = []
        last, number = len(self.places) - 1, 1
        for place in places:
            while number < last and self.places[number] < place:
                number += 1
            before, after = self.places[number - 1], self.places[number]
            if not self.places[0] <= place <= self.places[-1] or after <= before:
                found.append(None)
                continue
            part = (place - before) / (after - before)
            found.append(self.counts[number - 1] + part * (self.counts[number] - self.counts[number - 1]))
        return found

    def places_of(self, counts: Iterable[float]) -> list[float]:
        """Return the places in cells at which ascending counts are reached."""
        turned = Track(self.counts, self.places)
        return [place for place in turned.counts_at(counts) if place is not None]


def track_phase(grid: Grid, cells_an_iteration: float) -> Track | None:
    """Track the longest stretch of the grid with the period; None if there is none."""
    period = cells_an_iteration
    window = round(max(_WINDOW_PERIODS, math.ceil(_WINDOW_CELLS / period)) * period)
    if window < 2 or grid.cells < window + 2:
        return None
    harmonic, signal = _select_harmonic(grid, period, window)
    step = max(1, round(period / 4))
    starts = list(range(0, grid.cells - window + 1, step))
    values = [signal[start + window] - signal[start] for start in starts]
    first, last = _longest_stretch([abs(value) for value in values], window // step)
    if last - first < 2:
        return None
    places = [start + window / 2 for start in starts[first:last]]
    turned = 0.0
    counts = [places[0] / period + cmath.phase(values[first]) / (2 * math.pi * harmonic)]
    for number in range(first + 1, last):
        turned = cmath.phase(values[number] / values[number - 1])
        moved = step / period + turned / (2 * math.pi * harmonic)
        if moved <= 0:  # noise turned the phase: continue with the period alone
            moved = step / period
        counts.append(counts[-1] + moved)
    return _extend_track(Track(places, counts), window / 2, first == 0, last == len(starts), grid.cells)


def _select_harmonic(grid: Grid, period: float, window: int) -> tuple[int, list[complex]]:
    """Return the tracked harmonic, and the running sum of the demodulated curves with both roles in phase."""
    found: list[tuple[float, int, list[complex]]] = []
    curves = [standardise(role) for role in grid.roles]
    for harmonic in range(1, _HARMONICS + 1):
        if harmonic > 1 and harmonic / period > 0.45:
            break
        turn = [cmath.exp(-2j * math.pi * harmonic * (cell + 0.5) / period) for cell in range(grid.cells)]
        sums = [[0j, *accumulate(a * b for a, b in zip(curve, turn, strict=True))] for curve in curves]
        joined = _rotate_to_step(sums, window) if len(sums) > 1 else sums[0]
        spans = range(0, grid.cells - window + 1, max(1, window // 8))
        found.append((sum(abs(joined[at + window] - joined[at]) ** 2 for at in spans), harmonic, joined))
    best = max(power for power, _, _ in found)
    power, harmonic, joined = found[0]
    if power < _PLAIN_ENOUGH * best:
        _, harmonic, joined = max(found, key=lambda one: one[0])
    return harmonic, joined


def _rotate_to_step(sums: Sequence[list[complex]], window: int) -> list[complex]:
    """Return the sum of both roles, with the second rotated to the mean phase of the first."""
    one, other = sums
    spans = range(0, len(one) - window, max(1, window // 8))
    between = sum((one[at + window] - one[at]) * (other[at + window] - other[at]).conjugate() for at in spans)
    turn = between / abs(between) if abs(between) > 0 else 1
    return [a + turn * b for a, b in zip(one, other, strict=True)]


def _longest_stretch(amplitudes: Sequence[float], patience: int) -> tuple[int, int]:
    """Return the longest range with amplitudes of at least `_STILL_THERE` of the upper quartile.

    Gaps of up to `patience` places are allowed, because noise in one window does not end a stretch.
    """
    ordered = sorted(amplitudes)
    threshold = _STILL_THERE * ordered[len(ordered) * 3 // 4]
    best, begin, last = (0, 0), -1, -1
    for number, amplitude in enumerate(amplitudes):
        if amplitude < threshold or amplitude <= 0:
            continue
        if begin < 0 or number - last > patience:
            begin = number
        last = number
        if last + 1 - begin > best[1] - best[0]:
            best = (begin, last + 1)
    return best


def _extend_track(track: Track, half: float, from_begin: bool, to_end: bool, cells: int) -> Track:
    """Extend the track by half a window at both ends at the adjacent pace."""
    places, counts = track.places, track.counts
    some = min(len(places) - 1, 8)
    before = (counts[some] - counts[0]) / (places[some] - places[0])
    after = (counts[-1] - counts[-1 - some]) / (places[-1] - places[-1 - some])
    first = 0.0 if from_begin else max(0.0, places[0] - half / 2)
    last = float(cells) if to_end else min(float(cells), places[-1] + half / 2)
    return Track(
        [first, *places, last],
        [counts[0] - before * (places[0] - first), *counts, counts[-1] + after * (last - places[-1])],
    )
