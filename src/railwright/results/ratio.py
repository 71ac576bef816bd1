"""The ratio of two sets of launches, with an interval that assumes no distribution.

The unit is the launch, a set of fresh processes. Samples of one launch share memory, pages and cores, so even thousands
of them say little about the next launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median, variance

import msgspec

CONFIDENCE = 0.95
_RANK_EFFICIENCY = 3 / math.pi
"""The efficiency of ranks against means, for normal values (Hodges and Lehmann 1956)."""
_NORMAL_975 = NormalDist().inv_cdf(0.975)


class RatioInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interval of the ratio b/a and its confidence, which is below 0.95 for few launches."""

    low: float
    high: float
    confidence: float


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> RatioInterval:
    """Compute the interval of b/a from the launches of both. Raises ValueError unless all are finite and above 0.

    The interval is that of a shift between two samples by ranks (Hodges and Lehmann 1963; exact distribution of Mann
    and Whitney 1947). It is computed on logarithms, so that the shift is a ratio. Its confidence is 95 % or slightly
    more. With few launches it is the whole range of ratios, at the confidence that ranks allow: 67 % from 2 and 2
    launches, 90 % from 3 and 3.
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


def estimate_launches(a: Sequence[float], b: Sequence[float], resolution: float) -> int:
    """Estimate the launches on each side whose interval of b/a would exclude 1 at the observed shift.

    Few launches exaggerate a shift, so at most a shift of `resolution` is assumed, a logarithm above 0.

    Launches are assumed to vary as those of `a` and `b` do, on logarithms. Raises ValueError unless both have at least
    two launches.
    """
    sides = [[math.log(value) for value in side] for side in (a, b)]
    spread = math.sqrt(sum((len(side) - 1) * variance(side) for side in sides) / (len(a) + len(b) - 2))
    shift = min(abs(median(sides[1]) - median(sides[0])), resolution)
    needed = 2 * (_NORMAL_975 * spread / shift) ** 2 / _RANK_EFFICIENCY
    return max(math.ceil(needed), len(a) + 1, len(b) + 1)


def _rank_sum_counts(size_a: int, size_b: int) -> list[int]:
    """Return the null distribution of Mann and Whitney's U, not normalized.

    The n-th count is the number of orders of two samples in which n pairs have the value of b below that of a.

    The counts are the coefficients of the Gaussian binomial: the product of (1 - x^(b+i)) / (1 - x^i), exact in
    integers.
    """
    degree = size_a * size_b
    counts = [1] + [0] * degree
    for step in range(1, size_a + 1):
        for power in range(degree, size_b + step - 1, -1):
            counts[power] -= counts[power - size_b - step]
        for power in range(step, degree + 1):
            counts[power] += counts[power - step]
    return counts
