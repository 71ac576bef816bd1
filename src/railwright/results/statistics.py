"""Order statistics: median, quantiles, and the interval of a median, with no distribution assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from railwright.results.records import Summary

_ROUNDING = 1e-9
"""The relative tolerance. Rounding in the interpolation between two samples is far smaller."""
_RISING = (("minimum", "median_low", "median"), ("median", "median_high", "maximum"), ("median", "p99", "maximum"))
_NORMAL_975 = 1.959964  # the 97.5 % quantile of the normal distribution


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return a quantile of sorted values, linear between neighbors (type 7 of Hyndman and Fan 1996)."""
    position = (len(ordered) - 1) * fraction
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median by ranks (binomial, normal approximation; whole range below 6 values)."""
    count = len(ordered)
    if count < 6:
        return ordered[0], ordered[-1]
    half_width = _NORMAL_975 * math.sqrt(count) / 2
    low = max(0, math.floor((count - 1) / 2 - half_width))
    high = min(count - 1, math.ceil((count - 1) / 2 + half_width))
    return ordered[low], ordered[high]


def round_samples(samples: Sequence[float]) -> tuple[float, ...]:
    """Round samples to six significant digits: finer than a 1 ns clock below 1 ms, and half the size on disk."""
    return tuple(float(f"{sample:.6g}") for sample in samples)


def explain_invalid_summary(summary: Summary) -> str:
    """Explain why these numbers cannot be order statistics of any samples. Returns an empty string if they can.

    They must satisfy minimum <= median_low <= median <= median_high <= maximum and median <= p99 <= maximum, and be
    finite.
    """
    if summary.count < 1:
        return f"its summary counts {summary.count} samples"
    for names in _RISING:
        chain = [(name, getattr(summary, name)) for name in names]
        for name, value in chain:
            if not math.isfinite(value):
                return f"the {name} of its summary is {value}"
        for (lower, low), (upper, high) in pairwise(chain):
            if low - high > _ROUNDING * max(abs(low), abs(high)):
                return f"the {lower} of its summary, {low:g}, is above the {upper}, {high:g}"
    return ""


def summarise(samples: Sequence[float]) -> Summary:
    """Summarize samples. Raises ValueError if there are none, or if one is not a finite number."""
    if not samples or not all(math.isfinite(sample) for sample in samples):
        raise ValueError("a summary needs at least one sample, all of them finite")
    ordered = sorted(samples)
    low, high = median_interval(ordered)
    return Summary(
        count=len(ordered),
        minimum=ordered[0],
        median=quantile(ordered, 0.5),
        p99=quantile(ordered, 0.99),
        maximum=ordered[-1],
        median_low=low,
        median_high=high,
    )
