"""The curves of a report as charts, and the tables of the numbers behind them.

Each style has the same meaning in all figures:

    thick line    median of the launches      band      spread of the samples
    small marks   each launch's median        dashed    the limit: long dashes if derived, dashes and dots if measured
    large sign    the verdict, if not ok      dotted    the end of the expected band beyond which a value is slow
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from railwright.diagnosis.verdicts.judged import Judged, State
from railwright.expected.nccl_collectives import decides_nothing
from railwright.groups import group_by_key
from railwright.limits.limit import Limit, Quantity
from railwright.report.pictures import axes
from railwright.report.pictures.chart import LEVEL, SIGNED, Entry, Figure, LaneChart, Panel, Row, chart, label, plot_box
from railwright.report.text import wording
from railwright.report.view import slow_edge
from railwright.topology.devices import Scalar

MAX_SERIES = 6
"""Further curves go into another figure: everyone can distinguish six colours (Okabe and Ito 2008)."""
_MAX_LANES = 16
"""Further lanes go into another figure."""

_MAX_SPAN = 8.0
"""The factor between the values of lanes from which their axis is logarithmic."""

Item = TypeVar("Item")

_TICK, _LANE_TICK, _LANE_LIMIT = "m-4 0h8", "m0-5v10", "m0-9v18"
_AREA, _UPRIGHT = "M2 1H26V13H2z", "M14 1v12"
_DASHES = {"derived": "limit", "measured_ceiling": "limit measured"}


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


def figures(points: Iterable[Judged]) -> tuple[Figure, ...]:
    """Build figures for every benchmark and quantity that has a measured point.

    Curves over the size come first, at most six in a figure; then those of a single size, a lane each.
    """
    # A logarithmic axis has no place for other points. The table of paths has them, with their verdicts.
    drawn = (point for point in points if _drawable_value(point.value))
    made: list[Figure] = []
    for (benchmark, quantity), group in group_by_key(drawn, lambda point: (point.benchmark, point.quantity)):
        shared = _shared_parameters(group)
        curves = _series(group, without=("size_bytes", *shared))
        note = wording.parameter_words(shared)
        swept = [curve for curve in curves if _is_swept(curve)]
        single = [curve for curve in curves if not _is_swept(curve)]
        sizes = {_sizes_words(curve) for curve in single}
        shared_size = sizes.pop() if len(sizes) == 1 and len(single) > 1 else ""
        lanes = _lanes(single, without_size=bool(shared_size))
        title = f"{wording.escape(benchmark)}, {wording.QUANTITY_WORDS[quantity]}"
        for suffix, part in _parts(swept, MAX_SERIES):
            numbered = [msgspec.structs.replace(curve, number=number) for number, curve in enumerate(part, 1)]
            made.append(_curve_figure(_Head(title + suffix, _all(note), quantity), numbered))
        for suffix, lanes_part in _parts(lanes, _MAX_LANES):
            made.append(_lane_figure(_Head(title + suffix, _all(note, shared_size), quantity), lanes_part))
    return tuple(made)


def _shared_parameters(points: Sequence[Judged]) -> dict[str, Scalar]:
    """Return the parameters that all curves share, unless there is only one curve."""
    first, *others = points
    shared = {key: value for key, value in first.parameters.items()
              if key != "size_bytes" and all(point.parameters.get(key) == value for point in others)}  # fmt: skip
    is_alone = all(point.path == first.path and len(point.parameters.keys() - shared.keys() - {"size_bytes"}) == 0
                   for point in points)  # fmt: skip
    return {} if is_alone else shared


def _series(points: Sequence[Judged], *, without: Sequence[str]) -> list[Series]:
    """Return the curves of a benchmark and quantity, with names that tell them apart."""
    groups = list(group_by_key(
        points, lambda point: (point.path, wording.parameter_words(point.parameters, without=without))
    ))  # fmt: skip
    one_path = len({path for (path, _), _ in groups}) == 1
    return [
        Series(
            name=varied if one_path and varied else ", ".join(filter(None, (wording.escape(path), varied))),
            path=wording.escape(path), varied=varied, number=1, points=tuple(sorted(found, key=_size)),
        ) for (path, varied), found in groups
    ]  # fmt: skip


def _is_swept(curve: Series) -> bool:
    return sum(map(bool, map(_size, curve.points))) > 1


def _parts(items: Sequence[Item], most: int) -> Iterator[tuple[str, Sequence[Item]]]:
    """Yield at most `most` items at a time, with words that count the parts if there are several."""
    parts = math.ceil(len(items) / most)
    for part in range(parts):
        yield (f" ({part + 1} of {parts})" if parts > 1 else ""), items[part * most : (part + 1) * most]


class _Head(NamedTuple):
    """The words above a figure."""

    title: str
    note: str
    """The parameters that all curves share."""
    quantity: Quantity


class _Lane(NamedTuple):
    """A row of a chart: a curve of a single size, or the same parameters over many paths."""

    label: str
    curves: tuple[Series, ...]

    @property
    def points(self) -> list[Judged]:
        return [point for curve in self.curves for point in curve.points]


def _all(*shared: str) -> str:
    words = ", ".join(filter(None, shared))
    return f"all: {words}" if words else ""


def _lanes(curves: Sequence[Series], *, without_size: bool) -> list[_Lane]:
    """Return a lane for each curve, but one for all paths of the same parameters if these are many."""
    lanes = []
    for (varied, sizes), group in group_by_key(curves, lambda curve: (curve.varied, _sizes_words(curve))):
        sizes = "" if without_size else sizes
        if len(group) > MAX_SERIES:
            words = ", ".join(filter(None, (varied, sizes, f"{len(group)} paths")))
            lanes.append(_Lane(words, tuple(group)))
        else:
            lanes += [_Lane(", ".join(filter(None, (curve.name, sizes))) or "measured", (curve,)) for curve in group]
    return lanes


def _sizes_words(curve: Series) -> str:
    return ", ".join(sorted({wording.scalar("size_bytes", size) for size in map(_size, curve.points) if size}))


def _drawable_value(value: float | None) -> float:
    """Return the value if it can be drawn, else 0."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def _size(point: Judged) -> float:
    """Return the point's size in bytes; 0 if it has none that can be drawn."""
    size = point.parameters.get("size_bytes")
    return _drawable_value(float(size)) if isinstance(size, int | float) and not isinstance(size, bool) else 0.0


