"""Sampled curves, and their resampling on an even grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from railwright.results.statistics import quantile

Role = Literal["compute", "traffic"]
MAX_CELLS = 1 << 15
"""The largest number of cells of a grid; longer recordings get coarser cells."""

_MISSING_FACTOR = 1.5
"""An interval longer than this multiple of the median includes a missing sample."""


class Curve(NamedTuple):
    """A quantity over time: each value is the mean since the previous sample.

    Counters behave so: after a missing sample the next one holds the mean over both intervals.
    """

    role: Role
    begin_s: float
    """The start of the first interval."""
    ends_s: Sequence[float]
    """Rising."""
    values: Sequence[float]
    quiet_below: float = 0.0
    """A constant curve is on if it is above this value, else off."""
    off_share: float = 1.0
    """A lower level counts as off only up to this fraction of the level when on."""

    def whole_samples(self) -> tuple[list[float], list[float]]:
        """Return the middles of the intervals and their values, without intervals that include a missing sample."""
        begins = [self.begin_s, *self.ends_s[:-1]]
        steps = sorted(end - begin for begin, end in zip(begins, self.ends_s, strict=True))
        longest = _MISSING_FACTOR * quantile(steps, 0.5) if steps else 0.0
        kept = [
            ((begin + end) / 2, value)
            for begin, end, value in zip(begins, self.ends_s, self.values, strict=True)
            if end - begin <= longest
        ]
        return [at_s for at_s, _ in kept], [value for _, value in kept]


class Grid(NamedTuple):
    """Curves summed by role, in cells of equal length."""

    begin_s: float
    cell_s: float
    compute: list[float]
    """Empty if no curve measures computing."""
    traffic: list[float]

    @property
    def roles(self) -> list[list[float]]:
        """The roles that have curves."""
        return [role for role in (self.compute, self.traffic) if role]

    @property
    def cells(self) -> int:
        """The number of cells."""
        return len(self.compute or self.traffic)

    def part(self, first: int, last: int) -> Grid:
        """Return the cells from `first` up to but excluding `last`."""
        begin_s = self.begin_s + first * self.cell_s
        return Grid(begin_s, self.cell_s, self.compute[first:last], self.traffic[first:last])


def interval_s(curves: Sequence[Curve]) -> float:
    """Return the update interval of the slowest curve: the longest of the median intervals, 0 without samples."""
    found = []
    for curve in curves:
        times = [curve.begin_s, *curve.ends_s]
        steps = sorted(after - before for before, after in pairwise(times))
        if steps:
            found.append(quantile(steps, 0.5))
    return max(found, default=0.0)


def resample(curves: Sequence[Curve], cell_s: float) -> Grid:
    """Resample the curves over their common time into at most MAX_CELLS means."""
    whole = [curve for curve in curves if curve.ends_s]
    begin_s = max((curve.begin_s for curve in whole), default=0.0)
    end_s = min((curve.ends_s[-1] for curve in whole), default=0.0)
    if cell_s <= 0 or end_s <= begin_s:
        return Grid(begin_s, cell_s, [], [])
    cell_s *= max(1, -(-int((end_s - begin_s) / cell_s) // MAX_CELLS))
    cells = int((end_s - begin_s) / cell_s + 1e-6)
    sums: dict[Role, list[float]] = {"compute": [], "traffic": []}
    for curve in whole:
        means = _cell_means(curve, begin_s, cell_s, cells)
        before = sums[curve.role]
        sums[curve.role] = [one + other for one, other in zip(before, means, strict=True)] if before else means
    return Grid(begin_s, cell_s, sums["compute"], sums["traffic"])


def _cell_means(curve: Curve, begin_s: float, cell_s: float, cells: int) -> list[float]:
    """Return the mean of each cell by integrating the steps, so that nothing is lost or counted twice."""
    found: list[float] = []
    last, at, total = len(curve.ends_s) - 1, 0, 0.0
    here_s = begin_s
    for number in range(cells):
        end_s = begin_s + (number + 1) * cell_s
        total = 0.0
        while at < last and curve.ends_s[at] <= here_s:
            at += 1
        while at < last and curve.ends_s[at] < end_s:
            total += (curve.ends_s[at] - here_s) * curve.values[at]
            here_s = curve.ends_s[at]
            at += 1
        total += (end_s - here_s) * curve.values[at]
        here_s = end_s
        found.append(total / cell_s)
    return found
