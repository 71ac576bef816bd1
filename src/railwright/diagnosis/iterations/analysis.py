"""Derives iterations from curves: the period, the stretches that have it, and the shares of the job's work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from msgspec.structs import replace

from railwright.diagnosis.iterations.aliases import is_alias
from railwright.diagnosis.iterations.alignment import align_track
from railwright.diagnosis.iterations.candidates import MIN_ITERATIONS, MIN_UPDATES, Claim, find_claim
from railwright.diagnosis.iterations.correlation import Correlation
from railwright.diagnosis.iterations.phase import Track
from railwright.diagnosis.iterations.records import Estimate, Iterations
from railwright.diagnosis.iterations.samples import Curve, Grid, Role, interval_s, resample
from railwright.diagnosis.iterations.shares import Placed, Shares, compute_shares, computing_alone, half_widths
from railwright.diagnosis.iterations.singles import find_singles
from railwright.diagnosis.iterations.two_jobs import TrackedPeriod, follow_period
from railwright.results.statistics import quantile

_PERIODS_DIFFER = 0.1
"""Our choice: halves whose periods differ by more have two periods, and not one that drifts."""
_MAX_DRIFT = 1.5
_MIN_ITERATIONS_OF_PART = 2 * MIN_ITERATIONS
"""Our choice: if the whole has no period, or another one, a few iterations of a part may be chance."""
_MAX_DEPTH = 3
_SWING = 0.01
"""The least swing of a stretch's values, as a fraction of the whole recording's. Our choice: the power of an idle GPU
moves by 0.3 W of the 600 W that it takes under load, and may seem to repeat."""


class _Stretch(NamedTuple):
    """A stretch of time with one period."""

    part: Grid
    """The grid of the track's places."""
    followed: TrackedPeriod

    @property
    def lasts_s(self) -> float:
        """The duration in seconds."""
        track = self.followed.track
        return (track.places[-1] - track.places[0]) * self.part.cell_s


class _Claims:
    """The most likely period of each part of one grid, in cells, reliable or not. Most parts are asked for twice."""

    def __init__(self) -> None:
        self._found: dict[tuple[float, int], Claim | None] = {}

    def find(self, part: Grid) -> Claim | None:
        """Return the most likely period of a part of the grid."""
        place = part.begin_s, part.cells
        if place not in self._found:
            self._found[place] = find_claim(Correlation(part.roles))
        return self._found[place]


def estimate_iterations(curves: Sequence[Curve]) -> Iterations:
    """Estimate the iterations from curves."""
    step_s = interval_s(curves)
    grid = resample(curves, step_s)
    if grid.cells < MIN_UPDATES * MIN_ITERATIONS:
        minimum = MIN_UPDATES * MIN_ITERATIONS
        return Iterations(why_none=f"{grid.cells} samples: a period needs at least {minimum}")
    claims = _Claims()
    found = sorted(_find_stretches(claims, grid, 0), key=lambda one: one.lasts_s, reverse=True)
    least = [_SWING * _swing(role) for role in grid.roles]
    sound = [one for one in found if _swings(one, least) and not is_alias(curves, one.followed.track, one.part)]
    if not sound:
        return Iterations(why_none=_too_short(step_s) if found else _why_none(claims, grid, step_s))
    return Iterations(estimates=tuple(_estimate(curves, one) for one in sound))


def _swings(stretch: _Stretch, least: Sequence[float]) -> bool:
    """Report whether the values of any role swing enough within the stretch."""
    places = stretch.followed.track.places
    here = stretch.part.part(math.floor(places[0]), math.ceil(places[-1]))
    return any(_swing(part) >= enough for part, enough in zip(here.roles, least, strict=True))