def _curve_figure(head: _Head, curves: Sequence[Series]) -> Figure:
    """Draw values over sizes: bands below the limits, launches and medians on top."""
    points = [point for curve in curves for point in curve.points if _size(point)]
    edges = filter(None, (_drawable_value(slow_edge(point)) for point in points))
    ends = filter(None, (_drawable_value(end) for point in points for end in _band(point)))
    height = 262.0
    panel = Panel(
        plot_box(height),
        axes.size_axis(sorted({_size(point) for point in points})),
        axes.value_axis(head.quantity, [*_shown_values(points), *edges], [*ends]),
    )
    for curve in curves:
        _draw_band(panel, curve)
    _draw_limits(panel, curves)
    row = 0
    for curve in curves:
        _draw_values(panel, curve, row)
        row += len(curve.points)
    axis_words = label(panel.left + panel.width / 2, height - 3, "size", anchor="middle")
    drawn = chart(head.title, _summary(head, curves), height, [panel], axis_words)
    return _figure(head, curves, drawn, legend=_curve_legend(head.quantity, curves), is_swept=True)


def _draw_band(panel: Panel, curve: Series) -> None:
    ends = [(point, *_band(point)) for point in curve.points]
    rows = [(_size(point), _drawable_value(low), _drawable_value(high)) for point, low, high in ends]
    shown = [row for row in rows if all(row)]
    if len(shown) > 1:
        panel.area(
            [(size, low) for size, low, _ in shown], [(size, high) for size, _, high in shown], f"band {curve.style}"
        )


