"""The curves of a report as Plotly figures, and the tables of the numbers behind them.

A figure is plain data for plotly.js. Its colours are names of CSS variables, which the page resolves, so that one
figure serves the light and the dark page. One look has one meaning in all of them:

    thick line    median of the launches      band      what the samples spread over
    small marks   each launch's median        dashed    the limit
                                              dotted    the nearer end of the expected band
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from railwright.diagnosis.gpu_limits import decides_nothing
from railwright.diagnosis.model import Judged, State
from railwright.limits.model import Limit, Quantity
from railwright.report import axes, wording

MAX_SERIES = 6
"""More curves than this go into a further figure: six colours can be told apart by everyone (Okabe and Ito 2008)."""

Trace = dict[str, Any]  # plotly.js's own JSON; a test holds it against plotly's schema

_INK = "--ink"


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One curve: its name, its colour (1 to 6), and its points by size."""

    name: str
    colour: int
    points: tuple[Judged, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table behind a figure."""

    series: str
    size: str
    cells: tuple[str, ...]
    state: State


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, what it shows in words, and the table of its numbers."""

    title: str
    summary: str
    caption: str
    data: tuple[Trace, ...]
    layout: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def json(self) -> dict[str, Any]:
        """What plotly.js needs."""
        return {"data": self.data, "layout": self.layout}


def figures(points: Iterable[Judged]) -> tuple[Figure, ...]:
    """A figure for every benchmark and quantity that has a measured point, at most six curves in each."""
    groups: dict[tuple[str, Quantity], dict[tuple[str, str], list[Judged]]] = {}
    for point in points:
        if point.value is None or not math.isfinite(point.value) or point.value <= 0:
            continue  # a logarithmic axis has no place for it; the table of paths has it, with its verdict
        varied = wording.parameter_words(point.parameters, without=("size_bytes",))
        series = groups.setdefault((point.benchmark, point.quantity), {})
        series.setdefault((point.path, varied), []).append(point)
    made: list[Figure] = []
    for (benchmark, quantity), series in groups.items():
        names = _series_names(tuple(series))
        parts = [tuple(series.items())[start : start + MAX_SERIES] for start in range(0, len(series), MAX_SERIES)]
        for number, part in enumerate(parts):
            title = f"{wording.visible(benchmark)}, {wording.QUANTITY_WORDS[quantity]}"
            title += f" ({number + 1} of {len(parts)})" if len(parts) > 1 else ""
            curves = tuple(
                Series(name=names[key], colour=place, points=_by_size(found))
                for place, (key, found) in enumerate(part, start=1)
            )
            made.append(_figure(title, quantity, curves))
    return tuple(made)


def _series_names(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What tells the curves of one figure apart: what was varied, and the path where there are several."""
    one_path = len({path for path, _ in keys}) == 1
    return {
        (path, varied): varied if one_path and varied else ", ".join(filter(None, (wording.visible(path), varied)))
        for path, varied in keys
    }


def _size(point: Judged) -> float | None:
    size = point.parameters.get("size_bytes")
    if isinstance(size, bool) or not isinstance(size, int | float):
        return None
    return float(size) if math.isfinite(size) and size > 0 else None


def _by_size(points: Sequence[Judged]) -> tuple[Judged, ...]:
    return tuple(sorted(points, key=lambda point: _size(point) or 0))


def _figure(title: str, quantity: Quantity, curves: tuple[Series, ...]) -> Figure:
    over_size = any(sum(_size(point) is not None for point in curve.points) > 1 for curve in curves)
    data = _curve_traces(quantity, curves) if over_size else _dot_traces(curves)
    layout = _curve_layout(quantity, curves) if over_size else _dot_layout(quantity, curves)
    points = [point for curve in curves for point in curve.points]
    medians = [point.value for point in points if point.value is not None]
    span = f"{wording.quantity(quantity, min(medians))} to {wording.quantity(quantity, max(medians))}"
    names = "; ".join(curve.name for curve in curves if curve.name)
    across = "over the size" if over_size else "for each setting"
    return Figure(
        title=title,
        summary=f"{title} {across}: {span}." + (f" Curves: {names}." if names else ""),
        caption=_caption(quantity, points, over_size),
        data=tuple(data),
        layout=layout,
        columns=("median", "fastest" if quantity == "latency_s" else "slowest", "p99", "launches", "spread", "limit",
                 "of limit"),
        rows=tuple(_row(curve.name, point) for curve in curves for point in curve.points),
    )  # fmt: skip


def _caption(quantity: Quantity, points: Sequence[Judged], over_size: bool) -> str:
    sentences = ["Lower is better." if quantity == "latency_s" else "Higher is better."]
    limit = "the floor" if quantity == "latency_s" else "the limit"
    has_limit = any(_limit_value(point) is not None for point in points)
    if not over_size:
        sentences.append("Large mark: median of the launches. Small marks: each launch.")
        sentences.append(f"Long mark: {limit}." if has_limit else "No limit is known.")
        return " ".join(sentences)
    band = (
        "the fastest sample to the 99th percentile" if quantity == "latency_s" else "the slowest to the fastest sample"
    )
    sentences.append(
        f"Line: median of the launches. Small marks: each launch. Band: {band}, cut off where it leaves the figure."
    )
    sentences.append(f"Dashed: {limit}." if has_limit else "No limit is known.")
    if any(_slow_edge(point) is not None for point in points):
        sentences.append("Dotted: the end of the expected band beyond which it is slow.")
    sentences.append("Drag with a mouse to look closer, double-click to go back.")
    return " ".join(sentences)


def _row(name: str, point: Judged) -> Row:
    low, high = _band(point)
    return Row(
        series=name,
        size=wording.scalar("size_bytes", point.parameters["size_bytes"]) if "size_bytes" in point.parameters else "",
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
    """What the samples of all launches spread over; a latency's few worst samples are left out, they have no bound."""
    if not point.launches:
        return None, None
    low = min(launch.minimum for launch in point.launches)
    if point.quantity == "latency_s":
        return low, max(launch.p99 for launch in point.launches)
    return low, max(launch.maximum for launch in point.launches)


def _slow_edge(point: Judged) -> float | None:
    """The end of the expected band beyond which the point is slow."""
    if point.expected is None:
        return None
    return point.expected.high if point.quantity == "latency_s" else point.expected.low


def _text(words: str) -> str:
    """Words for plotly.js, which reads some HTML tags in its text."""
    return html.escape(words, quote=False)


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _hover(name: str, point: Judged) -> str:
    lines = [name] if name else []
    size = _size(point)
    if size is not None:
        lines.append(f"size {wording.scalar('size_bytes', size)}")
    lines.append(f"median {wording.quantity(point.quantity, point.value)}")
    limit, share = wording.limit_and_share(point)
    if limit != wording.ABSENT:
        lines.append(f"limit {limit}, reached {share}")
    lines.append(f"{point.verdict.state}, spread of launches {wording.percent(point.launch_spread)}")
    return "<br>".join(_text(line) for line in lines)


def _curve_traces(quantity: Quantity, curves: tuple[Series, ...]) -> list[Trace]:
    traces = [_band_trace(curve) for curve in curves]
    limits = {_line_points(curve, _limit_value) for curve in curves}
    shared = len(limits) == 1  # the same limit for all curves is drawn once, in ink
    for curve in curves:
        colour = _INK if shared else f"--series-{curve.colour}"
        if not shared or curve is curves[0]:
            traces.append(_line_trace(_line_points(curve, _limit_value), colour, "dash"))
        traces.append(_line_trace(_line_points(curve, _slow_edge), f"--series-{curve.colour}", "dot"))
    traces += [_launch_trace(curve) for curve in curves]
    traces += [_median_trace(curve) for curve in curves]
    named = [("limit", "dash"), ("expected", "dot")]
    kept = [trace for trace in traces if trace["x"]]
    drawn = {trace["line"]["dash"] for trace in kept if "dash" in trace.get("line", {})}
    return kept + [_legend_trace(_floor_word(name, quantity), dash) for name, dash in named if dash in drawn]


def _floor_word(name: str, quantity: Quantity) -> str:
    return "floor" if name == "limit" and quantity == "latency_s" else name


def _limit_value(point: Judged) -> float | None:
    """What is drawn: a limit that bounds nothing would stretch the axis by decades."""
    if not isinstance(point.limit, Limit) or decides_nothing(point.limit, point.expected):
        return None
    return _positive(point.limit.value)


def _line_points(curve: Series, value: Callable[[Judged], float | None]) -> tuple[tuple[float, float], ...]:
    pairs = ((_size(point), _positive(value(point))) for point in curve.points)
    return tuple((size, found) for size, found in pairs if size is not None and found is not None)


def _group(curve: Series) -> str:
    return f"series-{curve.colour}"


def _median_trace(curve: Series) -> Trace:
    points = [point for point in curve.points if _size(point) is not None]
    colour = f"--series-{curve.colour}"
    return {
        "type": "scatter", "mode": "lines+markers", "name": _text(curve.name) or "median", "legendgroup": _group(curve),
        "x": [_size(point) for point in points], "y": [point.value for point in points],
        "text": [_hover(curve.name, point) for point in points], "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 7, "symbol": _SYMBOLS[curve.colour - 1]},
    }  # fmt: skip


_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")  # so that colour is never the only sign


def _launch_trace(curve: Series) -> Trace:
    pairs = [(_size(point), launch.median) for point in curve.points for launch in point.launches]
    shown = [(size, median) for size, median in pairs if size is not None and _positive(median)]
    return {
        "type": "scatter", "mode": "markers", "legendgroup": _group(curve), "showlegend": False, "hoverinfo": "skip",
        "x": [size for size, _ in shown], "y": [median for _, median in shown],
        "marker": {"color": f"--series-{curve.colour}", "size": 11, "symbol": "line-ew-open", "opacity": 0.8,
                   "line": {"width": 1.2}},
    }  # fmt: skip


def _band_trace(curve: Series) -> Trace:
    """A closed outline: along the low ends with growing size, and back along the high ends."""
    rows = [(_size(point), *_band(point)) for point in curve.points]
    shown = [(size, low, high) for size, low, high in rows if size is not None and _positive(low) and _positive(high)]
    return {
        "type": "scatter", "mode": "lines", "legendgroup": _group(curve), "showlegend": False, "hoverinfo": "skip",
        "x": [row[0] for row in shown] + [row[0] for row in reversed(shown)],
        "y": [row[1] for row in shown] + [row[2] for row in reversed(shown)],
        "fill": "toself", "fillcolor": f"--series-{curve.colour}-band", "line": {"width": 0},
    }  # fmt: skip


def _line_trace(points: tuple[tuple[float, float], ...], colour: str, dash: str) -> Trace:
    one = len(points) == 1  # a line needs two points; one alone is shown as a short bar
    return {
        "type": "scatter", "mode": "markers" if one else "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [size for size, _ in points], "y": [value for _, value in points],
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "marker": {"color": colour, "size": 18, "symbol": "line-ew-open", "line": {"width": 1.5}},
    }  # fmt: skip


def _legend_trace(name: str, dash: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": [None], "y": [None], "hoverinfo": "skip",
        "line": {"color": _INK, "width": 1.5, "dash": dash},
    }  # fmt: skip


def _dot_traces(curves: tuple[Series, ...]) -> list[Trace]:
    """Without a sweep of sizes: one row for each curve, its median as a mark, each launch and the limit as ticks."""
    traces: list[Trace] = []
    for curve in curves:
        colour, label = f"--series-{curve.colour}", _label(curve)
        launches = [launch.median for point in curve.points for launch in point.launches if _positive(launch.median)]
        shown = [point for point in curve.points if _positive(point.value)]
        limits = [value for value in map(_limit_value, curve.points) if value is not None]
        traces += [
            _dots(launches, label, colour, "line-ns-open", 14),
            _dots(limits, label, _INK, "line-ns-open", 30),
            {**_dots([point.value for point in shown], label, colour, _SYMBOLS[curve.colour - 1], 11),
             "text": [_hover(curve.name, point) for point in shown], "hoverinfo": "text"},
        ]  # fmt: skip
    return [trace for trace in traces if trace["x"]]


def _dots(values: Sequence[float | None], label: str, colour: str, symbol: str, size: int) -> Trace:
    return {
        "type": "scatter", "mode": "markers", "x": list(values), "y": [label] * len(values), "showlegend": False,
        "hoverinfo": "skip",
        "marker": {"color": colour, "symbol": symbol, "size": size, "line": {"width": 2, "color": colour}},
    }  # fmt: skip


def _label(curve: Series) -> str:
    """A row's name in lines of at most 22 characters, so that a phone keeps room for the marks."""
    sizes = {wording.scalar("size_bytes", size) for size in map(_size, curve.points) if size is not None}
    lines = [""]
    for word in [*curve.name.split(", "), *sizes]:
        if lines[-1] and len(lines[-1]) + len(word) > 20:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]}, {word}" if lines[-1] else word
    return "<br>".join(_text(line if len(line) <= 22 else f"{line[:20]}..") for line in lines) or "measured"


def _dot_layout(quantity: Quantity, curves: tuple[Series, ...]) -> dict[str, Any]:
    return axes.dot_layout(quantity, _shown_values(curves), len({_label(curve) for curve in curves}))


def _curve_layout(quantity: Quantity, curves: tuple[Series, ...]) -> dict[str, Any]:
    points = [point for curve in curves for point in curve.points]
    sizes = sorted({size for size in map(_size, points) if size is not None})
    values = [*_shown_values(curves), *filter(None, (_positive(_slow_edge(point)) for point in points))]
    bands = [_positive(end) for point in points for end in _band(point)]
    return axes.curve_layout(quantity, sizes, values, [end for end in bands if end is not None])


def _shown_values(curves: tuple[Series, ...]) -> list[float]:
    """The values that a figure must have room for: medians, launches and limits."""
    points = [point for curve in curves for point in curve.points]
    values = [value for point in points for value in (point.value, _limit_value(point))]
    values += [launch.median for point in points for launch in point.launches]
    return [value for value in map(_positive, values) if value is not None]
