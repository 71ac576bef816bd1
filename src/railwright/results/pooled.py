"""All points of a benchmark together: a change that is alike at every point shows there, although each point hides it.

The unit stays the launch: each launch is the geometric mean of its points, so that what disturbs a whole launch counts
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Protocol

from railwright.groups import group_by_key
from railwright.limits.limit import Quantity

Launches = tuple[float, ...]


class Point(Protocol):
    """A point of two runs with the value of each launch."""

    @property
    def benchmark(self) -> str:
        """The benchmark."""

    @property
    def quantity(self) -> Quantity:
        """The quantity."""

    @property
    def launches(self) -> tuple[Launches, Launches]:
        """The launches of both runs."""


def pool(points: Iterable[Point]) -> list[tuple[str, Quantity, int, Launches, Launches]]:
    """Return benchmark, quantity, number of points, and the means of the launches of both runs, from two points on.

    Points with another number of launches than most of their benchmark are left out. A value is relative to the median
    of its point in the first run.
    """
    pooled = []
    for (benchmark, quantity), group in group_by_key(points, lambda point: (point.benchmark, point.quantity)):
        both = [point.launches for point in group if all(point.launches)]
        sizes = [tuple(map(len, launches)) for launches in both]
        usual = max(sizes, key=sizes.count, default=(0, 0))
        kept = [launches for launches, size in zip(both, sizes, strict=True) if size == usual]
        if len(kept) > 1:
            a, b = (_means([launches[side] for launches in kept], kept) for side in (0, 1))
            pooled.append((benchmark, quantity, len(kept), a, b))
    return pooled


def _means(side: Sequence[Launches], kept: Sequence[tuple[Launches, Launches]]) -> Launches:
    """Return the geometric mean over all points of each launch."""
    scales = [sorted(first)[len(first) // 2] for first, _ in kept]
    return tuple(
        math.exp(fmean(math.log(values[launch] / scale) for values, scale in zip(side, scales, strict=True)))
        for launch in range(len(side[0]))
    )
