"""What no record of a measurement can say: our own files are read as strictly as those of other tools.

A verdict on a record that was changed by hand, or broken, would be false.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from railwright.results.records import Context, Disturbed, End, Record, Result, Run, Summary, Verification
from railwright.results.statistics import summarise, why_no_summary
from railwright.topology.devices import Scalar
from railwright.topology.possible import refuse_impossible

_ROUNDING = 1e-5
"""Relative. Samples are kept to six significant digits; the summary was made of them before (`statistics.rounded`)."""
_KEPT = "samples_kept"
"""The setting that says that only some of the samples are in the record."""
_STATISTICS = ("minimum", "median_low", "median", "median_high", "p99", "maximum")
_DIFFERENCE = ("part", "exposed")
"""The parameter of a time that is the difference of two: noise can make it negative."""


def why_impossible(record: Record, name: str = "") -> str:
    """Why no measurement can have left this record; empty where one can.

    `name` is what the topology of a run is called in errors. Raises UsageError for a topology that cannot be.
    """
    if isinstance(record, Run):
        refuse_impossible(record.topology, name)
        return _of_context(record.context)
    if isinstance(record, End):
        return _negative("counter", record.counters_moved)
    if isinstance(record, Disturbed):
        share = record.others_fraction
        return "" if 0 <= share <= 1 and record.launch >= 0 else f"others_fraction is {share}, launch {record.launch}"
    return _of_result(record)


def _of_context(context: Context) -> str:
    numbers: dict[str, Scalar] = {name: getattr(context, name) for name in ("cores", "memory_bytes", "load_average")}
    shares = {"busy_fraction": context.busy_fraction}
    if (noise := context.noise) is not None:
        numbers |= {"quantum_s": noise.quantum_s, "worst_s": noise.worst_s, "quanta": noise.quanta}
        shares["lost_fraction"] = noise.lost_fraction
    above = next((f"{name} is {value}, above 1" for name, value in shares.items() if value > 1), "")
    return _negative("the context's", {**numbers, **shares, **context.clocks}) or above


def _of_result(result: Result) -> str:
    for name, value, least in (("ranks", result.ranks, 1), ("hosts", result.hosts, 1), ("launch", result.launch, 0)):
        if value < least:
            return f"{name} is {value}"
    counts = {name: value for name, value in result.settings.items() if isinstance(value, int)}
    return (
        _negative("parameter", result.parameters)
        or _negative("setting", counts)
        or _of_check(result.verification)
        or _of_samples(result)
    )


def _of_check(check: Verification | None) -> str:
    if check is None:
        return ""
    if check.bytes_checked < 0 or check.bytes_wrong < 0:
        return f"its data check is of {check.bytes_checked} bytes, {check.bytes_wrong} of them wrong"
    if check.bytes_wrong > check.bytes_checked:
        return f"{check.bytes_wrong} bytes are wrong of {check.bytes_checked} that were checked"
    return ""


def _of_samples(result: Result) -> str:
    summary, samples = result.summary, result.samples
    if summary is None:
        return f"it has {len(samples)} samples and no summary" if samples or result.outcome == "measured" else ""
    if result.outcome == "waived":
        return "it was waived and has a summary"
    if why := why_no_summary(summary):
        return why
    may_be_negative = result.quantity == "latency_s" and result.parameters.get(_DIFFERENCE[0]) == _DIFFERENCE[1]
    least = min((summary.minimum, *samples))
    if least < 0 and not may_be_negative:
        return f"a value of {least:g}, and none can be below zero"
    if not samples:
        return "a summary without its samples"
    return _of_both(summary, samples, some_kept=_KEPT in result.settings)


def _of_both(summary: Summary, samples: tuple[float, ...], *, some_kept: bool) -> str:
    """Whether these samples have that summary, as far as it can be known where only some were kept."""
    if not all(map(math.isfinite, samples)):
        return "a sample is no finite number"
    slack = _ROUNDING * max(abs(summary.minimum), abs(summary.maximum))
    if some_kept and summary.count > len(samples):
        low, high = min(samples), max(samples)
        outside = low < summary.minimum - slack or high > summary.maximum + slack
        return f"samples from {low:g} to {high:g} are outside of its summary" if outside else ""
    if summary.count != len(samples):
        return f"a summary of {summary.count} samples, and {len(samples)} are there"
    made = summarise(samples)
    for name in _STATISTICS:
        said, true = getattr(summary, name), getattr(made, name)
        if abs(said - true) > max(_ROUNDING * abs(true), slack if summary.minimum < 0 else 0.0):
            return f"the {name} of its summary is {said:g}, that of its samples {true:g}"
    return ""


def _negative(what: str, values: Mapping[str, Scalar]) -> str:
    """The first of the numbers that is below zero or not finite."""
    named: Iterable[tuple[str, Scalar]] = ((name, value) for name, value in values.items() if _is_number(value))
    return next(
        (f"{what} {name[:60]} is {value}" for name, value in named if not 0 <= float(value) < math.inf),
        "",
    )


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
