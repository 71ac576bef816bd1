"""Whether a second job with another period moves the same counters."""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.iterations.candidates import LEAST_UPDATES, Claim, claimed
from railwright.diagnosis.iterations.correlation import Correlation
from railwright.diagnosis.iterations.phase import Track, tracked
from railwright.diagnosis.iterations.profile import bins_for, folded
from railwright.diagnosis.iterations.samples import Grid

_LEAST_LEFT = 0.15
"""Of the variance: less is what the first period's profile did not hold. Our choice."""
_LEAST_HEIGHT = 0.3
_LEAST_CELLS = 10
"""Of an iteration: the profile of fewer leaves its edges, which come again as well."""
_ALIKE = 0.04
_MOST_MULTIPLE = 12
_NEARLY = 0.8
"""A shorter period that explains this part of what the longer one does is the period."""


class Followed(NamedTuple):
    """A period that is followed through a grid."""

    track: Track
    second_s: float | None
    """The period of another job that moves the same curves."""


class _Left(NamedTuple):
    first: int
    """The first cell that is in the track."""
    curves: list[list[float]]
    """Without the first period."""
    part: float
    """Of the variance, in the curve that has most left."""


def followed(grid: Grid, claim: Claim) -> Followed | None:
    """The period of one job, also where a second one makes that both together come again only after a longer one."""
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
    """The first job's period again, without what the second one moves: its multiple may have been nearer."""
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
    """The curves less the profile of a period; None where it cannot be told."""
    places = [cell + 0.5 for cell in range(grid.cells)]
    counts = [(cell, count) for cell, count in enumerate(track.counts_at(places)) if count is not None]
    curves, parts = [], []
    for role in grid.roles:
        values = [role[cell] for cell, _ in counts]
        phases = [count for _, count in counts]
        bins = bins_for(track.cells_an_iteration)
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
    """The period in cells of what is left when the first one is taken away; None where nothing is."""
    if left.part < _LEAST_LEFT or track.cells_an_iteration < _LEAST_CELLS:
        return None
    claim = claimed(Correlation(left.curves))
    if claim is None or claim.peak.lag < LEAST_UPDATES or claim.peak.height < _LEAST_HEIGHT:
        return None
    if _is_of_the_first(claim.peak.lag / track.cells_an_iteration):
        return None
    return claim.peak.lag


def _is_of_the_first(ratio: float) -> bool:
    """Whether a period is a multiple or a part of the first one: then it is the same job's."""
    larger = ratio if ratio > 1 else 1 / ratio
    return larger < _MOST_MULTIPLE and abs(larger - round(larger)) < _ALIKE * larger
