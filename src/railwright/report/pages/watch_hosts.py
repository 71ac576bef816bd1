"""Several hosts of a job as a page without network access: their curves stacked over a common time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.diagnosis.iterations.samples import Curve
from railwright.report.pages.offline_page import Figure, plotly_text, render_page
from railwright.report.pages.watch import AXIS, frame, marks, trace
from railwright.report.text.watch import source_lines
from railwright.report.text.watch_hosts import watched_hosts_lines
from railwright.report.text.wording import escape
from railwright.units import format_count
from railwright.watch.seen_hosts import SeenHost, WatchedHosts

_MAX_HOSTS = 16
"""The limit on drawn hosts; stragglers come first."""
_HOST_PIXELS = 190
_MAX_MARKS = 400
_COMPUTE_PART, _TRAFFIC_PART = 0.48, 0.36
"""The shares of a host's height."""


def render_watched_hosts_html(found: WatchedHosts, curves: Mapping[str, Sequence[Curve]]) -> str:
    """Render the whole page; `curves` by host use the common time axis. Raises RailwrightError."""
    unlike = [host.host for host in found.stragglers]
    drawable = sorted((host for host in found.hosts if curves.get(host.host)), key=lambda host: host.host not in unlike)
    shown = drawable[:_MAX_HOSTS]
    verdict = (
        f"{format_count(len(unlike), 'straggler')}: {', '.join(dict.fromkeys(unlike))}" if unlike else "no straggler"
    )
    title = f"{format_count(len(found.hosts), 'host')}, {verdict}"
    left_out = [f"{len(drawable) - len(shown)} more hosts are not drawn"] if len(drawable) > len(shown) else []
    sources = [line for host in shown if host.watched is not None
               for line in (escape(host.host), *source_lines(host.watched))]  # fmt: skip
    fields = {"title": title, "lines": [*watched_hosts_lines(found), *left_out], "sources": sources}
    figures = [_figure(shown, curves, title)] if shown else []
    return render_page("watch.html.j2", figures, fields)


def _figure(shown: Sequence[SeenHost], curves: Mapping[str, Sequence[Curve]], title: str) -> Figure:
    """Draw activity above traffic for each host; dragging zooms in all of them."""
    axis, room = {**AXIS, "nticks": 4}, 1 / len(shown)
    layout: dict[str, Any] = {
        **frame(60 + _HOST_PIXELS * len(shown), 70), "shapes": [], "annotations": [],
        "xaxis": {**axis, "nticks": 12, "title": {"text": "seconds"}, "anchor": f"y{2 * len(shown)}"},
    }  # fmt: skip
    traces = []
    for number, host in enumerate(shown):
        top = 1 - number / len(shown)
        axes = {"compute": 2 * number + 1, "traffic": 2 * number + 2}
        middle = top - room * _COMPUTE_PART
        layout[_axis("yaxis", axes["compute"])] = {**axis, "title": {"text": "cores"}, "domain": [middle, top]}
        layout[_axis("yaxis", axes["traffic"])] = {
            **axis, "title": {"text": "GB/s"}, "domain": [middle - room * _TRAFFIC_PART, middle - 0.02 * room],
        }  # fmt: skip
        layout["annotations"].append({
            "text": plotly_text(host.host), "xref": "paper", "yref": "paper", "x": 0, "y": top, "showarrow": False,
            "xanchor": "left", "yanchor": "bottom",
        })  # fmt: skip
        estimates = host.watched.estimates if host.watched is not None else ()
        begins = estimates[0].begins_s[:_MAX_MARKS] if estimates else ()
        begins_s = (begin_s + (host.begins_s or 0.0) for begin_s in begins)
        layout["shapes"] += marks(begins_s, middle - room * _TRAFFIC_PART, top)
        traces += [trace(curve, _axis("y", axes[curve.role])) for curve in curves[host.host]]
    summary = "Activity above traffic of each host, over a common time axis"
    return Figure(title=title, summary=summary, data=tuple(traces), layout=layout)


def _axis(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"
