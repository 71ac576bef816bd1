"""The words, formats and escapes that all reports share, so that they describe the same thing in the same way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, State
from railwright.diagnosis.verdicts.policy import UNJUDGED
from railwright.diagnosis.verdicts.verdict import LAUNCHES_APART, WORST_FIRST, format_quantity
from railwright.diagnosis.verdicts.verdict import state_word as state_word
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, EXIT_USAGE
from railwright.expected.bands import decides_nothing
from railwright.groups import group_by_key
from railwright.limits.limit import Expected, Limit, NoLimit
from railwright.results.records import Context, End
from railwright.terminal import escape as escape  # templates and pages use it through this module
from railwright.topology.devices import Scalar, Topology
from railwright.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from railwright.results.compare import ComparedPoint, OneSided

ABSENT = "-"
"""The placeholder for a missing value."""

QUANTITY_WORDS = {
    "bandwidth_bytes_per_s": "bandwidth",
    "latency_s": "latency",
    "operations_per_s": "operations",
    "messages_per_s": "messages",
    "flop_per_s": "floating-point operations",
}


class Look(NamedTuple):
    """The appearance of a verdict: a style on a terminal, and a sign on a page that works without colour."""

    style: str
    sign: str
    meaning: str


# Blue and yellow stay apart for the common kinds of colour blindness; green and red are not used together.
STATES: dict[State, Look] = {
    "ok": Look(
        "cyan",
        "\u2713",
        "within the expected band, and at most 2 % above the limit (derived), or 10 % or the spread of the launches"
        " above the limit (measured)",
    ),
    "slow": Look("bold yellow", "\u25bc", "worse than the expected band"),
    "suspicious": Look("bold magenta", "\u25b2", "better than the limit: the measurement or the limit is wrong"),
    "unknown": Look("dim", "?", "no limit or no expected band to compare it with"),
    "reference": Look("default", "\u25c6", "a measurement that others are compared with; it has no verdict of its own"),
    "failed": Look("bold red", "\u2715", "started, but gave no valid value"),
    "waived": Look("dim", "\u2013", "cannot run here"),
}

EXIT_MEANING = {
    EXIT_OK: "every path that can be judged is ok",
    EXIT_SLOW: "something is slow or misconfigured",
    EXIT_USAGE: "wrong usage, or an error of railwright itself",
    EXIT_UNJUDGED: "something could not be judged, and nothing is worse",
}


def scalar(key: str, value: Scalar) -> str:
    """Format a parameter's value; the suffix of its name gives the unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return escape(value)
    if not math.isfinite(value):
        return ABSENT
    if key.endswith("_bytes"):
        return format_size(value)
    return format_duration(value) if key.endswith("_s") else f"{value:g}" if isinstance(value, float) else str(value)


def parameter_words(parameters: Mapping[str, Scalar], *, without: Sequence[str] = ()) -> str:
    """Format parameters like `transport shm, threads 2, size 64 KiB`; empty if nothing was varied."""
    shown = ((key, scalar(key, value)) for key, value in parameters.items() if key not in without)
    return ", ".join(f"{key_words(key)} {value}" for key, value in shown)


def key_words(key: str) -> str:
    """Format a parameter's name without the unit, which its value shows."""
    for unit in ("_bytes", "_s"):
        key = key.removesuffix(unit)
    return escape(key.replace("_", " "))


def quantity(name: str, value: float | None) -> str:
    """Format a value with its unit, or `-` if there is none."""
    return ABSENT if value is None or not math.isfinite(value) else format_quantity(name, value)


def percent(fraction: float | None) -> str:
    """Format a fraction like `3.1 %`: one decimal below 10 %, none from 10 % on."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    value = fraction * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def ratio(value: float | None) -> str:
    """Format a fraction of limit or a ratio of two values: two decimals, three below 0.1, `<0.001` below 0.001."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if 0 < value < 0.0995 else f"{value:.2f}"


def limit_value(limit: Limit | NoLimit) -> str:
    """Format a limit with its unit, or `-`."""
    return quantity(limit.quantity, limit.value) if isinstance(limit, Limit) else ABSENT


