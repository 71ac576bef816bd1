"""Curves of judged points: the values that a chart shows, the signs of their verdicts, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from railwright.diagnosis.verdicts.judged import Judged, State
from railwright.expected.bands import decides_nothing
from railwright.groups import group_by_key
from railwright.limits.limit import Limit, Quantity
from railwright.report.pictures.chart import LEVEL, SIGNED, Entry, Figure, Panel, Row
from railwright.report.text import wording
from railwright.report.view import slow_edge

_DASHES = {"derived": "limit", "measured_ceiling": "limit measured"}
_NAMED = 16
"""The curves that a summary names."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A curve with its points by size; its number from 1 to 6 gives its colour and its mark."""

    name: str
    path: str
    varied: str
    number: int
    points: tuple[Judged, ...]

    @property
    def style(self) -> str:
        """The class of the curve's colour."""
        return f"s{self.number}"


class Head(NamedTuple):
    """The words above a figure."""

    title: str
    note: str
    """The parameters that all curves share."""
    quantity: Quantity


def drawable_value(value: float | None) -> float:
    """Return the value if it can be drawn, else 0."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def size_of(point: Judged) -> float:
    """Return the point's size in bytes; 0 if it has none that can be drawn."""
    size = point.parameters.get("size_bytes")
    return drawable_value(float(size)) if isinstance(size, int | float) and not isinstance(size, bool) else 0.0


def is_swept(curve: Series) -> bool:
    """Report whether the curve has several sizes."""
    return sum(map(bool, map(size_of, curve.points))) > 1


def sizes_words(curve: Series) -> str:
    """List the sizes of the points in words; empty if they have none."""
    return ", ".join(sorted({wording.scalar("size_bytes", size) for size in map(size_of, curve.points) if size}))


def limit_value(point: Judged) -> float:
    """Return the limit to draw, else 0: a limit that bounds nothing would stretch the axis by decades."""
    if not isinstance(point.limit, Limit) or decides_nothing(point.limit, point.expected):
        return 0.0
    return drawable_value(point.limit.value)


def by_limit(points: Iterable[Judged]) -> Iterable[tuple[str, list[Judged]]]:
    """Group the points that have a limit to draw by the style of its kind."""
    limited = [point for point in points if limit_value(point)]
    return group_by_key(limited, lambda point: _DASHES[point.limit.kind] if isinstance(point.limit, Limit) else "")


def band_of(point: Judged) -> tuple[float | None, float | None]:
    """Return the range of all launches' samples; a latency's band ends at its p99, since outliers have no bound."""
    if not point.launches:
        return None, None
    low = min(launch.minimum for launch in point.launches)
    if point.quantity == "latency_s":
        return low, max(launch.p99 for launch in point.launches)
    return low, max(launch.maximum for launch in point.launches)


def launch_points(points: Sequence[Judged], across: Callable[[Judged], float]) -> list[tuple[float, float]]:
    """Return the median of each launch, at the place of its point on the horizontal axis."""
    pairs = [(across(point), drawable_value(launch.median)) for point in points for launch in point.launches]
    return [(x, median) for x, median in pairs if x and median]


def shown_values(points: Sequence[Judged]) -> list[float]:
    """List the values that a figure must show: medians, launches and limits."""
    values = [value for point in points for value in (point.value, limit_value(point))]
    values += [launch.median for point in points for launch in point.launches]
    return [*filter(None, map(drawable_value, values))]


def draw_signs(panel: Panel, points: Sequence[tuple[float, float, State]]) -> None:
    """Draw the signs of verdicts other than ok around points of x, y and verdict."""
    for state in SIGNED:
        if signed := [(x, y) for x, y, seen in points if seen == state]:
            panel.line(signed, "marks", state)