def _draw_limits(panel: Panel, curves: Sequence[Series]) -> None:
    """Draw limits by kind, and the ends of expected bands. A limit that all curves share is drawn once, in ink."""
    limits = [
        tuple((style, _pairs(points, _limit_value)) for style, points in _by_limit(curve.points)) for curve in curves
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
    launches = _launches(curve.points, _size)
    if launches:
        panel.ticks(launches, f"launches {curve.style}", _TICK)
    shown = [(_size(point), _drawable_value(point.value), point.verdict.state) for point in curve.points]
    medians = [(size, value) for size, value, _ in shown if size]
    panel.line(medians, f"median {curve.style}", f"m{curve.number}", row=row + len(shown) - len(medians))
    _draw_signs(panel, [(size, value, state) for size, value, state in shown if size])


def _draw_signs(panel: Panel, points: Sequence[tuple[float, float, State]]) -> None:
    for state in SIGNED:
        if signed := [(x, y) for x, y, seen in points if seen == state]:
            panel.line(signed, "marks", state)


def _launches(points: Sequence[Judged], across: Callable[[Judged], float]) -> list[tuple[float, float]]:
    pairs = [(across(point), _drawable_value(launch.median)) for point in points for launch in point.launches]
    return [(x, median) for x, median in pairs if x and median]


def _pairs(points: Iterable[Judged], value: Callable[[Judged], float | None]) -> tuple[tuple[float, float], ...]:
    pairs = ((_size(point), _drawable_value(value(point))) for point in points)
    return tuple((size, found) for size, found in pairs if size and found)


def _limit_value(point: Judged) -> float:
    """Return the limit to draw, else 0: a limit that bounds nothing would stretch the axis by decades."""
    if not isinstance(point.limit, Limit) or decides_nothing(point.limit, point.expected):
        return 0.0
    return _drawable_value(point.limit.value)


def _by_limit(points: Iterable[Judged]) -> Iterable[tuple[str, list[Judged]]]:
    """Group the points that have a limit to draw by the style of its kind."""
    limited = [point for point in points if _limit_value(point)]
    return group_by_key(limited, lambda point: _DASHES[point.limit.kind] if isinstance(point.limit, Limit) else "")


def _lane_figure(head: _Head, lanes: Sequence[_Lane]) -> Figure:
    """Draw a lane for each label: the expected band, limits and launches as ticks, medians as marks."""
    points = [point for lane in lanes for point in lane.points]
    lanes_chart = LaneChart(_lane_axis(head.quantity, _shown_values(points)), [lane.label for lane in lanes])
    row = 0
    for lane, middle in zip(lanes, lanes_chart.middles, strict=True):
        _draw_lane(lanes_chart.panel, lane.points, middle, row)
        row += len(lane.points)
    curves = [curve for lane in lanes for curve in lane.curves]
    drawn = lanes_chart.svg(head.title, _summary(head, curves))
    return _figure(head, curves, drawn, legend=_lane_legend(head.quantity, points), is_swept=False)


def _lane_axis(quantity: Quantity, values: Sequence[float]) -> axes.Axis:
    """Return an axis from 0, or a logarithmic one if the smallest values would be told apart no more."""
    if max(values) <= _MAX_SPAN * min(values):
        return axes.rate_axis(quantity, values)
    return axes.value_axis(quantity, values, [])


def _draw_lane(panel: Panel, points: Sequence[Judged], middle: float, row: int) -> None:
    ends = [(_drawable_value(slow_edge(point)), _limit_value(point)) for point in points]
    if banded := [end for pair in ends if all(pair) for end in pair]:
        panel.line([(min(banded), middle), (max(banded), middle)], "healthy")
    launches = [(median, middle) for _, median in _launches(points, lambda _: 1.0)]
    if launches:
        panel.ticks(launches, "launches s1", _LANE_TICK)
    for style, limited in _by_limit(points):
        limits = dict.fromkeys(_limit_value(point) for point in limited)
        panel.ticks([(value, middle) for value in limits], f"{style} ink", _LANE_LIMIT)
    medians = [(_drawable_value(point.value), middle) for point in points]
    panel.line(medians, "marks", "m1o" if len(points) > 1 else "m1", row=row)
    _draw_signs(panel, [(*pair, point.verdict.state) for pair, point in zip(medians, points, strict=True)])


def _figure(head: _Head, curves: Sequence[Series], svg: str, *, legend: tuple[Entry, ...],
            is_swept: bool) -> Figure:  # fmt: skip
    points = [point for curve in curves for point in curve.points]
    worst = "fastest" if head.quantity == "latency_s" else "slowest"
    return Figure(
        title=head.title,
        note=head.note,
        summary=_summary(head, curves),
        svg=svg,
        legend=legend,
        caption=_caption(head.quantity, points, is_swept),
        columns=("median", worst, "p99", "launches", "spread", "limit", "of limit"),
        rows=tuple(_row(curve.name, point) for curve in curves for point in curve.points),
    )


def _summary(head: _Head, curves: Sequence[Series]) -> str:
    quantity = head.quantity
    medians = [point.value for curve in curves for point in curve.points if point.value is not None]
    span = f"{wording.quantity(quantity, min(medians))} to {wording.quantity(quantity, max(medians))}"
    names = wording.join_first([curve.name for curve in curves if curve.name], _MAX_LANES, between="; ")
    across = "over the size" if any(map(_is_swept, curves)) else "for each setting"
    return f"{head.title} {across}: {span}." + (f" Curves: {names}." if names else "")


def _caption(quantity: Quantity, points: Sequence[Judged], is_swept: bool) -> str:
    better, band = "Higher", "the slowest to the fastest sample"
    if quantity == "latency_s":
        better, band = "Lower", "the fastest sample to the 99th percentile"
    sentences = [
        f"{better} is better.",
        "Large marks: median of the launches. Small marks: each launch.",
        f"Band: {band}, cut off at the edge of the figure." if is_swept else "",
        "" if any(map(_limit_value, points)) else "No limit is known.",
        "Beyond the end of the expected band a value is slow." if any(map(slow_edge, points)) else "",
    ]
    return " ".join(filter(None, sentences))


def _curve_legend(quantity: Quantity, curves: Sequence[Series]) -> tuple[Entry, ...]:
    entries = [Entry(words=curve.name or "median", style=f"median {curve.style}", marker=f"m{curve.number}")
               for curve in curves]  # fmt: skip
    points = [point for curve in curves for point in curve.points if _size(point)]
    entries += _limit_entries(quantity, points)
    if any(_drawable_value(slow_edge(point)) for point in points):
        entries.append(Entry(words="end of the expected band", style="expected ink"))
    if any(all(map(_drawable_value, _band(point))) for point in points):
        entries.append(Entry(words="samples", style="band s1", shape=_AREA))
    return (*entries, *_sign_entries(points))


def _lane_legend(quantity: Quantity, points: Sequence[Judged]) -> tuple[Entry, ...]:
    entries = [Entry(words="median", style="marks", marker="m1")]
    entries += _limit_entries(quantity, points, shape=_UPRIGHT)
    if any(slow_edge(point) and _limit_value(point) for point in points):
        entries.append(Entry(words="expected band", style="healthy"))
    return (*entries, *_sign_entries(points))


def _limit_entries(quantity: Quantity, points: Sequence[Judged], shape: str = LEVEL) -> list[Entry]:
    noun = "floor" if quantity == "latency_s" else "limit"
    return [
        Entry(words=f"{noun} ({'measured' if 'measured' in style else 'derived'})", style=f"{style} ink", shape=shape)
        for style, _ in _by_limit(points)
    ]


def _sign_entries(points: Sequence[Judged]) -> list[Entry]:
    seen = {point.verdict.state for point in points}
    return [Entry(words=wording.state_word(state), style="marks", marker=state) for state in SIGNED if state in seen]


def _row(name: str, point: Judged) -> Row:
    low, high = _band(point)
    return Row(
        series=name,
        size=wording.size_words(point.parameters),
        cells=(
            wording.quantity(point.quantity, point.value),
            wording.quantity(point.quantity, low),
            wording.quantity(point.quantity, max((launch.p99 for launch in point.launches), default=high)),
            str(len(point.launches)),
            wording.percent(point.launch_spread),
            *wording.limit_and_share(point),
        ),
        state=point.verdict.state,
    )


def _band(point: Judged) -> tuple[float | None, float | None]:
    """Return the range of all launches' samples; a latency's band ends at its p99, since outliers have no bound."""
    if not point.launches:
        return None, None
    low = min(launch.minimum for launch in point.launches)
    if point.quantity == "latency_s":
        return low, max(launch.p99 for launch in point.launches)
    return low, max(launch.maximum for launch in point.launches)


def _shown_values(points: Sequence[Judged]) -> list[float]:
    """List the values that a figure must show: medians, launches and limits."""
    values = [value for point in points for value in (point.value, _limit_value(point))]
    values += [launch.median for point in points for launch in point.launches]
    return [*filter(None, map(_drawable_value, values))]
