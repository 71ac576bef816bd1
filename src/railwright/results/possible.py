"""Checks for records that no measurement can have produced. They are as strict for this program as for other tools.

A verdict on an edited or damaged record would be false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from railwright.results.records import Context, Disturbed, End, Record, Result, Run, Summary, Verification
from railwright.results.statistics import explain_invalid_summary, summarise
from railwright.topology.devices import Scalar
from railwright.topology.possible import refuse_impossible

_ROUNDING = 1e-5
"""The relative tolerance. Samples are kept to six significant digits, but the summary is made before rounding
(`statistics.round_samples`)."""
LARGEST = 1e30
"""The limit for any number of a record or a pasted table: sums, products and squares of larger ones may be infinite."""
_MOST_RANKS = 10_000_000
_KEPT = "samples_kept"
"""The setting that marks a record that keeps only some of its samples."""
_STATISTICS = ("minimum", "median_low", "median", "median_high", "p99", "maximum")
_DIFFERENCE = ("part", "exposed")
"""The parameter of a time that is a difference of two times. Noise can make it negative."""


def explain_impossible(record: Record, name: str = "") -> str:
    """Explain why no measurement can have produced this record. Returns an empty string if it is possible.

    `name` is the name of the run's topology in errors. Raises UsageError for an invalid topology.
    """
    if isinstance(record, Run):
        refuse_impossible(record.topology, name)
        return _check_context(record.context)
    if isinstance(record, End):
        return _describe_negative("counter", record.counters_moved)
    if isinstance(record, Disturbed):
        share = record.others_fraction
        return (
            ""
            if 0 <= share <= 1 and record.launch >= 0
            else f"others_fraction of launch {record.launch} must be a share, got {share}"
        )
    return _check_result(record)


def _check_context(context: Context) -> str:
    numbers: dict[str, Scalar] = {name: getattr(context, name) for name in ("cores", "memory_bytes", "load_average")}
    shares = {"busy_fraction": context.busy_fraction}
    if (noise := context.noise) is not None:
        numbers |= {"quantum_s": noise.quantum_s, "worst_s": noise.worst_s, "quanta": noise.quanta}
        shares["lost_fraction"] = noise.lost_fraction
    above = next((f"{name} is {value}, above 1" for name, value in shares.items() if value > 1), "")
    return _describe_negative("the context's", {**numbers, **shares, **context.clocks}) or above


def _check_result(result: Result) -> str:
    for name, value, minimum in (("ranks", result.ranks, 1), ("hosts", result.hosts, 1), ("launch", result.launch, 0)):
        if value < minimum:
            return f"{name} is {value}"
        if value > _MOST_RANKS:
            return f"{name} must be at most {_MOST_RANKS}, got {_show(value)}"
    counts = {name: value for name, value in result.settings.items() if isinstance(value, int)}
    return (
        _describe_negative("parameter", result.parameters)
        or _describe_negative("setting", counts)
        or _check_verification(result.verification)
        or _check_samples(result)
    )


def _check_verification(check: Verification | None) -> str:
    if check is None:
        return ""
    if check.bytes_checked < 0 or check.bytes_wrong < 0:
        return f"its data check counts {check.bytes_checked} bytes, {check.bytes_wrong} of them wrong"
    if check.bytes_wrong > check.bytes_checked:
        return f"its data check reports {check.bytes_wrong} wrong bytes of {check.bytes_checked}"
    return ""


def _check_samples(result: Result) -> str:
    summary, samples = result.summary, result.samples
    if summary is None:
        return f"it has {len(samples)} samples and no summary" if samples or result.outcome == "measured" else ""
    if result.outcome == "waived":
        return "it is a waived result with a summary"
    if why := explain_invalid_summary(summary):
        return why
    may_be_negative = result.quantity == "latency_s" and result.parameters.get(_DIFFERENCE[0]) == _DIFFERENCE[1]
    lowest = min((summary.minimum, *samples))
    if lowest < 0 and not may_be_negative:
        return f"a value must be at least zero, got {lowest:g}"
    if not samples:
        return "it has a summary but no samples"
    return _check_summary(summary, samples, some_kept=_KEPT in result.settings)


def _check_summary(summary: Summary, samples: tuple[float, ...], *, some_kept: bool) -> str:
    """Compare samples with their summary, as far as possible if the record keeps only some of them."""
    if not all(abs(sample) <= LARGEST for sample in samples):  # NaN is refused too
        return f"every sample must be a finite number of at most {LARGEST:g}"
    slack = _ROUNDING * max(abs(summary.minimum), abs(summary.maximum))
    if some_kept and summary.count > len(samples):
        low, high = min(samples), max(samples)
        outside = low < summary.minimum - slack or high > summary.maximum + slack
        return f"samples from {low:g} to {high:g} are outside the range of its summary" if outside else ""
    if summary.count != len(samples):
        return f"its summary counts {summary.count} samples, but it has {len(samples)}"
    computed = summarise(samples)
    for name in _STATISTICS:
        recorded, true = getattr(summary, name), getattr(computed, name)
        if abs(recorded - true) > max(_ROUNDING * abs(true), slack if summary.minimum < 0 else 0.0):
            return f"the {name} of its summary is {recorded:g}, but its samples give {true:g}"
    return ""


def _describe_negative(what: str, values: Mapping[str, Scalar]) -> str:
    """Describe the first number that is negative or not finite. Returns an empty string if there is none."""
    named = ((name, value) for name, value in values.items() if _is_number(value))
    return next(
        (f"{what} {name[:60]} is {_show(value)}" for name, value in named if not 0 <= value <= LARGEST),
        "",
    )


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _show(value: float) -> str:
    """Return a number for a message. An integer may have more digits than Python prints."""
    return f"above {LARGEST:g}" if value > LARGEST else "far below zero" if value < -LARGEST else str(value)