def limit_and_share(point: Judged | None) -> tuple[str, str]:
    """Format the limit and the reached share of it. Both are `-` if the limit bounds nothing, as at 8 bytes."""
    if point is None or decides_nothing(point.limit, point.expected):
        return ABSENT, ABSENT
    return limit_value(point.limit), ratio(point.fraction_of_limit)


def bound_and_share(point: Judged | None) -> tuple[str, str]:
    """Format the bound beside a measured value. Lower is better for a latency, so it has no share of a limit: its bound
    is the end of its band, or else its floor.
    """
    limit, share = limit_and_share(point)
    if point is None or point.quantity != "latency_s":
        return limit, share
    if point.expected is not None and point.expected.high:
        return f"\u2264 {quantity(point.quantity, point.expected.high)}", ABSENT
    return (f"\u2265 {limit}" if limit != ABSENT else limit), ABSENT


def wide_spread_words(point: Judged | None) -> str:
    """Describe launches that differ by a factor of two or more; empty for others."""
    medians = sorted(launch.median for launch in point.launches) if point is not None else []
    if point is None or not medians or not 0 < medians[0] * LAUNCHES_APART <= medians[-1]:
        return ""
    low, high = (quantity(point.quantity, value) for value in (medians[0], medians[-1]))
    return f"its launches differ by a factor of {medians[-1] / medians[0]:.1f}: {low} to {high}"


def because(limit: Limit | NoLimit) -> str:
    """Format the kind of limit and its reason, or the reason why there is none."""
    if isinstance(limit, NoLimit):
        missing = f" (missing: {', '.join(limit.missing)})" if limit.missing else ""
        return escape(f"no limit: {limit.why}{missing}")
    return escape(f"{'floor' if limit.quantity == 'latency_s' else 'limit'} ({kind_word(limit)}): {limit.because}")


def kind_word(limit: Limit) -> str:
    """Return the word for the kind of a limit."""
    return "derived" if limit.kind == "derived" else "measured"


def because_of(point: Judged) -> str:
    """Format the kind and the reason of a point's limit; of a latency with the floor, which its bound does not show."""
    floor, _ = limit_and_share(point)
    if point.quantity != "latency_s" or floor == ABSENT or not isinstance(point.limit, Limit):
        return because(point.limit)
    return escape(f"floor ({kind_word(point.limit)}): {floor}, {point.limit.because}")


def band_words(expected: Expected | None, low_only: str = "from {}") -> str:
    """Format a band like `9.1 GB/s to 12 GB/s`, or `from 9.1 GB/s` if only the low side is known."""
    if expected is None:
        return "unknown"
    low = quantity(expected.quantity, expected.low)
    return low_only.format(low) if expected.high is None else f"{low} to {quantity(expected.quantity, expected.high)}"


def why_words(path: JudgedPath) -> str:
    """Return the verdict's reason, or an empty string if it repeats why there is no limit."""
    why = escape(path.verdict.why)
    return "" if path.headline is not None and why in because(path.headline.limit) else why


def join_first(words: Sequence[str], most: int, between: str = ", ") -> str:
    """Join the first words and count the others: `gpu0, gpu1 and 6 more`."""
    left = len(words) - most
    return between.join(words[:most]) + (f" and {left} more" if left > 0 else "")


def size_words(parameters: Mapping[str, Scalar]) -> str:
    """Format the size, like `64 KiB`; empty if no size was varied."""
    return scalar("size_bytes", parameters["size_bytes"]) if "size_bytes" in parameters else ""


def sizes_words(points: Iterable[Judged | ComparedPoint | OneSided], *, listed: int) -> str:
    """List up to `listed` sizes, or format `4 KiB to 1 MiB (9 sizes)`; empty if no size was varied."""
    words = [size_words(point.parameters) for point in points if "size_bytes" in point.parameters]
    return ", ".join(words) if len(words) <= listed else f"{words[0]} to {words[-1]} ({len(words)} sizes)"


