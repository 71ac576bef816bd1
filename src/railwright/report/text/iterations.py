"""Training iterations as plain text: a bar of compute and exposed communication for each variant of a step.

Mean and standard deviation are shown with the order statistics because comm_bench prints them. Both cover all samples;
the deviation has n in the denominator, like numpy's `std`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railwright.report.text.wording import escape, state_word
from railwright.results.declarations import Declarations, find_benchmarks
from railwright.results.records import Result
from railwright.results.statistics import quantile
from railwright.results.workload import Collective
from railwright.units import format_bandwidth, format_count, format_duration

PARTS = ("iteration", "compute", "exposed", "communication")

_COMPUTE, _EXPOSED = "█", "░"
_BAR_COLUMNS = 60
_MIN_BAR_COLUMNS = 10
_NAME_COLUMNS = 26
_PART_COLUMNS = 13
_NUMBER_COLUMNS = 10
_STATISTICS = ("mean", "median", "min", "max", "std")
_LAST_TO_GO = ("median", "mean", "max", "min", "std")
"""Priority of the statistics: a narrow terminal drops the last ones first."""

_MAX_PLAUSIBLE = 1e18
"""The largest plausible value in a file, in seconds or bytes/s; its square, for the deviation, is still finite."""

_Key = tuple[str, str, str, str]


class _Variant(NamedTuple):
    """A variant of a step, with the samples of all launches by part."""

    seconds: dict[str, list[float]]
    busbw: list[float]
    """In bytes/s."""
    reasons: list[str]
    """The reasons why launches were left out."""
    one: Result
    """Any result of the variant."""


def render_iterations(results: Iterable[Result], declarations: Declarations, width: int = 120) -> str:
    """Render bars and table of all iterations that reduce gradients, `width` columns wide; empty if there are none."""
    training = find_benchmarks(Collective, declarations, in_buckets=True)
    variants: dict[_Key, _Variant] = {}
    for result in results:
        if result.benchmark in training:
            _add(variants, result)
    models = dict.fromkeys(key[0] for key in variants)
    return "\n\n".join("\n".join(_model_lines(variants, model, width)) for model in models)


def _add(variants: dict[_Key, _Variant], result: Result) -> None:
    model, dtype, buckets, overlap = (
        escape(str(result.parameters.get(name, ""))) for name in ("model", "dtype", "buckets", "overlap")
    )
    variant = variants.setdefault((model, dtype, buckets, overlap), _Variant({}, [], [], result))
    absurd = [sample for sample in result.samples if abs(sample) > _MAX_PLAUSIBLE]
    if result.outcome != "measured" or absurd:
        reason = f"{state_word(result.outcome)}: {escape(result.reason)}"
        if absurd:
            part = escape(str(result.parameters.get("part", "a step")))
            reason = f"left out: {absurd[0]:g} is not a plausible sample of {part}"
        if reason not in variant.reasons:
            variant.reasons.append(reason)
        return
    if result.quantity == "latency_s":
        variant.seconds.setdefault(str(result.parameters.get("part", "")), []).extend(result.samples)
    elif result.parameters.get("rate") == "busbw":
        variant.busbw.extend(result.samples)


def _model_lines(variants: dict[_Key, _Variant], model: str, width: int) -> Iterator[str]:
    mine = {_name(key): variant for key, variant in variants.items() if key[0] == model}
    yield _title(model, next(iter(mine.values())).one)
    for name, variant in mine.items():
        for reason in variant.reasons:
            yield f"  {' '.join((*name.split(), reason))}"
    whole = {
        name: variant
        for name, variant in mine.items()
        if variant.seconds.get("iteration") and variant.seconds.get("compute")
    }
    longest_s = max((statistics.fmean(variant.seconds["iteration"]) for variant in whole.values()), default=0.0)
    # The columns left for the longest bar after its name and its time.
    room = width - (2 + _NAME_COLUMNS + _NUMBER_COLUMNS + 1)
    column_s = longest_s / max(_MIN_BAR_COLUMNS, min(_BAR_COLUMNS, room))
    if column_s <= 0:
        return
    yield f"  {_COMPUTE} compute   {_EXPOSED} exposed communication   a column is {format_duration(column_s)}"
    yield ""
    for name, variant in whole.items():
        yield _bar(name, variant, column_s)
    yield ""
    columns = _columns(width)
    heads = "".join(f"{head:>{_NUMBER_COLUMNS}}" for head in columns)
    yield f"  {'':{_NAME_COLUMNS}} {'':{_PART_COLUMNS}}{heads}"
    for name, variant in whole.items():
        yield from _rows(name, variant, columns, width)


def _title(model: str, result: Result) -> str:
    if not model:
        return escape(result.benchmark)
    parameters = result.settings.get("parameters")
    size = f"{parameters:,} parameters, " if isinstance(parameters, int) else ""
    compute = result.settings.get("compute")
    compute_words = f", compute by {escape(str(compute))}" if compute else ""
    because = result.settings.get("compute_because")
    why = f" ({escape(str(because))})" if because else ""
    return f"{escape(result.benchmark)} {model}: {size}{format_count(result.ranks, 'GPU')}{compute_words}{why}"


def _name(key: _Key) -> str:
    _, dtype, buckets, overlap = key
    when = {"yes": "overlapped", "no": "after compute"}.get(overlap, overlap)
    return f"{dtype:5}{buckets:8}{when}"


def _columns(width: int) -> tuple[str, ...]:
    """Return the statistics that fit into a row."""
    room = (width - (2 + _NAME_COLUMNS + 1 + _PART_COLUMNS)) // _NUMBER_COLUMNS
    return tuple(name for name in _STATISTICS if name in _LAST_TO_GO[: max(1, room)])


def _bar(name: str, variant: _Variant, column_s: float) -> str:
    iteration, compute = statistics.fmean(variant.seconds["iteration"]), statistics.fmean(variant.seconds["compute"])
    columns = max(0, round(iteration / column_s))
    computing = max(0, round(min(compute / column_s, columns)))
    bar = _COMPUTE * computing + _EXPOSED * (columns - computing)
    return f"  {name:{_NAME_COLUMNS}}{format_duration(iteration):>{_NUMBER_COLUMNS}} {bar}"


def _rows(name: str, variant: _Variant, columns: tuple[str, ...], width: int) -> Iterator[str]:
    for part in PARTS:
        samples = variant.seconds.get(part)
        if not samples:
            continue
        ordered = sorted(samples)
        numbers = dict(zip(_STATISTICS, (statistics.fmean(ordered), quantile(ordered, 0.5), ordered[0], ordered[-1],
                                         statistics.pstdev(ordered)), strict=True))  # fmt: skip
        shown = "".join(f"{format_duration(numbers[head]):>{_NUMBER_COLUMNS}}" for head in columns)
        row = f"  {name if part == 'iteration' else '':{_NAME_COLUMNS}} {part:{_PART_COLUMNS}}{shown}"
        note = _note(variant) if part == "communication" else ""
        if note and len(row) + 2 + len(note) > width:
            yield row
            yield f"  {'':{_NAME_COLUMNS}} {note}"
        else:
            yield f"{row}  {note}".rstrip()


def _note(variant: _Variant) -> str:
    """Describe the communication: its rate, and the share of it that the compute phase hides."""
    words = []
    if variant.busbw:
        words.append(f"busbw {format_bandwidth(quantile(sorted(variant.busbw), 0.5))}")
    alone, exposed = statistics.fmean(variant.seconds["communication"]), variant.seconds.get("exposed")
    if exposed and alone > 0 and variant.one.parameters.get("overlap") == "yes":
        words.append(f"{min(1.0, max(0.0, 1 - statistics.fmean(exposed) / alone)):.0%} hidden")
    return ", ".join(words)
