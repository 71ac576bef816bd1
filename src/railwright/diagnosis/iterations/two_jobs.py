"""Detects a second job with another period on the same counters."""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.iterations.candidates import LEAST_UPDATES, Claim, claimed
from railwright.diagnosis.iterations.correlation import Correlation
from railwright.diagnosis.iterations.phase import Track, tracked
from railwright.diagnosis.iterations.profile import count_bins, folded
from railwright.diagnosis.iterations.samples import Grid

_LEAST_LEFT = 0.15
"""Our choice: a smaller share of the variance is the imperfection of the first period's profile."""
_LEAST_HEIGHT = 0.3
_LEAST_CELLS = 10
"""Cells per iteration: with fewer, the profile leaves periodic edges."""
_ALIKE = 0.04
_MOST_MULTIPLE = 12
_NEARLY = 0.8
"""A shorter period that explains this part of the longer one's variance is the period."""


class Followed(NamedTuple):
    """A period tracked through a grid."""

    track: Track
    second_s: float | None
    """The period of another job that moves the same curves."""


class _Left(NamedTuple):
    first: int
    """The first cell of the track."""
    curves: list[list[float]]
    """The curves without the first period."""
    part: float
    """The remaining part of the variance in the curve with the most left."""


def followed(grid: Grid, claim: Claim) -> Followed | None:
    """Track the period of one job, even if a second job makes their sum repeat only after a longer period."""
    track = tracked(grid, claim.peak.lag)
    if track is None:
        return None
    left = _without(grid, track)
    for rival in claim.shorter:
        other = tracked(grid, rival.lag)
        rest = _without(grid, other) if other is not None else None
        if other is None or rest is None or left is None:
            continue
        second = _second(rest, other)
        if second is not None or 1 - rest.part > _NEARLY * (1 - left.part):
            return _apart(grid, other, second)
    return _apart(grid, track, _second(left, track) if left is not None else None)


def _apart(grid: Grid, track: Track, second: float | None) -> Followed:
    """Track the first job's period again without the second job, which may have favoured a multiple."""
    if second is None:
        return Followed(track, None)
    other = tracked(grid, second)
    left = _without(grid, other) if other is not None else None
    if left is None or other is None or left.first != 0 or len(left.curves[0]) != grid.cells:
        return Followed(track, second * grid.cell_s)
    alone = Grid(grid.begin_s, grid.cell_s, *(left.curves if len(left.curves) == 2 else [left.curves[0], []]))
    claim = claimed(Correlation(alone.roles))
    again = tracked(alone, claim.peak.lag) if claim is not None else None
    return Followed(again or track, second * grid.cell_s)


def _without(grid: Grid, track: Track) -> _Left | None:
    """Subtract the profile of a period from the curves; None if the profile is unknown."""
    places = [cell + 0.5 for cell in range(grid.cells)]
    counts = [(cell, count) for cell, count in enumerate(track.counts_at(places)) if count is not None]
    curves, parts = [], []
    for role in grid.roles:
        values = [role[cell] for cell, _ in counts]
        phases = [count for _, count in counts]
        bins = count_bins(track.cells_an_iteration)
        profile = folded(values, phases, bins)
        if profile is None:
            return None
        mean = sum(values) / len(values)
        whole = sum((value - mean) ** 2 for value in values)
        rest = [value - profile.values[int((phase % 1.0) * bins) % bins]
                for value, phase in zip(values, phases, strict=True)]  # fmt: skip
        curves.append(rest)
        parts.append(sum(value * value for value in rest) / whole if whole else 0.0)
    return _Left(counts[0][0], curves, max(parts, default=0.0))


def _second(left: _Left, track: Track) -> float | None:
    """Return the period of the remaining curves in cells; None if there is none."""
    if left.part < _LEAST_LEFT or track.cells_an_iteration < _LEAST_CELLS:
        return None
    claim = claimed(Correlation(left.curves))
    if claim is None or claim.peak.lag < LEAST_UPDATES or claim.peak.height < _LEAST_HEIGHT:
        return None
    if _is_of_the_first(claim.peak.lag / track.cells_an_iteration):
        return None
    return claim.peak.lag


def _is_of_the_first(ratio: float) -> bool:
    """Report whether a period is a multiple or fraction of the first one, and so of the same job."""
    larger = ratio if ratio > 1 else 1 / ratio
    return larger < _MOST_MULTIPLE and abs(larger - round(larger)) < _ALIKE * larger
