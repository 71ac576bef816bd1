"""The effect of an addition to a load, with its confidence, from pairs of runs without and with the addition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

_NORMAL_975 = 1.959964
_STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles of Student's t, for 1 to 30 degrees of freedom (Abramowitz and Stegun, table 26.10)."""
MOST_PAIRS = 1_000_000


class Slowdown(NamedTuple):
    """A relative slowdown: 0.01 means 1 % more time."""

    mean: float
    low: float
    """The lower end of the 95 % interval."""
    high: float
    pairs_needed: int | None
    """The number of pairs that would show a slowdown below the threshold, if mean and deviation stay; None if the mean
    is not below the threshold, or if the number would be a million or more."""


def estimate_slowdown(pairs: Sequence[tuple[float, float]], threshold: float) -> Slowdown:
    """Compare seconds without and with the addition. Raises ValueError for fewer than two pairs, or times <= 0."""
    if len(pairs) < 2 or any(one <= 0 for pair in pairs for one in pair):
        raise ValueError("at least two pairs of positive times are needed")
    logs = [math.log(other / one) for one, other in pairs]
    mean, deviation = fmean(logs), stdev(logs)
    half = student_975(len(logs) - 1) * deviation / math.sqrt(len(logs))
    return Slowdown(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half),
                 _count_pairs_needed(math.log1p(threshold) - mean, deviation))  # fmt: skip


def student_975(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t. Beyond 30 degrees it corrects the normal quantile to first order."""
    if degrees <= len(_STUDENT_975):
        return _STUDENT_975[degrees - 1]
    return _NORMAL_975 + (_NORMAL_975**3 + _NORMAL_975) / (4 * degrees)


def _count_pairs_needed(room: float, deviation: float) -> int | None:
    if room <= 0:
        return None
    pairs = 2
    while pairs < MOST_PAIRS and student_975(pairs - 1) * deviation / math.sqrt(pairs) >= room:
        pairs += max(1, pairs // 50)
    return pairs if pairs < MOST_PAIRS else None
