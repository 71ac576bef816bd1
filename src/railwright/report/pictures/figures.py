"""The curves of a report as Plotly figures, and the tables of the numbers behind them.

A figure is plain data for plotly.js. Its colours are names of CSS variables, which the page resolves, so that a
figure serves the light and the dark page. Each style has the same meaning in all figures:

    thick line    median of the launches      band      spread of the samples
    small marks   each launch's median        dashed    the limit
                                              dotted    the end of the expected band beyond which a value is slow
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from railwright.diagnosis.verdicts.judged import Judged
from railwright.expected.nccl_collectives import decides_nothing
from railwright.groups import group_by_key
from railwright.limits.limit import Limit, Quantity
from railwright.report.pages.offline_page import Figure, Row, plotly_text
from railwright.report.pictures import axes
from railwright.report.text import wording
from railwright.report.view import slow_edge

MAX_SERIES = 6
"""Further curves go into another figure: everyone can distinguish six colours (Okabe and Ito 2008)."""

Trace = dict[str, Any]

_INK = "--ink"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")  # colour must never be the only sign


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A curve with its points by size; its number from 1 to 6 gives its colour and its symbol."""

    name: str
    number: int
    points: tuple[Judged, ...]

    @property
    def colour(self) -> str:
        """The name of the curve's CSS variable."""
        return f"--series-{self.number}"


def figures(points: Iterable[Judged]) -> tuple[Figure, ...]:
    """Build a figure for every benchmark and quantity that has a measured point, with at most six curves each."""
    # A logarithmic axis has no place for other points. The table of paths has them, with their verdicts.
    drawn = (point for point in points if _drawable_value(point.value))
    made: list[Figure] = []
    for (benchmark, quantity), group in group_by_key(drawn, lambda point: (point.benchmark, point.quantity)):
        series = list(group_by_key(group, _path_and_varied))
        one_path = len({path for (path, _), _ in series}) == 1
        for start in range(0, len(series), MAX_SERIES):
            curves = []
            for number, ((path, varied), found) in enumerate(series[start : start + MAX_SERIES], start=1):
                name = varied if one_path and varied else ", ".join(filter(None, (wording.escape(path), varied)))
                curves.append(Series(name=name, number=number, points=tuple(sorted(found, key=_size))))
            title = f"{wording.escape(benchmark)}, {wording.QUANTITY_WORDS[quantity]}"
            if len(series) > MAX_SERIES:
                title += f" ({start // MAX_SERIES + 1} of {math.ceil(len(series) / MAX_SERIES)})"
            made.append(_figure(title, quantity, curves))
    return tuple(made)


def _path_and_varied(point: Judged) -> tuple[str, str]:
    return point.path, wording.parameter_words(point.parameters, without=("size_bytes",))


def _drawable_value(value: float | None) -> float:
    """Return the value if it can be drawn, else 0."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def _size(point: Judged) -> float:
    """Return the point's size in bytes; 0 if it has none that can be drawn."""
    size = point.parameters.get("size_bytes")
    return _drawable_value(float(size)) if isinstance(size, int | float) and not isinstance(size, bool) else 0.0


def _figure(title: str, quantity: Quantity, curves: Sequence[Series]) -> Figure:
    points = [point for curve in curves for point in curve.points]
    over_size = any(sum(map(bool, map(_size, curve.points))) > 1 for curve in curves)
    medians = [point.value for point in points if point.value is not None]
    span = f"{wording.quantity(quantity, min(medians))} to {wording.quantity(quantity, max(medians))}"
    names = "; ".join(curve.name for curve in curves if curve.name)
    across = "over the size" if over_size else "for each setting"
    worst = "fastest" if quantity == "latency_s" else "slowest"
    labels = set(map(_label, curves))
    layout = _curve_layout(quantity, points) if over_size else axes.dot_layout(quantity, _shown_values(points), labels)
    return Figure(
        title=title,
        summary=f"{title} {across}: {span}." + (f" Curves: {names}." if names else ""),
        caption=_caption(quantity, points, over_size),
        data=tuple(_curve_traces(quantity, curves) if over_size else _dot_traces(curves)),
        layout=layout,
        columns=("median", worst, "p99", "launches", "spread", "limit", "of limit"),
        rows=tuple(_row(curve.name, point) for curve in curves for point in curve.points),
    )