def _swing(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return quantile(ordered, 0.95) - quantile(ordered, 0.05)


def _too_short(step_s: float) -> str:
    shortest = f"{MIN_UPDATES} updates of the slowest source, {MIN_UPDATES * step_s:.3g} s"
    return f"if there is a period, it is below {shortest}"


def _why_none(claims: _Claims, grid: Grid, step_s: float) -> str:
    if not any(max(role) > min(role) for role in grid.roles):
        return "no curve changes"
    claim = claims.find(grid)
    if claim is not None and claim.peak.lag < MIN_UPDATES:
        return _too_short(step_s)
    lasts_s = grid.cells * grid.cell_s
    return f"no period between {MIN_UPDATES * step_s:.3g} and {lasts_s / MIN_ITERATIONS:.3g} s repeats often enough"


def _find_stretches(claims: _Claims, grid: Grid, depth: int) -> list[_Stretch]:
    """Find the stretches of a grid with a period."""
    if grid.cells < MIN_UPDATES * MIN_ITERATIONS or depth > _MAX_DEPTH:
        return []
    half = grid.cells // 2
    parts = [grid.part(0, half), grid.part(half, grid.cells)]
    if _has_two_periods(claims, parts):
        return [one for part in parts for one in _find_stretches(claims, part, depth + 1)]
    one = _find_stretch(claims, grid)
    if one is None:  # an unusual start may hide the period
        return _merge_stretches(
            claims, grid, [found for part in parts for found in _find_stretches(claims, part, depth + 1)]
        )
    found = one.followed
    begin, end = math.floor(found.track.places[0]), math.ceil(found.track.places[-1])
    rest = [grid.part(0, begin), grid.part(end, grid.cells)]
    # Imports, polls and the teardown before and after a job may also repeat a few times by chance.
    others = (found for part in rest for found in _find_stretches(claims, part, depth + 1))
    return [one, *(found for found in others if found.followed.track.iterations >= _MIN_ITERATIONS_OF_PART)]


def _find_stretch(claims: _Claims, grid: Grid) -> _Stretch | None:
    """Return the stretch of a grid's most likely period; None if there is none."""
    claim = claims.find(grid)
    if claim is None or claim.peak.lag < MIN_UPDATES:
        return None
    found = follow_period(grid, claim)
    if found is None or found.track.iterations < MIN_ITERATIONS - 0.5:
        return None
    return _Stretch(grid, found._replace(track=align_track(grid, found.track)))


def _merge_stretches(claims: _Claims, grid: Grid, found: list[_Stretch]) -> list[_Stretch]:
    """Merge the stretches of parts if one period spans them."""
    found = [one for one in found if one.followed.track.iterations >= _MIN_ITERATIONS_OF_PART]
    if len(found) < 2:
        return found
    lasts = [one.followed.track.cells_an_iteration for one in found]
    begin = min(_cell(grid, one.part, one.followed.track.places[0]) for one in found)
    end = max(_cell(grid, one.part, one.followed.track.places[-1]) for one in found)
    whole = (
        _find_stretch(claims, grid.part(max(0, begin), min(grid.cells, end + 1)))
        if not _differ(min(lasts), max(lasts))
        else None
    )
    if whole is None or whole.lasts_s < sum(one.lasts_s for one in found):
        return found
    return [whole]


def _cell(grid: Grid, part: Grid, place: float) -> int:
    """Convert a place in a part of a grid to a cell of the grid."""
    return round((part.begin_s - grid.begin_s) / grid.cell_s + place)


def _has_two_periods(claims: _Claims, halves: Sequence[Grid]) -> bool:
    """Report whether the halves have two periods; with a drifting period the quarters differ half as much."""
    first, last = (claim.peak.lag if claim else 0.0 for claim in map(claims.find, halves))
    if not first or not last or not _differ(first, last):
        return False
    if max(first, last) > _MAX_DRIFT * min(first, last):
        return True
    for half in halves:
        middle = half.cells // 2
        quarters = [claims.find(half.part(0, middle)), claims.find(half.part(middle, half.cells))]
        lags = [quarter.peak.lag for quarter in quarters if quarter is not None]
        if len(lags) == 2 and 0.25 * abs(last - first) < abs(lags[1] - lags[0]) < 0.75 * abs(last - first):
            return False
    return True


def _differ(one: float, other: float) -> bool:
    """Report whether two periods differ and neither is a multiple of the other."""
    ratio = max(one, other) / min(one, other)
    return (
        abs(ratio - round(ratio)) > _PERIODS_DIFFER / 2 * round(ratio) if ratio > 1.5 else ratio > 1 + _PERIODS_DIFFER
    )


def _estimate(curves: Sequence[Curve], stretch: _Stretch) -> Estimate:
    part, (track, second_s) = stretch.part, stretch.followed
    period_s = track.cells_an_iteration * part.cell_s
    placed: dict[Role, list[Placed]] = {"compute": [], "traffic": []}
    for curve in curves:
        if curve.ends_s:
            placed[curve.role].append(_place_samples(curve, track, part))
    samples_a_period = period_s / interval_s(curves)
    shares = compute_shares(placed["compute"], placed["traffic"], samples_a_period)
    if second_s is not None:
        shares = "two jobs move these counters: watch one of them by --pid or --cgroup"
    alone = None
    if isinstance(shares, str) and not placed["traffic"]:
        alone = computing_alone(placed["compute"], samples_a_period)
    known = shares if isinstance(shares, Shares) else alone[0] if alone is not None else None
    begins = _list_begins(track, known.begin if known is not None else track.counts[0] % 1.0)
    found = Estimate(
        from_s=part.begin_s + track.places[0] * part.cell_s,
        to_s=part.begin_s + track.places[-1] * part.cell_s,
        period_s=period_s,
        period_half_width_s=_half_width(track) * part.cell_s,
        iterations=round(track.iterations),
        drift=_drift(track),
        samples_a_period=samples_a_period,
        second_period_s=second_s,
        begins_s=tuple(part.begin_s + begin * part.cell_s for begin in begins),
    )
    return _add_variation(curves, _add_shares(found, shares, alone, placed))


def _add_variation(curves: Sequence[Curve], found: Estimate) -> Estimate:
    """Add the variation of iterations if there is a single compute curve."""
    every = [find_singles(curve, found) for curve in curves if curve.role == "compute" and curve.ends_s]
    alone = every[0] if len(every) == 1 else None
    return replace(found, variation=alone.variation) if alone is not None else found


def _add_shares(
    found: Estimate, shares: Shares | str, alone: tuple[Shares, float] | None, placed: dict[Role, list[Placed]]
) -> Estimate:
    if isinstance(shares, str):
        if alone is None:
            return replace(found, why_no_shares=shares)
        return replace(found, why_no_shares=shares, compute=alone[0].compute, compute_half_width=alone[1])
    widths = half_widths(placed["compute"], placed["traffic"], found.samples_a_period)
    low, high = (_gain(shares.exposed + width) for width in (-widths[2], widths[2]))
    return replace(
        found,
        compute=shares.compute,
        communication=shares.communication,
        exposed=shares.exposed,
        compute_half_width=widths[0],
        communication_half_width=widths[1],
        exposed_half_width=widths[2],
        best_gain=_gain(shares.exposed),
        best_gain_low=low,
        best_gain_high=high,
    )


def _gain(exposed: float) -> float:
    """Return the speedup without exposed communication, at most 1000."""
    return 1 / (1 - min(max(exposed, 0.0), 0.999))


def _place_samples(curve: Curve, track: Track, part: Grid) -> Placed:
    """Return the samples within whole iterations."""
    middles, values = curve.whole_samples()
    counts = track.counts_at([(at_s - part.begin_s) / part.cell_s for at_s in middles])
    first, last = track.counts[0], track.counts[0] + math.floor(track.iterations + 1e-6)
    kept = [(value, count) for value, count in zip(values, counts, strict=True)
            if count is not None and first <= count < last]  # fmt: skip
    return Placed(curve, [value for value, _ in kept], [count for _, count in kept])


def _measure_paces(track: Track) -> list[tuple[float, float]]:
    """Return the middle and the cells per iteration of independent stretches of at least four iterations."""
    found, at = [], 0
    for number in range(1, len(track.places)):
        counted = track.counts[number] - track.counts[at]
        if counted >= 4:
            length = track.places[number] - track.places[at]
            found.append(((track.places[number] + track.places[at]) / 2, length / counted))
            at = number
    return found


def _half_width(track: Track) -> float:
    """Return the half width of the mean period in cells: the paces' deviation from a line, and one cell per track."""
    paces = _measure_paces(track)
    left = [pace - _fit_line(paces)(at) for at, pace in paces]
    deviation = stdev(left) / math.sqrt(len(left)) if len(left) > 2 else 0.0
    return math.hypot(1.96 * deviation, 1 / track.iterations)


def _drift(track: Track) -> float:
    """Return the drift from start to end as a part of the period, from a line through the paces."""
    paces = _measure_paces(track)
    if len(paces) < 3:
        return 0.0
    line = _fit_line(paces)
    return (line(track.places[-1]) - line(track.places[0])) / track.cells_an_iteration


def _fit_line(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    middle, mean = fmean(at for at, _ in points), fmean(value for _, value in points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    slope = sum((at - middle) * (value - mean) for at, value in points) / spread if spread else 0.0
    return lambda at: mean + slope * (at - middle)


def _list_begins(track: Track, phase: float) -> list[float]:
    """Return the places at which iterations begin, in cells."""
    first = math.ceil(track.counts[0] - phase - 1e-9)
    last = math.floor(track.counts[-1] - phase + 1e-9)
    found = [number + phase for number in range(first, last + 1)]
    inside = [count for count in found if track.counts[0] <= count <= track.counts[-1]]
    return track.places_of(inside)