def table_lines(title: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a title, then rows of right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield title
    for row in rows:
        yield "  " + "  ".join(map(str.rjust, row, widths)).rstrip()


def ranks_words(ranks: Iterable[int]) -> str:
    """Format numbers of ranks like `4 / 8 ranks`; empty for at most two ranks, which are the path's own ends."""
    found = sorted(set(ranks))
    return f"{' / '.join(map(str, found))} ranks" if found and found[-1] > 2 else ""


def moved_words(end: End | None) -> list[tuple[str, str]]:
    """Return the counters that changed, sorted by name, each with its signed change."""
    return [(escape(name), f"{moved:+d}") for name, moved in sorted(end.counters_moved.items())] if end else []


def state_counts(states: Iterable[State]) -> tuple[tuple[State, int], ...]:
    """Count the states, the worst first, without those that do not occur."""
    found = list(states)
    return tuple((state, found.count(state)) for state in WORST_FIRST if state in found)


def unjudged_points(diagnosis: Diagnosis) -> str:
    """Count the points without the verdict that they should have, like `3 of 84 points`; empty if there are none."""
    states = [point.verdict.state for point in diagnosis.points]
    unjudged = sum(state in UNJUDGED for state in states)
    should = unjudged + sum(state in ("ok", "slow") for state in states)
    return f"{unjudged} of {format_count(should, 'point')}" if unjudged else ""


def closing_words(diagnosis: Diagnosis) -> str:
    """Format the last sentence of a report: the paths that should have a verdict, as the first sentence counts them.

    Baselines and paths that were not run follow, then the meaning of the exit status.
    """
    meaning = EXIT_MEANING.get(diagnosis.exit_status, "not a status of railwright")
    if diagnosis.required:
        meaning = f"of the required paths, {meaning}" if diagnosis.exit_status else "all required paths are ok"
    if not diagnosis.paths:
        return f"No path was measured. Exit status {diagnosis.exit_status}: {meaning}."
    states = dict(state_counts(path.verdict.state for path in diagnosis.paths))
    beside = [
        format_count(states.pop("reference"), "baseline") if "reference" in states else "",
        f"{states.pop('waived')} not run" if "waived" in states else "",
    ]
    counted = ", ".join(f"{number} {state_word(state)}" for state, number in states.items())
    said = f"{format_count(sum(states.values()), 'path')}{f': {counted}' if counted else ''}"
    if any(beside):
        said += f"; besides, {' and '.join(filter(None, beside))}"
    if unjudged := unjudged_points(diagnosis):
        said += f"; {unjudged} could not be judged"
    return f"{said}. Exit status {diagnosis.exit_status}: {meaning}."


def cut_off_words(end: End | None) -> str:
    """Explain why the run is incomplete; empty if it ran to its end."""
    if end is None:
        return "The run was cut off: its records have no last line, so measurements may be missing."
    return f"The run ended early: {escape(end.interrupted)}." if end.interrupted else ""


def noise_words(context: Context) -> str:
    """Format the time that the machine took away while nothing else was measured."""
    noise = context.noise
    if noise is None:
        return "not measured"
    work = f"{noise.quanta} times {format_duration(noise.quantum_s)} of work"
    return f"{percent(noise.lost_fraction)} of the time lost, longest delay {format_duration(noise.worst_s)} ({work})"


def busy_words(context: Context) -> str:
    """Format the load of other processes before the run."""
    return f"{percent(context.busy_fraction)} of all cores before the run, load average {context.load_average:.2f}"


def machine_words(context: Context) -> str:
    """Format the machine, like `vm-1, 2 cores, 24 GiB`."""
    parts = [escape(context.host)]
    if context.cores:
        parts.append(format_count(context.cores, "core"))
    if context.memory_bytes:
        parts.append(format_size(context.memory_bytes))
    return ", ".join(parts)


def gpu_words(topology: Topology) -> str:
    """Format the GPUs, like `2 x NVIDIA H200, driver 580.159.04, CUDA 13.0`; empty without GPUs."""
    gpus = topology.of_kind("gpu")
    if not gpus:
        return ""
    named = [f"{len(group)} x {name or 'GPU'}" for name, group in group_by_key(gpus, lambda gpu: gpu.name)]
    facts = next((host.facts for host in topology.of_kind("host")), {})
    known = (("driver", facts.get("nvidia_driver")), ("CUDA", facts.get("cuda")))
    return escape(", ".join([*named, *(f"{label} {value}" for label, value in known if value)]))
