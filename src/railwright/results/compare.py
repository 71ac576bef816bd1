"""Comparison of two runs: the points that became faster or slower beyond noise, and whether the runs are comparable.

faster        the difference exceeds the noise of both runs, and b is better than a
slower        the difference exceeds the noise of both runs, and b is worse than a
within noise  no difference exceeds the noise, and the medians are within a third of each other
cannot tell   too few launches, too much noise, or the two values measure different things; with the launches that
              would decide

At most 5 in 100 unchanged points are called faster or slower, however noisy they are (a test checks this). A change of
a tenth may hide in a noisy point. So all points of a benchmark are also compared together, where it shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.groups import group_by_key
from railwright.limits.limit import Quantity
from railwright.results import fairness
from railwright.results.fairness import Difference, format_percent
from railwright.results.pooled import pool
from railwright.results.ratio import CONFIDENCE, RatioInterval, estimate_launches, ratio_interval
from railwright.results.records import Result, ResultFile, Run
from railwright.results.statistics import quantile
from railwright.topology.devices import Scalar

Statement = Literal["faster", "slower", "within noise", "cannot tell"]
Unit = Literal["launches", "samples of one launch", "none"]
Reason = Literal["", "not the same thing", "no value", "few launches", "noise"]

MIN_LAUNCHES = 3
"""Rank statistics reach a confidence of at most 67 % with fewer launches."""
SMALLEST_CLAIM = 0.02
"""The smallest difference that is reported as faster or slower. Machines drift by less than this between runs."""
LARGEST_HIDDEN = 1 / 3
"""A larger difference of the medians is never called noise: more launches must decide."""

PointKey = tuple[str, Quantity, str, tuple[tuple[str, str], ...]]


class Side(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The values of a point in one run. `spread` is (highest - lowest) / median over its launches."""

    launches: tuple[float, ...] = ()
    median: float | None = None
    spread: float | None = None
    within: tuple[float, float] | None = None
    """The 95 % interval of the median within a single launch; None if there are several results, or no summary."""


class ComparedPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="compared", tag_field="record",
                    forbid_unknown_fields=True):  # fmt: skip
    """A point that both runs measured. `ratio` is b / a. Its interval is over launches if both runs have several."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    a: Side
    b: Side
    ratio: float | None = None
    interval: RatioInterval | None = None
    unit: Unit = "none"
    statement: Statement
    reason: Reason = ""
    """The cause of `cannot tell`, in a word or two; otherwise empty."""
    launches_needed: int = 0
    """The estimated launches on each side that would decide; 0 if the point is decided or launches cannot decide."""
    why: str

    @property
    def launches(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The launches of both runs; empty for values that cannot be compared."""
        return (self.a.launches, self.b.launches) if self.unit == "launches" and self.ratio else ((), ())


class Together(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="together", tag_field="record",
               forbid_unknown_fields=True):  # fmt: skip
    """All points of a benchmark and quantity. The launches are geometric means over the points, relative to a."""

    benchmark: str
    quantity: Quantity
    points: int
    a: Side
    b: Side
    ratio: float
    interval: RatioInterval
    statement: Statement
    shows: float
    """The smallest change that would have been called faster or slower, as a share."""
    why: str


class Decision(NamedTuple):
    """The verdict on a point, with its reason."""

    statement: Statement
    reason: Reason
    why: str
    launches_needed: int = 0