def _caption(quantity: Quantity, points: Sequence[Judged], over_size: bool) -> str:
    better, limit, band = "Higher", "the limit", "the slowest to the fastest sample"
    if quantity == "latency_s":
        better, limit, band = "Lower", "the floor", "the fastest sample to the 99th percentile"
    dashed = f"{'Dashed' if over_size else 'Long mark'}: {limit}."
    sentences = [
        f"{better} is better.",
        f"{'Line' if over_size else 'Large mark'}: median of the launches.",
        "Small marks: each launch.",
        f"Band: {band}, cut off at the edge of the figure." if over_size else "",
        dashed if any(map(_limit_value, points)) else "No limit is known.",
    ]
    if over_size and any(slow_edge(point) is not None for point in points):
        sentences.append("Dotted: the end of the expected band; beyond it a value is slow.")
    if over_size:
        sentences.append("Drag with a mouse to zoom in, double-click to zoom out.")
    return " ".join(filter(None, sentences))


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
            *wording.bound_and_share(point),
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


def _hover(name: str, point: Judged) -> str:
    lines = [name] if name else []
    if size := _size(point):
        lines.append(f"size {wording.scalar('size_bytes', size)}")
    lines.append(f"median {wording.quantity(point.quantity, point.value)}")
    limit, share = wording.bound_and_share(point)
    if limit != wording.ABSENT:
        lines.append(f"limit {limit}" + (f", reached {share}" if share != wording.ABSENT else ""))
    lines.append(
        f"{wording.state_word(point.verdict.state)}, spread of launches {wording.percent(point.launch_spread)}"
    )
    return "<br>".join(plotly_text(line) for line in lines)


def _curve_traces(quantity: Quantity, curves: Sequence[Series]) -> list[Trace]:
    limits = [_pairs_by_size(curve, _limit_value) for curve in curves]
    shared = len(set(limits)) == 1  # a limit shared by all curves is drawn once, in ink
    lines = []
    for curve, limit in zip(curves, limits, strict=True):
        if not shared or curve is curves[0]:
            lines.append(_line_trace(limit, _INK if shared else curve.colour, "dash"))
        lines.append(_line_trace(_pairs_by_size(curve, slow_edge), curve.colour, "dot"))
    traces = [*map(_band_trace, curves), *lines, *map(_launch_trace, curves), *map(_median_trace, curves)]
    kept = [trace for trace in traces if trace["x"]]
    drawn = {trace["line"].get("dash") for trace in kept if "line" in trace}
    named = (("floor" if quantity == "latency_s" else "limit", "dash"), ("expected", "dot"))
    return kept + [_legend_trace(name, dash) for name, dash in named if dash in drawn]


def _limit_value(point: Judged) -> float:
    """Return the limit to draw, else 0: a limit that bounds nothing would stretch the axis by decades."""
    if not isinstance(point.limit, Limit) or decides_nothing(point.limit, point.expected):
        return 0.0
    return _drawable_value(point.limit.value)


def _pairs_by_size(curve: Series, value: Callable[[Judged], float | None]) -> tuple[tuple[float, float], ...]:
    pairs = ((_size(point), _drawable_value(value(point))) for point in curve.points)
    return tuple((size, found) for size, found in pairs if size and found)


def _median_trace(curve: Series) -> Trace:
    points = [point for point in curve.points if _size(point)]
    return {
        "type": "scatter", "mode": "lines+markers", "name": plotly_text(curve.name) or "median",
        "legendgroup": f"series-{curve.number}",
        "x": [_size(point) for point in points], "y": [point.value for point in points],
        "text": [_hover(curve.name, point) for point in points], "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": curve.colour, "width": 2.5},
        "marker": {"color": curve.colour, "size": 7, "symbol": _SYMBOLS[curve.number - 1]},
    }  # fmt: skip


def _launch_trace(curve: Series) -> Trace:
    pairs = [(_size(point), launch.median) for point in curve.points for launch in point.launches]
    shown = [(size, median) for size, median in pairs if size and _drawable_value(median)]
    return {
        "type": "scatter", "mode": "markers", "legendgroup": f"series-{curve.number}", "showlegend": False,
        "hoverinfo": "skip",
        "x": [size for size, _ in shown], "y": [median for _, median in shown],
        "marker": {"color": curve.colour, "size": 11, "symbol": "line-ew-open", "opacity": 0.8, "line": {"width": 1.2}},
    }  # fmt: skip


