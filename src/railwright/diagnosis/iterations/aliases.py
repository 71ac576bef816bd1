"""Detects periods that are only aliases of a shorter one, from a job that is faster than its samples.

Samples at even times cannot distinguish the two. The sampler spreads its ticks within the interval, so that the
shorter period fits them and its alias does not (Shapiro and Silverman 1960, "Alias-free sampling of random noise").
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence

from railwright.diagnosis.iterations.correlation import standardise
from railwright.diagnosis.iterations.phase import Track
from railwright.diagnosis.iterations.samples import Curve, Grid, interval_s

SPREAD = 0.5
"""The range of a tick's random offset, as a part of the interval."""
_ORDERS = 4
_HARMONICS = 3
_ALIAS_FACTOR = 1.25
_STRETCH = 64
_MAX_SAMPLES = 4096
_MAX_SAMPLES_PER_PERIOD = 40
"""For longer periods the strong harmonics are far below the sampling rate; higher frequencies are edges."""


def is_alias(curves: Sequence[Curve], track: Track, part: Grid) -> bool:
    """Report whether a frequency above half the sampling rate fits clearly better than the period's harmonics."""
    step_s = interval_s(curves)
    period_s = track.cells_an_iteration * part.cell_s
    if period_s > _MAX_SAMPLES_PER_PERIOD * step_s:
        return False
    own, images = 0.0, 0.0
    for curve in curves:
        if len(curve.ends_s) < 2 * _STRETCH:
            continue
        begins = [curve.begin_s, *curve.ends_s[:-1]]
        steps = [end - begin for begin, end in zip(begins, curve.ends_s, strict=True)][:_MAX_SAMPLES]
        times = [end - step / 2 for end, step in zip(curve.ends_s, steps, strict=False)]
        values = standardise(curve.values[:_MAX_SAMPLES])
        for harmonic in range(1, _HARMONICS + 1):
            frequency = harmonic / period_s
            if frequency * step_s > 0.5:
                break
            own = max(own, _energy(times, steps, values, frequency))
            for order in range(1, _ORDERS + 1):
                for sign in (-1, 1):
                    images = max(images, _energy(times, steps, values, order / step_s + sign * frequency))
    return images > _ALIAS_FACTOR * own


def _energy(times: Sequence[float], steps: Sequence[float], values: Sequence[float], frequency: float) -> float:
    """Return the energy of the values at a frequency that is averaged over each interval, summed over stretches."""
    total = 0.0
    for first in range(0, len(times) - _STRETCH + 1, _STRETCH):
        sum_of, weight = 0j, 0.0
        for number in range(first, first + _STRETCH):
            turned = math.pi * frequency * steps[number]
            part = math.sin(turned) / turned
            sum_of += values[number] * part * cmath.exp(-2j * math.pi * frequency * times[number])
            weight += part * part
        total += abs(sum_of) ** 2 / weight if weight else 0.0
    return total
