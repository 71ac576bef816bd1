"""Compute, communication and exposed communication as parts of an iteration, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from railwright.diagnosis.iterations.profile import Phases, Spans, count_bins, find_phases, fold
from railwright.diagnosis.iterations.samples import Curve

MIN_SAMPLES = 8
"""The samples per period needed for shares. Our choice: an edge lies anywhere in its sample."""
_GROUPS = 8
_NORMAL_975 = 1.959964
_STUDENT_975 = (0.0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365)
"""By degrees of freedom."""
_EDGE_UNCERTAINTY = 0.25
"""The uncertainty of an edge's mean as a part of a sample, if all iterations align with the sampler. By trial."""


class Placed(NamedTuple):
    """The samples of a curve within the analysed iterations."""

    curve: Curve
    values: list[float]
    counts: list[float]
    """The iteration count at the middle of each sample."""


class Shares(NamedTuple):
    """Parts of the iteration, and the phase at which computing, or else traffic, begins."""

    compute: float
    communication: float
    exposed: float
    begin: float


def compute_shares(compute: Sequence[Placed], traffic: Sequence[Placed], samples_a_period: float) -> Shares | str:
    """Return the shares, or the reason why they are unknown."""
    if not compute or not traffic:
        return f"no counter measures {'traffic' if compute else 'computing'}"
    if samples_a_period < MIN_SAMPLES:
        return f"{samples_a_period:.1f} samples a period: shares need {MIN_SAMPLES}"
    found: list[Spans] = []
    begins: list[float] = []
    for placed in (compute, traffic):
        spans: Spans = []
        for one in placed:
            phases = _find_spans(one, samples_a_period)
            if isinstance(phases, str):
                return phases
            spans += phases
        found.append(merge_spans(spans))
        begins = begins or _list_begins(spans)
    computing, moving = found
    both = total_length(computing) + total_length(moving) - total_length(merge_spans(computing + moving))
    exposed = max(0.0, total_length(moving) - both)
    return Shares(total_length(computing), total_length(moving), exposed, begins[0] if begins else 0.0)


def computing_alone(compute: Sequence[Placed], samples_a_period: float) -> tuple[Shares, float] | None:
    """Return the shares without traffic, which is not measured, and the half width of computing; None if unknown."""
    if not compute or samples_a_period < MIN_SAMPLES:
        return None
    still = [Placed(one.curve._replace(quiet_below=math.inf), [0.0] * len(one.values), one.counts) for one in compute]
    shares = compute_shares(compute, still, samples_a_period)
    if isinstance(shares, str):
        return None
    return shares, half_widths(compute, still, samples_a_period)[0]


def _list_begins(spans: Spans) -> list[float]:
    """Return the starts of spans, the one after the longest pause first; empty if a span never ends."""
    pauses = []
    for begin, end in spans:
        if end - begin >= 1:
            return []
        pauses.append((min((begin - other) % 1.0 or 1.0 for _, other in spans), begin % 1.0))
    return [begin for _, begin in sorted(pauses, reverse=True)]


def _find_spans(placed: Placed, samples_a_period: float) -> Spans | str:
    """Return the spans at which a curve is on; a curve without two levels is always on or off."""
    bins = count_bins(samples_a_period)
    profile = fold(placed.values, placed.counts, bins)
    while profile is None and bins >= 2 * MIN_SAMPLES:  # the sampler may have been late often
        bins //= 2
        profile = fold(placed.values, placed.counts, bins)
    if profile is None:
        return "some phases of the iteration were never sampled"
    phases: Phases | None = find_phases(profile)
    if phases is not None and phases.low <= placed.curve.off_share * phases.high:
        return phases.on
    return [(0.0, 1.0)] if fmean(placed.values) > placed.curve.quiet_below else []


def total_length(spans: Spans) -> float:
    """Return the total length of spans that do not overlap."""
    return sum(end - begin for begin, end in spans)


def merge_spans(spans: Spans) -> Spans:
    """Merge overlapping spans on the circle into spans from 0 to 1."""
    cut: Spans = []
    for begin, end in spans:
        if end - begin >= 1:
            return [(0.0, 1.0)]
        turn = math.floor(begin)
        first, last = begin - turn, end - turn
        cut += [(first, min(last, 1.0))] + ([(0.0, last - 1)] if last > 1 else [])
    found: Spans = []
    for begin, end in sorted(cut):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def half_widths(
    compute: Sequence[Placed], traffic: Sequence[Placed], samples_a_period: float
) -> tuple[float, float, float]:
    """Return the half widths of compute, communication and exposed, from groups of iterations and the sampling."""
    every = [count for one in (*compute, *traffic) for count in one.counts]
    first, last = min(every), max(every)
    groups = min(_GROUPS, int((last - first) / 2))
    parts: list[Shares] = []
    for number in range(groups):
        begin, end = (first + (last - first) * at / groups for at in (number, number + 1))
        found = compute_shares(_clip(compute, begin, end), _clip(traffic, begin, end), samples_a_period)
        if isinstance(found, Shares):
            parts.append(found)
    min_width = _NORMAL_975 * _EDGE_UNCERTAINTY / samples_a_period
    if len(parts) < 2:
        return (4 * min_width,) * 3
    student = _STUDENT_975[min(len(parts), len(_STUDENT_975)) - 1]

    def width(values: list[float]) -> float:
        return math.hypot(min_width, student * stdev(values) / math.sqrt(len(values)))

    return (
        width([one.compute for one in parts]),
        width([one.communication for one in parts]),
        width([one.exposed for one in parts]),
    )


def _clip(role: Sequence[Placed], begin: float, end: float) -> list[Placed]:
    found = []
    for one in role:
        kept = [(value, count) for value, count in zip(one.values, one.counts, strict=True) if begin <= count < end]
        found.append(Placed(one.curve, [value for value, _ in kept], [count for _, count in kept]))
    return found
