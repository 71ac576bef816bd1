"""Values of a single size as a chart of lanes: the expected band, limits and launches as ticks, medians as marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import group_by_key
from railwright.limits.limit import Quantity
from railwright.report.pictures import axes
from railwright.report.pictures.chart import Entry, Figure, LaneChart, Panel
from railwright.report.pictures.series import (
    Head,
    Series,
    by_limit,
    draw_signs,
    drawable_value,
    launch_entries,
    launch_points,
    limit_entries,
    limit_value,
    make_figure,
    shown_values,
    sign_entries,
    sizes_words,
    summarize,
)
from railwright.report.view import slow_edge

_MANY = 6
"""More paths of the same parameters share a lane."""
_MAX_SPAN = 8.0
"""The factor between the values of lanes from which their axis is logarithmic."""
_TICK, _LIMIT, _UPRIGHT = "m0-5v10", "m0-9v18", "M14 1v12"


class Lane(NamedTuple):
    """A row of a chart: a curve of a single size, or the same parameters over many paths."""

    label: str
    curves: tuple[Series, ...]

    @property
    def points(self) -> list[Judged]:
        """The points of all curves, in the order of the table."""
        return [point for curve in self.curves for point in curve.points]


def make_lanes(curves: Sequence[Series], *, without_size: bool) -> list[Lane]:
    """Return a lane for each curve, but one for all paths of the same parameters if these are many."""
    lanes = []
    for (varied, sizes), group in group_by_key(curves, lambda curve: (curve.varied, sizes_words(curve))):
        sizes = "" if without_size else sizes
        if len(group) > _MANY:
            words = ", ".join(filter(None, (varied, sizes, f"{len(group)} paths")))
            lanes.append(Lane(words, tuple(group)))
        else:
            lanes += [Lane(", ".join(filter(None, (curve.name, sizes))) or "measured", (curve,)) for curve in group]
    return lanes


def lane_figure(head: Head, lanes: Sequence[Lane]) -> Figure:
    """Draw a lane for each label: the expected band, limits and launches as ticks, medians as marks."""
    points = [point for lane in lanes for point in lane.points]
    lanes_chart = LaneChart(_lane_axis(head.quantity, shown_values(points)), [lane.label for lane in lanes])
    row = 0
    for lane, middle in zip(lanes, lanes_chart.middles, strict=True):
        _draw_lane(lanes_chart.panel, lane.points, middle, row)
        row += len(lane.points)
    curves = [curve for lane in lanes for curve in lane.curves]
    drawn = lanes_chart.svg(head.title, summarize(head, curves))
    return make_figure(head, curves, drawn, legend=_lane_legend(head.quantity, points), is_swept=False)


def _lane_axis(quantity: Quantity, values: Sequence[float]) -> axes.Axis:
    """Return an axis from 0, or a logarithmic one if the smallest values would be told apart no more."""
    if max(values) <= _MAX_SPAN * min(values):
        return axes.rate_axis(quantity, values)
    return axes.value_axis(quantity, values, [])


def _draw_lane(panel: Panel, points: Sequence[Judged], middle: float, row: int) -> None:
    ends = [(drawable_value(slow_edge(point)), limit_value(point)) for point in points]
    if banded := [end for pair in ends if all(pair) for end in pair]:
        panel.line([(min(banded), middle), (max(banded), middle)], "healthy")
    launches = [(median, middle) for _, median in launch_points(points, lambda _: 1.0)]
    if launches:
        panel.ticks(launches, "launches s1", _TICK)
    for style, limited in by_limit(points):
        limits = dict.fromkeys(limit_value(point) for point in limited)
        panel.ticks([(value, middle) for value in limits], f"{style} ink", _LIMIT)
    medians = [(drawable_value(point.value), middle) for point in points]
    panel.line(medians, "marks", "m1o" if len(points) > 1 else "m1", row=row)
    draw_signs(panel, [(*pair, point.verdict.state) for pair, point in zip(medians, points, strict=True)])


def _lane_legend(quantity: Quantity, points: Sequence[Judged]) -> tuple[Entry, ...]:
    entries = [Entry(words="median", style="marks", marker="m1"), *launch_entries(points, _UPRIGHT)]
    entries += limit_entries(quantity, points, shape=_UPRIGHT)
    if any(slow_edge(point) and limit_value(point) for point in points):
        entries.append(Entry(words="expected band", style="healthy"))
    return (*entries, *sign_entries(points))
