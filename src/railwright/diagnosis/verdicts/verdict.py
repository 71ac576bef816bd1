"""Compares a measurement with its limit.

ok          within [expected low, limit x 1.02]
slow        below the expected low
suspicious  above limit x 1.02, or for a measured ceiling above x 1.1 or the variation of its launches: the
            measurement or the limit is wrong
reference   a baseline for other points, without a band of its own
unknown     no limit, or no expected band; `needs` names what would decide it
For a latency the limit is a floor, and a value above the band is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged, State, Verdict
from railwright.limits.limit import AlgorithmBand, Bounds, Expected, Limit, NoLimit
from railwright.results.records import Outcome, Result, Verification
from railwright.results.statistics import quantile
from railwright.units import format_bandwidth, format_duration, format_flops, format_messages, format_operations

TOLERANCE_ABOVE_LIMIT = 1.02
TOLERANCE_ABOVE_CEILING = 1.1
"""The time of a copy varies by a tenth between processes, with the placement of its pages."""

LAUNCHES_APART = 2.0
"""Our choice: above the variation of healthy launches (docs/limits.md), below the loss of most faults."""

WORST_FIRST: tuple[State, ...] = ("slow", "suspicious", "failed", "unknown", "ok", "reference", "waived")
_STATE_WORDS = {"reference": "baseline", "waived": "not run"}

_NEEDS_QUIET = "more launches on a quiet machine: --launches 10"
_NEEDS_ALONE = "the same run on an idle host"
_NEEDS_A_BAND = "a run on a healthy machine of this kind to compare with: railwright compare A B"


class PointRole(NamedTuple):
    """The role of a point among the others of its run."""

    is_reference: bool = False
    """Whether other points are compared with it; the point itself has only its own limit."""
    needs: str = ""
    """The command or fact that would decide the verdict if there is no limit."""


def state_word(state: str) -> str:
    """Return the word shown for a verdict or an outcome; records keep `reference` and `waived`."""
    return _STATE_WORDS.get(state, state)


def format_quantity(quantity: str, value: float) -> str:
    """Format the value with its unit."""
    if quantity == "latency_s":
        return format_duration(value)
    if quantity == "flop_per_s":
        return format_flops(value)
    if quantity == "messages_per_s":
        return format_messages(value)
    return format_operations(value) if quantity == "operations_per_s" else format_bandwidth(value)


def fraction_of_limit(value: float, limit: Limit) -> float:
    """Return measured / limit, or floor / measured for a latency, so that 1 is always the best possible."""
    return limit.value / value if limit.quantity == "latency_s" else value / limit.value


def judge_result(
    result: Result,
    value: float | None,
    bounds: Bounds,
    checked: Verification | None,
    standing: PointRole = PointRole(),  # noqa: B008 - a constant
    *,
    must_check: bool = True,
) -> Judged:
    """Judge a result by the value that represents it."""
    limit, expected = bounds
    return Judged(
        benchmark=result.benchmark,
        quantity=result.quantity,
        path=result.path,
        parameters=result.parameters,
        outcome=result.outcome,
        reason=result.reason,
        value=value,
        limit=limit,
        expected=expected,
        fraction_of_limit=fraction_of_limit(value, limit) if value and isinstance(limit, Limit) else None,
        verdict=judge(result.outcome, result.reason, value, limit, expected, checked, standing, must_check=must_check),
        verification=checked,
        method=result.method,
        ranks=result.ranks,
        hosts=result.hosts,
    )


def judge(
    outcome: Outcome,
    reason: str,
    value: float | None,
    limit: Limit | NoLimit,
    expected: Expected | None,
    checked: Verification | None,
    standing: PointRole = PointRole(),  # noqa: B008 - a constant
    *,
    must_check: bool = True,
) -> Verdict:
    """Return the verdict on a value. Only a value inside its band is ok.

    Without `must_check` the data need not be verified, for tables of tools that do not verify it.
    """
    if outcome == "waived":
        return Verdict(state="waived", why=reason)
    if outcome == "failed" or value is None:
        return Verdict(state="failed", why=reason or "no value was recorded")
    if (wrong := judge_data(checked, is_ours=must_check)) is not None:
        return wrong
    unchecked = must_check and (checked is None or not checked.bytes_checked)
    if isinstance(limit, NoLimit):  # also for a value of 0, such as fully hidden communication
        if standing.is_reference and value > 0:
            return _unverified() if unchecked else Verdict(state="reference", why=f"no limit: {limit.why}")
        needs = standing.needs or (f"a shape file with {', '.join(limit.missing)}" if limit.missing else _NEEDS_A_BAND)
        return Verdict(state="unknown", why=f"no limit: {limit.why}", needs=needs)
    if not value > 0:
        return Verdict(state="suspicious", why=f"value must be above 0, got {value}")
    if unchecked:
        return _unverified()
    share = fraction_of_limit(value, limit)
    if share > _tolerance(limit):
        word = "below the floor" if limit.quantity == "latency_s" else "above the limit"
        why = f"{share:.2f} of the limit: {word} of {format_quantity(limit.quantity, limit.value)}"
        return _doubt_assumed(Verdict(state="suspicious", why=why), limit, share / _tolerance(limit))
    if expected is not None:
        found = _doubt_assumed(_compare_with_band(value, expected), limit, _share_of_band(value, expected))
        is_reference = standing.is_reference and found.state == "unknown"
        return Verdict(state="reference", why=found.why) if is_reference else found
    if standing.is_reference:
        return Verdict(state="reference", why=f"{share:.2f} of its own limit; no document gives an expected band")
    why = "no expected band is known for this path at this size"
    return Verdict(state="unknown", why=why, needs=standing.needs or _NEEDS_A_BAND)


def judge_data(checked: Verification | None, *, is_ours: bool) -> Verdict | None:
    """Return the verdict on wrong data, or None. Other tools count values or nothing, so their bytes are not told."""
    if checked is None or not checked.bytes_wrong:
        return None
    found = f"found {checked.bytes_wrong} wrong bytes" if is_ours else f"failed ({checked.method})"
    return Verdict(state="failed", why=f"the data check {found}")


def _share_of_band(value: float, expected: Expected) -> float:
    """Return the value over the end of the band that a slow value misses: below 1 if it is slow."""
    return (expected.high or 0.0) / value if expected.quantity == "latency_s" else value / expected.low


def _doubt_assumed(found: Verdict, limit: Limit, share: float) -> Verdict:
    """Turn slow and suspicious into unknown if another value of a fact that is assumed would explain `share`, the value
    over the band or the limit. A value inside its band confirms the assumption.
    """
    if not limit.assumed or found.state not in ("slow", "suspicious"):
        return found
    if limit.assumed_span is not None and not limit.assumed_span[0] <= share <= limit.assumed_span[1]:
        return found
    why = f"{found.why}, but that rests on an assumption: {limit.because}"
    return Verdict(state="unknown", why=why, needs=f"the real rate, as an option like {limit.assumed}")


def _tolerance(limit: Limit) -> float:
    """Return the factor by which a value may exceed the limit.

    A derived limit does not vary. The launches of a measured ceiling show how far the next may exceed it, up to a
    factor of two: a larger variation is not a property of the path.
    """
    if limit.kind == "derived":
        return TOLERANCE_ABOVE_LIMIT
    return max(TOLERANCE_ABOVE_CEILING, min(limit.varies, LAUNCHES_APART))


def _unverified() -> Verdict:
    return Verdict(state="unknown", why="the data was not verified", needs="a run that checks its data")


def _compare_with_band(value: float, expected: Expected) -> Verdict:
    printed = format_quantity(expected.quantity, value)
    low = format_quantity(expected.quantity, expected.low)
    if expected.quantity == "latency_s":
        if expected.high is None:
            return Verdict(state="unknown", why="the expected band has no upper end", needs=_NEEDS_A_BAND)
        high = format_quantity(expected.quantity, expected.high)
        if expected.doubtful_to is not None and expected.high < value <= expected.doubtful_to:
            return _doubt(f"{printed} is {_just(printed, high)}above the expected {high}", expected)
        if value > expected.high:
            return Verdict(state="slow", why=f"{printed} is {_just(printed, high)}above the expected {high}")
        why = _explain_by_algorithm(value, expected) or f"{printed} is within the expected {low} to {high}"
        return Verdict(state="ok", why=why)
    if expected.doubtful_to is not None and expected.doubtful_to <= value < expected.low:
        return _doubt(f"{printed} is {_just(printed, low)}below the expected {low}", expected)
    if value < expected.low:
        return Verdict(state="slow", why=f"{printed} is {_just(printed, low)}below the expected {low}")
    why = _explain_by_algorithm(value, expected) or f"{printed} is above the expected low of {low}"
    return Verdict(state="ok", why=why)


def _just(printed: str, edge: str) -> str:
    """Return `just ` if the value and the edge that it misses read alike."""
    return "just " if printed == edge else ""


def _explain_by_algorithm(value: float, expected: Expected) -> str:
    """Describe the value by the bands of the possible algorithms that contain or surround it; empty otherwise."""

    def words(ways: Sequence[AlgorithmBand], between: str) -> str:
        ends = [
            (format_quantity(expected.quantity, way.low), format_quantity(expected.quantity, way.high)) for way in ways
        ]
        return between.join(f"{way.algorithm} ({low} to {high})" for way, (low, high) in zip(ways, ends, strict=True))

    printed = format_quantity(expected.quantity, value)
    inside = [way for way in expected.ways if way.low <= value <= way.high]
    others = [way for way in expected.ways if way not in inside]
    if inside:
        also = f"; NCCL may also choose {words(others, ', ')}" if others else ""
        return f"{printed} is the rate of {words(inside, ' and ')}{also}"
    below, above = (any(sign * (way.low - value) > 0 for way in others) for sign in (1, -1))
    return f"{printed} is between {words(others, ' and ')}, of which NCCL may choose any" if below and above else ""


def _doubt(seen: str, expected: Expected) -> Verdict:
    why = expected.doubt or "the limit (measured) itself varies as much"
    return Verdict(state="unknown", why=f"{seen}, but {why}", needs=_NEEDS_QUIET)


def doubt_unless_launches_agree(point: Judged, medians: Sequence[float]) -> Judged:
    """Turn a slow point into unknown if its launches disagree.

    They disagree if the best launch is not slow, or if they differ by more than a factor of two.
    """
    if point.verdict.state != "slow" or len(medians) < 2 or point.expected is None:
        return point
    lowest, highest = min(medians), max(medians)
    best = lowest if point.quantity == "latency_s" else highest
    if _compare_with_band(best, point.expected).state == "slow" and highest < LAUNCHES_APART * lowest:
        return point
    low, high = (format_quantity(point.quantity, value) for value in (lowest, highest))
    why = f"{point.verdict.why}, but its launches reached {low} to {high}"
    return replace(point, verdict=Verdict(state="unknown", why=why, needs=_NEEDS_QUIET))


def doubt_unless_alone(point: Judged, quiet: Sequence[float], others_fraction: float) -> Judged:
    """Turn a slow point into unknown if other work may have slowed it.

    `quiet` are the medians of the undisturbed launches: if their median is slow, the point stays slow.
    """
    if point.verdict.state != "slow" or point.expected is None or not others_fraction:
        return point
    if quiet and _compare_with_band(quantile(sorted(quiet), 0.5), point.expected).state == "slow":
        return point
    why = f"{point.verdict.why}, but other work took {others_fraction:.0%} of this host's CPU time meanwhile"
    return replace(point, verdict=Verdict(state="unknown", why=why, needs=_NEEDS_ALONE))
