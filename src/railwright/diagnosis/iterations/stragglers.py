"""Compares the hosts of one job by iteration: hosts that compute longer, begin later or are out of step.

The iterations of a host are matched to the nearest of a reference host. Each host is compared with the median of the
others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal

import msgspec

from railwright.results.statistics import quantile

MATTERS = 0.03
"""Share of the period below which a host is not a straggler; also the accuracy of shares."""
_PERIOD_TOLERANCE = 0.02
"""Relative difference within which hosts have the same mean period."""
_END_TOLERANCE_PERIODS = 3.0
"""The number of periods within which hosts count as stopping together."""
_EDGE_UNCERTAINTY = 0.25
"""The uncertainty of an edge's mean, as a part of a sample."""

How = Literal["computes longer", "begins later", "another period", "no period", "begins iterating later", "stops early"]


class HostIterations(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of one host, on the common time axis."""

    period_s: float
    period_half_width_s: float
    from_s: float
    to_s: float
    recorded_to_s: float
    """The end of the recording."""
    begins_s: tuple[float, ...] = ()
    """The start of computing in each iteration; empty if unknown."""
    computed_s: tuple[float, ...] = ()
    """The length of computing in each iteration except the last."""
    sample_s: float = 0.0
    clock_half_width_s: float = 0.0


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A host that differs from the others."""

    host: str
    how: How
    by_s: float
    """The difference from the median of the others in length, start or period, or from their start or end."""
    half_width_s: float
    """The half width of the 95 % interval."""
    fraction: float | None = None
    """The fraction of iterations in which it was the last; None if not applicable."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A host in step with the others, compared with their median."""

    iterations: int
    """The number of compared iterations."""
    computes_s: float
    """The mean time of computing per iteration."""
    longer_s: float
    longer_half_width_s: float
    longest: float
    """The fraction of iterations in which no other host computed as long."""
    later_s: float | None = None
    """The delay of its iterations; None if the clocks were not compared."""
    later_half_width_s: float | None = None
    latest: float | None = None
    """The fraction of iterations in which no other host began as late."""


def select_in_step(hosts: Mapping[str, HostIterations]) -> list[str]:
    """Return the hosts with the most common period."""
    groups = [[name for name, other in hosts.items() if _has_same_period(one, other)] for one in hosts.values()]
    return max(groups, key=len, default=[])


def _has_same_period(one: HostIterations, other: HostIterations) -> bool:
    width_s = math.hypot(one.period_half_width_s, other.period_half_width_s)
    return abs(one.period_s - other.period_s) <= max(width_s, _PERIOD_TOLERANCE * min(one.period_s, other.period_s))


def compare_hosts(hosts: Mapping[str, HostIterations], *, one_clock: bool) -> dict[str, Compared]:
    """Compare the hosts in step; empty for fewer than two with known iterations, or fewer than three common iterations.

    `one_clock` says whether the hosts' times are comparable; otherwise no delays are reported.
    """
    known = {name: hosts[name] for name in select_in_step(hosts) if len(hosts[name].computed_s) > 1}
    if len(known) < 2:
        return {}
    reference = max(known.values(), key=lambda one: len(one.computed_s))
    rows = {name: _match_iterations(reference, one) for name, one in known.items()}
    common = [number for number in range(len(reference.computed_s)) if all(number in row for row in rows.values())]
    if len(common) < 3:
        return {}
    computed = {name: [row[number][1] for number in common] for name, row in rows.items()}
    begun = {name: [row[number][0] for number in common] for name, row in rows.items()}
    return {name: _compare_host(name, known, computed, begun if one_clock else None) for name in known}


def _match_iterations(reference: HostIterations, one: HostIterations) -> dict[int, tuple[float, float]]:
    """Match iterations to the reference's, and return the delay and the computing time of each."""
    begins = reference.begins_s
    shift_s = _mean_delay_s(reference, one)
    found: dict[int, tuple[float, float]] = {}
    for begin_s, computed_s in zip(one.begins_s, one.computed_s, strict=False):
        at = bisect_left(begins, begin_s - shift_s)
        near = min((number for number in (at - 1, at) if 0 <= number < len(begins)),
                   key=lambda number: abs(begins[number] + shift_s - begin_s))  # fmt: skip
        if abs(begins[near] + shift_s - begin_s) < reference.period_s / 2:
            found[near] = (begin_s - begins[near], computed_s)
    return found


def _mean_delay_s(reference: HostIterations, one: HostIterations) -> float:
    """Return the mean delay of the host's iterations on the circle, within half a period."""
    turns = []
    for begin_s in one.begins_s:
        at = bisect_left(reference.begins_s, begin_s)
        if 0 < at < len(reference.begins_s):
            before_s, after_s = reference.begins_s[at - 1 : at + 1]
            turns.append(2 * math.pi * (begin_s - before_s) / (after_s - before_s))
    angle = math.atan2(math.fsum(map(math.sin, turns)), math.fsum(map(math.cos, turns)))
    return angle / (2 * math.pi) * reference.period_s


def _compare_host(
    name: str,
    hosts: Mapping[str, HostIterations],
    computed: Mapping[str, Sequence[float]],
    begun: Mapping[str, Sequence[float]] | None,
) -> Compared:
    others = [other for other in hosts if other != name]
    sample_s = max(one.sample_s for one in hosts.values()) * _EDGE_UNCERTAINTY
    longer = _compute_excess(name, others, computed)
    found = Compared(
        iterations=len(longer),
        computes_s=fmean(computed[name]),
        longer_s=fmean(longer),
        longer_half_width_s=_half_width(longer, 2 * sample_s),
        longest=sum(value > 0 for value in _compute_excess_over_all(name, others, computed)) / len(longer),
    )
    if begun is None:
        return found
    later = _compute_excess(name, others, begun)
    clock_s = hosts[name].clock_half_width_s + quantile(
        sorted(hosts[other].clock_half_width_s for other in others), 0.5
    )
    return msgspec.structs.replace(
        found,
        later_s=fmean(later),
        later_half_width_s=_half_width(later, sample_s) + clock_s,
        latest=sum(value > 0 for value in _compute_excess_over_all(name, others, begun)) / len(later),
    )


def _compute_excess(name: str, others: Sequence[str], values: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the excess over the median of the others in each iteration."""
    return [
        own - quantile(sorted(values[other][number] for other in others), 0.5)
        for number, own in enumerate(values[name])
    ]


def _compute_excess_over_all(name: str, others: Sequence[str], values: Mapping[str, Sequence[float]]) -> list[float]:
    return [own - max(values[other][number] for other in others) for number, own in enumerate(values[name])]


def _half_width(values: Sequence[float], minimum_s: float) -> float:
    return math.hypot(1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0, minimum_s)


def stragglers(
    hosts: Mapping[str, HostIterations], silent: Sequence[str], every: Mapping[str, Compared]
) -> list[Straggler]:
    """Return all hosts that differ from the others; none if no two have the same period.

    `silent` hosts were watched but have no period.
    """
    together = select_in_step(hosts)
    if len(together) < 2:
        return []
    found = [Straggler(host=name, how="no period", by_s=0.0, half_width_s=0.0) for name in silent]
    period_s = quantile(sorted(hosts[name].period_s for name in together), 0.5)
    for name, one in hosts.items():
        if name not in together:
            width_s = math.hypot(one.period_half_width_s, hosts[together[0]].period_half_width_s)
            found.append(Straggler(host=name, how="another period", by_s=one.period_s - period_s, half_width_s=width_s))
    found += _find_early_or_late_hosts(hosts, together, period_s)
    for name, held in every.items():
        comparisons: tuple[tuple[How, float | None, float | None, float | None], ...] = (
            ("computes longer", held.longer_s, held.longer_half_width_s, held.longest),
            ("begins later", held.later_s, held.later_half_width_s, held.latest),
        )
        for how, more_s, within_s, fraction in comparisons:
            if more_s is not None and within_s is not None and more_s - within_s > MATTERS * period_s:
                found.append(Straggler(host=name, how=how, by_s=more_s, half_width_s=within_s, fraction=fraction))
    return found


def _find_early_or_late_hosts(
    hosts: Mapping[str, HostIterations], together: Sequence[str], period_s: float
) -> list[Straggler]:
    """Return watched hosts that begin iterating after all others, or stop before them."""
    found = []
    for name in together:
        others = [hosts[other] for other in together if other != name]
        first_s, last_s = max(one.from_s for one in others), min(one.to_s for one in others)
        one = hosts[name]
        if one.from_s > first_s + _END_TOLERANCE_PERIODS * period_s:
            found.append(Straggler(host=name, how="begins iterating later", by_s=one.from_s - first_s,
                                   half_width_s=period_s))  # fmt: skip
        if min(last_s, one.recorded_to_s) > one.to_s + _END_TOLERANCE_PERIODS * period_s:
            found.append(Straggler(host=name, how="stops early", by_s=last_s - one.to_s, half_width_s=period_s))
    return found
