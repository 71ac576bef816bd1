"""Detects a second job with another period on the same counters."""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.iterations.candidates import MIN_UPDATES, Claim, find_claim
from railwright.diagnosis.iterations.correlation import Correlation
from railwright.diagnosis.iterations.phase import Track, track_phase
from railwright.diagnosis.iterations.profile import count_bins, fold
from railwright.diagnosis.iterations.samples import Grid

_MIN_REMAINDER = 0.15
"""Our choice: a smaller share of the variance is the imperfection of the first period's profile."""
_MIN_HEIGHT = 0.3
_MIN_CELLS = 10
"""Cells per iteration: with fewer, the profile leaves periodic edges."""
_RATIO_TOLERANCE = 0.04
_MAX_MULTIPLE = 12
_EXPLAINED_SHARE = 0.8
"""A shorter period that explains this part of the longer one's variance is the period."""


class TrackedPeriod(NamedTuple):
    """A period tracked through a grid."""

    track: Track
    second_s: float | None
    """The period of another job that moves the same curves."""


class _Remainder(NamedTuple):
    first: int
    """The first cell of the track."""
    curves: list[list[float]]
    """The curves without the first period."""
    part: float
    """The remaining part of the variance in the curve with the most left."""


def follow_period(grid: Grid, claim: Claim) -> TrackedPeriod | None:
    """Track the period of one job, even if a second job makes their sum repeat only after a longer period."""
    track = track_phase(grid, claim.peak.lag)
    if track is None:
        return None
    left = _subtract_profile(grid, track)
    for rival in claim.shorter:
        other = track_phase(grid, rival.lag)
        rest = _subtract_profile(grid, other) if other is not None else None
        if other is None or rest is None or left is None:
            continue
        second = _find_second_period(rest, other)
        if second is not None or 1 - rest.part > _EXPLAINED_SHARE * (1 - left.part):
            return _separate_jobs(grid, other, second)
    return _separate_jobs(grid, track, _find_second_period(left, track) if left is not None else None)


def _separate_jobs(grid: Grid, track: Track, second: float | None) -> TrackedPeriod:
    """Track the first job's period again without the second job, which may have favoured a multiple."""
    if second is None:
        return TrackedPeriod(track, None)
    other = track_phase(grid, second)
    left = _subtract_profile(grid, other) if other is not None else None
    if left is None or other is None or left.first != 0 or len(left.curves[0]) != grid.cells:
        return TrackedPeriod(track, second * grid.cell_s)
    alone = Grid(grid.begin_s, grid.cell_s, *(left.curves if len(left.curves) == 2 else [left.curves[0], []]))
    claim = find_claim(Correlation(alone.roles))
    again = track_phase(alone, claim.peak.lag) if claim is not None else None
    return TrackedPeriod(again or track, second * grid.cell_s)


def _subtract_profile(grid: Grid, track: Track) -> _Remainder | None:
    """Subtract the profile of a period from the curves; None if the profile is unknown."""
    places = [cell + 0.5 for cell in range(grid.cells)]
    counts = [(cell, count) for cell, count in enumerate(track.counts_at(places)) if count is not None]
    curves, parts = [], []
    for role in grid.roles:
        values = [role[cell] for cell, _ in counts]
        phases = [count for _, count in counts]
        bins = count_bins(track.cells_an_iteration)
        profile = fold(values, phases, bins)
        if profile is None:
            return None
        mean = sum(values) / len(values)
        whole = sum((value - mean) ** 2 for value in values)
        rest = [value - profile.values[int((phase % 1.0) * bins) % bins]
                for value, phase in zip(values, phases, strict=True)]  # fmt: skip
        curves.append(rest)
        parts.append(sum(value * value for value in rest) / whole if whole else 0.0)
    return _Remainder(counts[0][0], curves, max(parts, default=0.0))


def _find_second_period(left: _Remainder, track: Track) -> float | None:
    """Return the period of the remaining curves in cells; None if there is none."""
    if left.part < _MIN_REMAINDER or track.cells_an_iteration < _MIN_CELLS:
        return None
    claim = find_claim(Correlation(left.curves))
    if claim is None or claim.peak.lag < MIN_UPDATES or claim.peak.height < _MIN_HEIGHT:
        return None
    if _belongs_to_first_job(claim.peak.lag / track.cells_an_iteration):
        return None
    return claim.peak.lag


def _belongs_to_first_job(ratio: float) -> bool:
    """Report whether a period is a multiple or fraction of the first one, and so of the same job."""
    larger = ratio if ratio > 1 else 1 / ratio
    return larger < _MAX_MULTIPLE and abs(larger - round(larger)) < _RATIO_TOLERANCE * larger