def make_figure(head: Head, curves: Sequence[Series], svg: str, *, legend: tuple[Entry, ...], is_swept: bool) -> Figure:
    """Return the figure of a drawn chart, with its summary, its caption and its table."""
    points = [point for curve in curves for point in curve.points]
    rows = [_row(curve.name, point) for curve in curves for point in curve.points]
    worst, bound = ("fastest", "at most") if head.quantity == "latency_s" else ("slowest", "limit")
    columns = ("median", worst, "p99", "launches", "spread", bound, "of limit")
    filled = [place for place in range(len(columns)) if any(row.cells[place] != wording.ABSENT for row in rows)]
    return Figure(
        title=head.title,
        note=head.note,
        summary=summarize(head, curves),
        svg=svg,
        legend=legend,
        caption=_caption(head.quantity, points, is_swept),
        columns=tuple(columns[place] for place in filled),
        rows=tuple(msgspec.structs.replace(row, cells=tuple(row.cells[place] for place in filled)) for row in rows),
    )


def summarize(head: Head, curves: Sequence[Series]) -> str:
    """Describe a chart in a sentence for those who do not see it."""
    quantity = head.quantity
    medians = [point.value for curve in curves for point in curve.points if point.value is not None]
    span = f"{wording.quantity(quantity, min(medians))} to {wording.quantity(quantity, max(medians))}"
    names = wording.join_first([curve.name for curve in curves if curve.name], _NAMED, between="; ")
    across = "over the size" if any(map(is_swept, curves)) else "for each setting"
    return f"{head.title} {across}: {span}." + (f" Curves: {names}." if names else "")


def _caption(quantity: Quantity, points: Sequence[Judged], is_swept: bool) -> str:
    better, band = "Higher", "the slowest to the fastest sample"
    if quantity == "latency_s":
        better, band = "Lower", "the fastest sample to the 99th percentile"
    sentences = [
        f"{better} is better.",
        "Large marks: median of the launches. Small marks: each launch.",
        f"Band: {band}, cut off at the edge of the figure." if is_swept else "",
        "" if any(map(limit_value, points)) else "No limit is known.",
        "Beyond the end of the expected band a value is slow." if any(map(slow_edge, points)) else "",
    ]
    return " ".join(filter(None, sentences))


def _row(name: str, point: Judged) -> Row:
    low, high = band_of(point)
    return Row(
        series=name,
        size=wording.size_words(point.parameters),
        cells=(
            wording.quantity(point.quantity, point.value),
            wording.quantity(point.quantity, low),
            wording.quantity(point.quantity, max((launch.p99 for launch in point.launches), default=high)),
            str(len(point.launches)),
            wording.percent(point.launch_spread),
            *_bound_and_share(point),
        ),
        state=point.verdict.state,
    )


def _bound_and_share(point: Judged) -> tuple[str, str]:
    """Return the limit and the reached share of it; of a latency the end of its band, and no share."""
    if point.quantity == "latency_s":
        return wording.quantity(point.quantity, slow_edge(point)), wording.ABSENT
    return wording.limit_and_share(point)


def launch_entries(points: Sequence[Judged], shape: str) -> list[Entry]:
    """Return the legend of single launches, if any point has several."""
    return (
        [Entry(words="a launch", style="launches s1", shape=shape)] if any(len(p.launches) > 1 for p in points) else []
    )


def limit_entries(quantity: Quantity, points: Sequence[Judged], shape: str = LEVEL) -> list[Entry]:
    """Return the legend of each kind of limit that is drawn."""
    noun = "floor" if quantity == "latency_s" else "limit"
    return [
        Entry(words=f"{noun} ({'measured' if 'measured' in style else 'derived'})", style=f"{style} ink", shape=shape)
        for style, _ in by_limit(points)
    ]


def sign_entries(points: Sequence[Judged]) -> list[Entry]:
    """Return the legend of the signs of verdicts that occur."""
    seen = {point.verdict.state for point in points}
    return [Entry(words=wording.state_word(state), style="marks", marker=state) for state in SIGNED if state in seen]
