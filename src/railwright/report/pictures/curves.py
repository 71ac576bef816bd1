"""Values over sizes as a chart: both axes logarithmic, bands below the limits, launches and medians on top."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from railwright.diagnosis.verdicts.judged import Judged
from railwright.limits.limit import Quantity
from railwright.report.pictures import axes
from railwright.report.pictures.chart import Entry, Figure, Panel, chart, label, plot_box
from railwright.report.pictures.series import (
    Head,
    Series,
    band_of,
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
    size_of,
    summarize,
)
from railwright.report.view import slow_edge

_TICK, _DASH, _AREA = "m-4 0h8", "M10 7h8", "M2 1H26V13H2z"


def curve_figure(head: Head, curves: Sequence[Series]) -> Figure:
    """Draw values over sizes: bands below the limits, launches and medians on top."""
    points = [point for curve in curves for point in curve.points if size_of(point)]
    edges = filter(None, (drawable_value(slow_edge(point)) for point in points))
    ends = filter(None, (drawable_value(end) for point in points for end in band_of(point)))
    height = 262.0
    panel = Panel(
        plot_box(height),
        axes.size_axis(sorted({size_of(point) for point in points})),
        axes.value_axis(head.quantity, [*shown_values(points), *edges], [*ends]),
    )
    for curve in curves:
        _draw_band(panel, curve)
    _draw_limits(panel, curves)
    row = 0
    for curve in curves:
        _draw_values(panel, curve, row)
        row += len(curve.points)
    axis_words = label(panel.left + panel.width / 2, height - 3, "size", anchor="middle")
    drawn = chart(head.title, summarize(head, curves), height, [panel], axis_words)
    return make_figure(head, curves, drawn, legend=_curve_legend(head.quantity, curves), is_swept=True)


def _draw_band(panel: Panel, curve: Series) -> None:
    ends = [(point, *band_of(point)) for point in curve.points]
    rows = [(size_of(point), drawable_value(low), drawable_value(high)) for point, low, high in ends]
    shown = [row for row in rows if all(row)]
    if len(shown) > 1:
        panel.area(
            [(size, low) for size, low, _ in shown], [(size, high) for size, _, high in shown], f"band {curve.style}"
        )


def _draw_limits(panel: Panel, curves: Sequence[Series]) -> None:
    """Draw limits by kind, and the ends of expected bands. A limit that all curves share is drawn once, in ink."""
    limits = [
        tuple((style, _pairs(points, limit_value)) for style, points in by_limit(curve.points)) for curve in curves
    ]
    is_shared = len(curves) > 1 and len(set(limits)) == 1
    for curve, lines in zip(curves, limits, strict=True):
        for style, line in lines if not is_shared or curve is curves[0] else ():
            _draw_line(panel, line, f"{style} {'ink' if is_shared else curve.style}")
        if edge := _pairs(curve.points, slow_edge):
            _draw_line(panel, edge, f"expected {curve.style}")


def _draw_line(panel: Panel, points: Sequence[tuple[float, float]], style: str) -> None:
    """Draw a line; it needs two points, so a single point is drawn as a short bar."""
    if len(points) > 1:
        panel.line(points, style)
    else:
        panel.ticks(points, style, "m-9 0h18")


def _draw_values(panel: Panel, curve: Series, row: int) -> None:
    """Draw the launches, the medians and the signs of their verdicts; `row` is the curve's place in the table."""
    launches = launch_points(curve.points, size_of)
    if launches:
        panel.ticks(launches, f"launches {curve.style}", _TICK)
    shown = [(size_of(point), drawable_value(point.value), point.verdict.state) for point in curve.points]
    medians = [(size, value) for size, value, _ in shown if size]
    panel.line(medians, f"median {curve.style}", f"m{curve.number}", row=row + len(shown) - len(medians))
    draw_signs(panel, [(size, value, state) for size, value, state in shown if size])


def _pairs(points: Iterable[Judged], value: Callable[[Judged], float | None]) -> tuple[tuple[float, float], ...]:
    pairs = ((size_of(point), drawable_value(value(point))) for point in points)
    return tuple((size, found) for size, found in pairs if size and found)


def _curve_legend(quantity: Quantity, curves: Sequence[Series]) -> tuple[Entry, ...]:
    entries = [Entry(words=curve.name or "median", style=f"median {curve.style}", marker=f"m{curve.number}")
               for curve in curves]  # fmt: skip
    points = [point for curve in curves for point in curve.points if size_of(point)]
    entries += limit_entries(quantity, points)
    if any(drawable_value(slow_edge(point)) for point in points):
        entries.append(Entry(words="end of the expected band", style="expected ink"))
    entries += launch_entries(points, _DASH)
    if any(all(map(drawable_value, band_of(point))) for point in points):
        entries.append(Entry(words="samples", style="band s1", shape=_AREA))
    return (*entries, *sign_entries(points))
