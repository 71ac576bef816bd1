"""The curves of a job as a page without network access: activity above traffic, with the iterations marked.

The page shares its policy and its figures with the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from railwright.diagnosis.iterations.samples import Curve
from railwright.report.pages.offline_page import Figure, render_page
from railwright.report.text.watch import source_lines, watched_lines
from railwright.units import format_count, format_duration
from railwright.watch.seen import Watched

_MAX_POINTS = 20_000
"""The limit on points of a curve; a longer curve is drawn as means of neighbours."""
_MAX_MARKS = 2_000
AXIS = {"gridcolor": "--line", "zeroline": False, "rangemode": "tozero"}
_AXES = {"compute": ("y", "cores in user mode", "--series-1"), "traffic": ("y2", "GB/s", "--series-3")}


def render_watched_html(found: Watched, curves: Sequence[Curve]) -> str:
    """Render the whole page. Raises RailwrightError if plotly.js cannot be embedded."""
    sources = list(source_lines(found))
    lines = [line for line in watched_lines(found) if line and line not in sources]
    estimate = found.estimates[0] if found.estimates else None
    title = (
        f"{format_count(estimate.iterations, 'iteration')} of {format_duration(estimate.period_s)}"
        if estimate
        else "no period here"
    )
    figures = [_figure(found, curves, title)] if curves else []
    return render_page("watch.html.j2", figures, {"title": title, "lines": lines, "sources": sources})


def _figure(found: Watched, curves: Sequence[Curve], title: str) -> Figure:
    """Draw both curves over a common time axis: dragging zooms in both, a double click zooms out."""
    begins = [begin for source in found.estimates for begin in source.begins_s][:_MAX_MARKS]
    units = {source.unit for source in found.sources if source.stands_for == "compute"}
    computing = "W of the GPUs" if "W" in units else _AXES["compute"][1]
    layout = {
        **frame(520, 60), "shapes": marks(begins, 0, 1),
        "xaxis": {**AXIS, "title": {"text": "seconds"}, "anchor": "y2"},
        "yaxis": {**AXIS, "title": {"text": computing}, "domain": [0.54, 1]},
        "yaxis2": {**AXIS, "title": {"text": _AXES["traffic"][1]}, "domain": [0, 0.46]},
    }  # fmt: skip
    traces = tuple(trace(curve, _AXES[curve.role][0]) for curve in curves)
    return Figure(title=title, summary="Activity above traffic, over time", data=traces, layout=layout)


def frame(height: int, left: int) -> dict[str, Any]:
    """Return the layout that all figures over time share."""
    return {
        "height": height, "margin": {"l": left, "r": 20, "t": 20, "b": 45}, "font": {"color": "--ink", "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False,
    }  # fmt: skip


def marks(begins_s: Iterable[float], low: float, high: float) -> list[dict[str, Any]]:
    """Return vertical lines at the start of iterations, over a part of the figure's height."""
    return [
        {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": low, "y1": high,
         "line": {"color": "--muted", "width": 0.5}} for at in begins_s
    ]  # fmt: skip


def trace(curve: Curve, axis: str) -> dict[str, Any]:
    """Return the trace of a curve on a vertical axis of the figure."""
    colour = _AXES[curve.role][2]
    scale = 1e-9 if curve.role == "traffic" else 1.0
    begins = [curve.begin_s, *curve.ends_s[:-1]]
    step = max(1, -(-len(begins) // _MAX_POINTS))
    times, values = [], []
    for first in range(0, len(begins), step):
        last = min(first + step, len(begins))
        whole_s = curve.ends_s[last - 1] - begins[first]
        total = sum(curve.values[at] * (curve.ends_s[at] - begins[at]) for at in range(first, last))
        times.append(round(begins[first], 5))
        values.append(float(f"{total / whole_s * scale:.5g}") if whole_s > 0 else 0.0)
    return {
        "type": "scatter", "mode": "lines", "x": times, "y": values, "yaxis": axis, "xaxis": "x",
        "line": {"color": colour, "width": 1, "shape": "hv"}, "hoverinfo": "x+y",
    }  # fmt: skip
