"""The ratio of two sets of launches, with an interval that assumes no distribution.

A launch (fresh processes) is the unit: the samples inside one launch share their memory, pages and cores, so that
thousands of them say little about the next launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

CONFIDENCE = 0.95


class RatioInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interval of the ratio b/a and its confidence, which is below 0.95 for few launches."""

    low: float
    high: float
    confidence: float


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> RatioInterval:
    """The interval of b/a from the launches of both, all of them finite and above 0. Raises ValueError otherwise.

    The interval of a shift between two samples by ranks (Hodges and Lehmann 1963; exact distribution of Mann and
    Whitney 1947), on logarithms, so that the shift is a ratio. It is 95 % sure or slightly more; with few
    launches it is the whole range of ratios, as sure as ranks allow: 67 % from 2 and 2 launches, 90 % from 3 and 3.
    """
    if not a or not b or not all(value > 0 and math.isfinite(value) for value in (*a, *b)):
        raise ValueError("the ratio of two sets needs values above 0 on both sides")
    ratios = sorted(math.log(after / before) for before in a for after in b)
    counts = _rank_sum_counts(len(a), len(b))
    total = sum(counts)
    outside, below = 0, 0
    for rank in range(len(ratios) // 2):
        below += counts[rank]
        if rank and 2 * below > (1 - CONFIDENCE) * total:
            break
        outside = rank
    tail = sum(counts[: outside + 1])
    return RatioInterval(
        low=math.exp(ratios[outside]),
        high=math.exp(ratios[len(ratios) - 1 - outside]),
        confidence=max(0.0, 1 - 2 * tail / total),
    )


def _rank_sum_counts(size_a: int, size_b: int) -> list[int]:
    """How many orders of two samples have 0, 1, 2 ... pairs in which a value of b is below one of a (U's distribution).

    The coefficients of the Gaussian binomial: the product of (1 - x^(b+i)) / (1 - x^i), exact in integers.
    """
    degree = size_a * size_b
    counts = [1] + [0] * degree
    for step in range(1, size_a + 1):
        for power in range(degree, size_b + step - 1, -1):
            counts[power] -= counts[power - size_b - step]
        for power in range(step, degree + 1):
            counts[power] += counts[power - step]
    return counts