def _band_trace(curve: Series) -> Trace:
    """Draw a closed outline: along the low ends by size, and back along the high ends."""
    rows = [(_size(point), *_band(point)) for point in curve.points]
    shown = [(size, low, high) for size, low, high in rows if size and _drawable_value(low) and _drawable_value(high)]
    return {
        "type": "scatter", "mode": "lines", "legendgroup": f"series-{curve.number}", "showlegend": False,
        "hoverinfo": "skip",
        "x": [row[0] for row in (*shown, *reversed(shown))],
        "y": [row[1] for row in shown] + [row[2] for row in reversed(shown)],
        "fill": "toself", "fillcolor": f"{curve.colour}-band", "line": {"width": 0},
    }  # fmt: skip


def _line_trace(points: tuple[tuple[float, float], ...], colour: str, dash: str) -> Trace:
    is_single = len(points) == 1  # a line needs two points; a single point is drawn as a short bar
    return {
        "type": "scatter", "mode": "markers" if is_single else "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [size for size, _ in points], "y": [value for _, value in points],
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "marker": {"color": colour, "size": 18, "symbol": "line-ew-open", "line": {"width": 1.5}},
    }  # fmt: skip


def _legend_trace(name: str, dash: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": [None], "y": [None], "hoverinfo": "skip",
        "line": {"color": _INK, "width": 1.5, "dash": dash},
    }  # fmt: skip


def _dot_traces(curves: Sequence[Series]) -> list[Trace]:
    """Draw curves without a sweep of sizes: a row each, with the median as a mark, launches and limit as ticks."""
    traces: list[Trace] = []
    for curve in curves:
        colour, label = curve.colour, _label(curve)
        launches = [
            launch.median for point in curve.points for launch in point.launches if _drawable_value(launch.median)
        ]
        medians = _dots([point.value for point in curve.points], label, colour, _SYMBOLS[curve.number - 1], 11)
        traces += [
            _dots(launches, label, colour, "line-ns-open", 14),
            _dots([*filter(None, map(_limit_value, curve.points))], label, _INK, "line-ns-open", 30),
            {**medians, "text": [_hover(curve.name, point) for point in curve.points], "hoverinfo": "text"},
        ]
    return [trace for trace in traces if trace["x"]]


def _dots(values: Sequence[float | None], label: str, colour: str, symbol: str, size: int) -> Trace:
    return {
        "type": "scatter", "mode": "markers", "x": list(values), "y": [label] * len(values), "showlegend": False,
        "hoverinfo": "skip",
        "marker": {"color": colour, "symbol": symbol, "size": size, "line": {"width": 2, "color": colour}},
    }  # fmt: skip


def _label(curve: Series) -> str:
    """Break a row's name into lines of at most 22 characters, so that a phone has room for the marks."""
    sizes = {wording.scalar("size_bytes", size) for size in map(_size, curve.points) if size}
    lines = [""]
    for word in [*curve.name.split(", "), *sizes]:
        if lines[-1] and len(lines[-1]) + len(word) > 20:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]}, {word}" if lines[-1] else word
    return "<br>".join(plotly_text(line if len(line) <= 22 else f"{line[:20]}..") for line in lines) or "measured"


def _curve_layout(quantity: Quantity, points: Sequence[Judged]) -> dict[str, Any]:
    edges = filter(None, (_drawable_value(slow_edge(point)) for point in points))
    bands = filter(None, (_drawable_value(end) for point in points for end in _band(point)))
    sizes = sorted(set(filter(None, map(_size, points))))
    return axes.curve_layout(quantity, sizes, [*_shown_values(points), *edges], [*bands])


def _shown_values(points: Sequence[Judged]) -> list[float]:
    """List the values that a figure must show: medians, launches and limits."""
    values = [value for point in points for value in (point.value, _limit_value(point))]
    values += [launch.median for point in points for launch in point.launches]
    return [*filter(None, map(_drawable_value, values))]