class OneSided(msgspec.Struct, frozen=True, kw_only=True, tag="one_sided", tag_field="record",
               forbid_unknown_fields=True):  # fmt: skip
    """A point that only one run measured, with its outcome in the other run."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    measured_in: Literal["a", "b"]
    other: Literal["absent", "waived", "failed"]
    why: str


class RunLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of a run in a comparison."""

    host: str
    started_at: str
    railwright: str
    command: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A comparison of two runs. `across` lists the parameters that pairing ignored."""

    a: RunLabel
    b: RunLabel
    across: tuple[str, ...]
    differences: tuple[Difference, ...]
    points: tuple[ComparedPoint, ...]
    together: tuple[Together, ...]
    one_sided: tuple[OneSided, ...]
    exit_status: int


def compare(a: ResultFile, b: ResultFile, across: Iterable[str] = ()) -> Comparison:
    """Pair the points of two runs and report the changes from `a` to `b`.

    Two points form a pair if benchmark, quantity, path and all parameters are equal. `across` names parameters that may
    differ, to compare two algorithms or transports.
    """
    ignored = tuple(dict.fromkeys(across))
    sides = tuple(_group_results(file.results, ignored) for file in (a, b))
    points: list[ComparedPoint] = []
    one_sided: list[OneSided] = []
    differences: list[Difference] = []
    for key in dict.fromkeys((*sides[0], *sides[1])):
        both = tuple([each for each in side.get(key, ()) if each.outcome == "measured"] for side in sides)
        if both[0] and both[1]:
            found = _point_differences(both[0], both[1], (a, b), ignored)
            differences += found
            points.append(_compare_point(both[0], both[1], ignored, found))
        elif both[0] or both[1]:
            other = sides[1 if both[0] else 0].get(key, ())
            one_sided.append(_make_one_sided(both, other))
    lone = [[each for key, found in side.items() if key not in sides[1 - number] for each in found
             if each.outcome == "measured"] for number, side in enumerate(sides)]  # fmt: skip
    paired = [each for key, found in sides[0].items() if key in sides[1] for each in found]
    differences += fairness.unpaired_differences(lone[0], lone[1], paired)
    differences += fairness.run_differences(a, b)
    together = _compare_together(point for point in points if point.reason != "not the same thing")
    return Comparison(
        a=_make_label(a.run), b=_make_label(b.run), across=ignored, points=tuple(points), one_sided=tuple(one_sided),
        together=together, differences=fairness.merge_differences(differences),
        exit_status=_exit_status([*points, *together], one_sided),
    )  # fmt: skip


def _compare_together(points: Iterable[ComparedPoint]) -> tuple[Together, ...]:
    """Compare the points of each benchmark and quantity together, if they have launches enough."""
    found = []
    for benchmark, quantity, count, before, after in pool(points):
        a, b = _side_of(before), _side_of(after)
        if min(len(a.launches), len(b.launches)) < MIN_LAUNCHES or not a.median or not b.median:
            continue
        ratio, interval = b.median / a.median, ratio_interval(a.launches, b.launches)
        spreads = (a.spread or 0) + (b.spread or 0)
        decided = _decide(quantity, a, b, ratio, interval)
        found.append(
            Together(
                benchmark=benchmark,
                quantity=quantity,
                points=count,
                a=a,
                b=b,
                ratio=ratio,
                interval=interval,
                statement=decided.statement,
                shows=max(SMALLEST_CLAIM, spreads),
                why=decided.why,
            )
        )
    return tuple(found)


def _side_of(launches: Sequence[float]) -> Side:
    ordered = sorted(launches)
    median = quantile(ordered, 0.5)
    return Side(launches=tuple(launches), median=median, spread=(ordered[-1] - ordered[0]) / median)


def _group_results(results: Iterable[Result], ignored: tuple[str, ...]) -> dict[PointKey, list[Result]]:
    def point_of(result: Result) -> PointKey:
        # Values are compared as text, so that True differs from 1 and NaN equals itself.
        parameters = sorted((key, str(value)) for key, value in result.parameters.items() if key not in ignored)
        return result.benchmark, result.quantity, result.path, tuple(parameters)

    return dict(group_by_key(results, point_of))


def _make_label(run: Run) -> RunLabel:
    return RunLabel(host=run.context.host, started_at=run.started_at, railwright=run.railwright, command=run.command)


def _point_differences(
    a: Sequence[Result], b: Sequence[Result], runs: tuple[ResultFile, ResultFile], ignored: tuple[str, ...]
) -> tuple[Difference, ...]:
    varied = {key: value for key, value in a[0].parameters.items() if key != "size_bytes" and key not in ignored}
    where = fairness.format_series(a[0].benchmark, a[0].path, varied)
    found = list(fairness.point_differences(where, a, b, runs))
    for key in ignored:
        values = [sorted({str(each.parameters.get(key, "none")) for each in side}) for side in (a, b)]
        if len(values[0]) > 1 or len(values[1]) > 1:
            why = "one side has several values of the ignored parameter"
            found.append(fairness.blocking_difference(key, ", ".join(values[0]), ", ".join(values[1]), where, why))
    return tuple(found)


def _compare_point(
    a: Sequence[Result], b: Sequence[Result], ignored: tuple[str, ...], differences: Sequence[Difference]
) -> ComparedPoint:
    first, second = _summarize_side(a), _summarize_side(b)
    blocking = [f"{each.what} {each.a} and {each.b}" for each in differences if each.severity == "blocking"]
    ratio = second.median / first.median if first.median and second.median else None
    interval, unit = _interval(first, second)
    if blocking:
        decided = Decision("cannot tell", "not the same thing", f"not the same thing: {'; '.join(blocking)}")
    elif ratio is None:
        decided = Decision("cannot tell", "no value", "a launch recorded no value above 0")
    else:
        decided = _decide(a[0].quantity, first, second, ratio, interval)
    return ComparedPoint(
        benchmark=a[0].benchmark, quantity=a[0].quantity, path=a[0].path, a=first, b=second, ratio=ratio,
        parameters={key: value for key, value in a[0].parameters.items() if key not in ignored},
        interval=interval, unit=unit, **decided._asdict(),
    )  # fmt: skip


def _summarize_side(results: Sequence[Result]) -> Side:
    """Summarize each launch by the median of its results' medians.

    The side has no launches if any result lacks a finite median above 0.
    """
    ordered = sorted(results, key=lambda result: result.launch)
    launches: list[float] = []
    for _, same in groupby(ordered, key=lambda result: result.launch):
        medians = [_median(result) for result in same]
        found = [value for value in medians if value is not None and math.isfinite(value) and value > 0]
        if len(found) != len(medians):
            return Side()
        launches.append(quantile(sorted(found), 0.5))
    medians_in_order = sorted(launches)
    median = quantile(medians_in_order, 0.5)
    spread = (medians_in_order[-1] - medians_in_order[0]) / median if len(launches) > 1 else None
    summary = ordered[0].summary if len(ordered) == 1 else None
    within = (summary.median_low, summary.median_high) if summary else None
    return Side(launches=tuple(launches), median=median, spread=spread, within=within)


def _median(result: Result) -> float | None:
    if result.summary is not None:
        return result.summary.median
    if not result.samples or not all(math.isfinite(sample) for sample in result.samples):
        return None
    return quantile(sorted(result.samples), 0.5)


def _interval(a: Side, b: Side) -> tuple[RatioInterval | None, Unit]:
    """Compute the interval over launches if both sides have several launches.

    Otherwise compute it from the interval of the median within the only launch of a side, and from the range of the
    launches of a side that has several. An interval within one launch says nothing about the next launch.
    """
    if len(a.launches) > 1 and len(b.launches) > 1:
        return ratio_interval(a.launches, b.launches), "launches"
    ranges = [side.within or (min(side.launches), max(side.launches)) for side in (a, b) if side.launches]
    if len(ranges) < 2 or not all(low > 0 and math.isfinite(high) for low, high in ranges):
        return None, "none"
    (a_low, a_high), (b_low, b_high) = ranges
    return RatioInterval(low=b_low / a_high, high=b_high / a_low, confidence=0.0), "samples of one launch"


def _decide(quantity: Quantity, a: Side, b: Side, ratio: float, interval: RatioInterval | None) -> Decision:
    if sorted(a.launches) == sorted(b.launches):
        return Decision("within noise", "", "the launches of both runs are identical")
    few = [
        f"{name} has {len(side.launches)}" for name, side in (("a", a), ("b", b)) if len(side.launches) < MIN_LAUNCHES
    ]
    if few or interval is None:
        why = f"too few launches: {' and '.join(few)}, at least {MIN_LAUNCHES} are needed"
        return Decision("cannot tell", "few launches", why, MIN_LAUNCHES)
    difference = max(ratio, 1 / ratio) - 1
    spreads = (a.spread or 0, b.spread or 0)
    # Three launches give 90 % confidence by rank. The difference must then exceed the sum of both spreads.
    sure = interval.confidence >= CONFIDENCE or difference > sum(spreads)
    apart = interval.low > 1 or interval.high < 1
    if apart and sure and difference >= SMALLEST_CLAIM:
        better = (ratio > 1) != (quantity == "latency_s")
        word: Statement = "faster" if better else "slower"
        return Decision(
            word,
            "",
            f"{format_percent(difference)} apart, and the launches spread by at most {format_percent(max(spreads))}",
        )
    seen = f"{format_percent(difference)} apart, and the launches of a run spread by {format_percent(max(spreads))}"
    if difference <= LARGEST_HIDDEN and not (apart and difference > max(SMALLEST_CLAIM, *spreads)):
        return Decision("within noise", "", seen)
    needed = estimate_launches(a.launches, b.launches, math.log1p(LARGEST_HIDDEN))
    words = f"{seen}: the ratio may be {interval.low:.2f} to {interval.high:.2f}"
    return Decision("cannot tell", "noise", f"{words}; about {needed} launches of each would decide", needed)


def _make_one_sided(both: tuple[list[Result], ...], other: Sequence[Result]) -> OneSided:
    result = (both[0] or both[1])[0]
    failed = next((each for each in other if each.outcome == "failed"), None)
    waived = next((each for each in other if each.outcome == "waived"), None)
    replaced = failed or waived
    return OneSided(
        benchmark=result.benchmark, quantity=result.quantity, path=result.path, parameters=result.parameters,
        measured_in="a" if both[0] else "b", other="failed" if failed else "waived" if waived else "absent",
        why=replaced.reason if replaced else "the other run has no such point",
    )  # fmt: skip


def _exit_status(points: Sequence[ComparedPoint | Together], one_sided: Sequence[OneSided]) -> int:
    """Return 1 if any point is slower; 3 if one is undecided or missing in b, or nothing was compared; otherwise 0."""
    statements = {point.statement for point in points}
    if "slower" in statements:
        return EXIT_SLOW
    lost = any(each.measured_in == "a" for each in one_sided)
    return EXIT_UNJUDGED if not statements or "cannot tell" in statements or lost else EXIT_OK
