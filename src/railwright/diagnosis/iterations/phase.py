"""Where in its iteration a job is at every time, from curves with a known period that may drift.

The curves are turned back by their period (complex demodulation): what is left of their phase is the drift.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from railwright.diagnosis.iterations.correlation import standardised
from railwright.diagnosis.iterations.samples import Grid

_WINDOW_PERIODS = 4
_WINDOW_CELLS = 48
"""A window is longer where so few periods have fewer samples: noise would turn it."""
_HARMONICS = 4
_PLAIN_ENOUGH = 0.25
"""The first harmonic is taken where it has this part of the strongest one's power: it cannot be counted wrongly."""
_STILL_THERE = 0.4
"""Of the median amplitude: below, the curves do not have this period here."""


class Track(NamedTuple):
    """Iterations counted at places of a grid, between which they go on evenly."""

    places: list[float]
    """In cells, rising."""
    counts: list[float]
    """Iterations since some begin."""

    @property
    def iterations(self) -> float:
        """How many there are between the first place and the last."""
        return self.counts[-1] - self.counts[0]

    @property
    def cells_an_iteration(self) -> float:
        """On the mean."""
        return (self.places[-1] - self.places[0]) / self.iterations

    def counts_at(self, places: Iterable[float]) -> list[float | None]:
        """The count at each of rising places; None outside of the track."""
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
        """The places at which rising counts within the track are reached, in cells."""
        turned = Track(self.counts, self.places)
        return [place for place in turned.counts_at(counts) if place is not None]


def tracked(grid: Grid, cells_an_iteration: float) -> Track | None:
    """The longest stretch of the grid in which the period goes on; None where there is no such."""
    period = cells_an_iteration
    window = round(max(_WINDOW_PERIODS, math.ceil(_WINDOW_CELLS / period)) * period)
    if window < 2 or grid.cells < window + 2:
        return None
    harmonic, signal = _strongest(grid, period, window)
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
        if moved <= 0:  # noise turned it: the period alone says how it went on
            moved = step / period
        counts.append(counts[-1] + moved)
    return _to_the_ends(Track(places, counts), window / 2, first == 0, last == len(starts), grid.cells)


def _strongest(grid: Grid, period: float, window: int) -> tuple[int, list[complex]]:
    """The harmonic that is followed, and the running sum of the curves turned back by it, both roles in step."""
    found: list[tuple[float, int, list[complex]]] = []
    curves = [standardised(role) for role in grid.roles]
    for harmonic in range(1, _HARMONICS + 1):
        if harmonic > 1 and harmonic / period > 0.45:
            break
        turn = [cmath.exp(-2j * math.pi * harmonic * (cell + 0.5) / period) for cell in range(grid.cells)]
        sums = [[0j, *accumulate(a * b for a, b in zip(curve, turn, strict=True))] for curve in curves]
        joined = _in_step(sums, window) if len(sums) > 1 else sums[0]
        spans = range(0, grid.cells - window + 1, max(1, window // 8))
        found.append((sum(abs(joined[at + window] - joined[at]) ** 2 for at in spans), harmonic, joined))
    best = max(power for power, _, _ in found)
    power, harmonic, joined = found[0]
    if power < _PLAIN_ENOUGH * best:
        _, harmonic, joined = max(found, key=lambda one: one[0])
    return harmonic, joined


def _in_step(sums: Sequence[list[complex]], window: int) -> list[complex]:
    """The sum of both roles, the second turned so that on the mean it has the phase of the first."""
    one, other = sums
    spans = range(0, len(one) - window, max(1, window // 8))
    between = sum((one[at + window] - one[at]) * (other[at + window] - other[at]).conjugate() for at in spans)
    turn = between / abs(between) if abs(between) > 0 else 1
    return [a + turn * b for a, b in zip(one, other, strict=True)]


def _longest_stretch(amplitudes: Sequence[float], patience: int) -> tuple[int, int]:
    """From where to before where the curves keep an amplitude like that of most of them.

    They may lose it for up to `patience` places: noise in one window is no end.
    """
    ordered = sorted(amplitudes)
    least = _STILL_THERE * ordered[len(ordered) * 3 // 4]
    best, begin, last = (0, 0), -1, -1
    for number, amplitude in enumerate(amplitudes):
        if amplitude < least or amplitude <= 0:
            continue
        if begin < 0 or number - last > patience:
            begin = number
        last = number
        if last + 1 - begin > best[1] - best[0]:
            best = (begin, last + 1)
    return best


def _to_the_ends(track: Track, half: float, from_begin: bool, to_end: bool, cells: int) -> Track:
    """Half a window at either end is followed with the pace beside it."""
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
