"""Algorithm and bus bandwidth of collectives, exactly as nccl-tests defines them (doc/PERFORMANCE.md, `*GetBw`).

algbw = bytes of the operation / time.
busbw = algbw x factor(operation, ranks): the rate that each rank's link carries in a ring, comparable with a link.
The size of an all_gather, reduce_scatter, all_to_all, gather or scatter is the total over all ranks.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

MAX_RANKS = 1 << 20

_RING_TWICE = frozenset({"all_reduce"})
_RING_ONCE = frozenset({"reduce_scatter", "all_gather", "all_to_all", "all_to_allv", "gather", "scatter"})
_UNSCALED = frozenset({"broadcast", "reduce", "send_recv", "hypercube"})

OPERATIONS = _RING_TWICE | _RING_ONCE | _UNSCALED
PER_RANK_COUNTED = frozenset(
    {"reduce_scatter", "all_gather", "all_to_all", "all_to_allv", "gather", "scatter", "hypercube"}
)
"""Operations whose size is the element count of one rank times the ranks times the element size in bytes."""


@lru_cache(maxsize=256)
def busbw_factor(operation: str, ranks: int) -> Fraction:
    """Return busbw / algbw for n ranks: 2(n-1)/n, (n-1)/n or 1.

    Raises KeyError for an unknown operation and ValueError for fewer than one rank.
    """
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}")
    if operation in _RING_TWICE:
        return Fraction(2 * (ranks - 1), ranks)
    if operation in _RING_ONCE:
        return Fraction(ranks - 1, ranks)
    if operation in _UNSCALED:
        return Fraction(1)
    raise KeyError(operation)


def counted_bytes(operation: str, size_bytes: int, ranks: int) -> Fraction:
    """Return the bytes that algbw counts: the whole size, except in hypercube, which omits a rank's own part."""
    if operation == "hypercube":
        return Fraction(size_bytes * (ranks - 1), ranks)
    return Fraction(size_bytes)


def bus_bandwidth(operation: str, ranks: int, algorithm_bytes_per_s: float) -> float:
    """Convert an algbw into a busbw, both in bytes/s."""
    return float(busbw_factor(operation, ranks)) * algorithm_bytes_per_s


def bound_ranks(operation: str, low: float, high: float) -> tuple[int, int] | None:
    """Return the minimum and maximum number of ranks whose factor is within [low, high].

    None if the factor does not depend on the ranks. A minimum above the maximum means that no number of ranks has a
    factor in that range. n = 1 / (1 - f), with f halved for all_reduce.
    """
    if operation not in _RING_TWICE | _RING_ONCE:
        return None
    scale = 2.0 if operation in _RING_TWICE else 1.0
    min_share, max_share = max(low / scale, 0.0), high / scale
    if max_share < 0 or min_share >= 1:
        return 2, 1
    minimum = max(1, math.ceil(1 / (1 - min_share) - 1e-9))
    maximum = MAX_RANKS if max_share >= 1 else math.floor(1 / (1 - max_share) + 1e-9)
    return minimum, min(maximum, MAX_RANKS)
