"""Several hosts of a job as one page that needs no network: their curves one above the other, over one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.diagnosis.iterations.samples import Curve
from railwright.report.pages.offline_page import Figure, plotly_text, render_page
from railwright.report.pages.watch import AXIS, frame, marks, trace
from railwright.report.text.watch import source_lines
from railwright.report.text.watch_hosts import watched_hosts_lines
from railwright.report.text.wording import visible
from railwright.units import count
from railwright.watch.seen_hosts import SeenHost, WatchedHosts

_MOST_HOSTS = 16
"""That are drawn: stragglers first."""
_HOST_PIXELS = 190
_MOST_MARKS = 400
_COMPUTE_PART, _TRAFFIC_PART = 0.48, 0.36
"""Of the room of a host."""


def render_watched_hosts_html(found: WatchedHosts, curves: Mapping[str, Sequence[Curve]]) -> str:
    """The whole page; curves by host, on the common time axis. Raises RailwrightError."""
    unlike = [one.host for one in found.stragglers]
    there = sorted((one for one in found.hosts if curves.get(one.host)), key=lambda one: one.host not in unlike)
    shown = there[:_MOST_HOSTS]
    said = f"{count(len(unlike), 'straggler')}: {', '.join(dict.fromkeys(unlike))}" if unlike else "no straggler"
    title = f"{count(len(found.hosts), 'host')}, {said}"
    left_out = [f"{len(there) - len(shown)} more hosts are not drawn"] if len(there) > len(shown) else []
    sources = [line for one in shown if one.watched is not None
               for line in (visible(one.host), *source_lines(one.watched))]  # fmt: skip
    fields = {"title": title, "lines": [*watched_hosts_lines(found), *left_out], "sources": sources}
    figures = [_figure(shown, curves, title)] if shown else []
    return render_page("watch.html.j2", figures, fields)


def _figure(shown: Sequence[SeenHost], curves: Mapping[str, Sequence[Curve]], title: str) -> Figure:
    """Activity above traffic of each host; dragging enlarges a stretch in all."""
    axis, room = {**AXIS, "nticks": 4}, 1 / len(shown)
    layout: dict[str, Any] = {
        **frame(60 + _HOST_PIXELS * len(shown), 70), "shapes": [], "annotations": [],
        "xaxis": {**axis, "nticks": 12, "title": {"text": "seconds"}, "anchor": f"y{2 * len(shown)}"},
    }  # fmt: skip
    traces = []
    for number, one in enumerate(shown):
        top = 1 - number / len(shown)
        axes = {"compute": 2 * number + 1, "traffic": 2 * number + 2}
        middle = top - room * _COMPUTE_PART
        layout[_axis("yaxis", axes["compute"])] = {**axis, "title": {"text": "cores"}, "domain": [middle, top]}
        layout[_axis("yaxis", axes["traffic"])] = {
            **axis, "title": {"text": "GB/s"}, "domain": [middle - room * _TRAFFIC_PART, middle - 0.02 * room],
        }  # fmt: skip
        layout["annotations"].append({
            "text": plotly_text(one.host), "xref": "paper", "yref": "paper", "x": 0, "y": top, "showarrow": False,
            "xanchor": "left", "yanchor": "bottom",
        })  # fmt: skip
        estimates = one.watched.estimates if one.watched is not None else ()
        begins = estimates[0].begins_s[:_MOST_MARKS] if estimates else ()
        begins_s = (begin_s + (one.begins_s or 0.0) for begin_s in begins)
        layout["shapes"] += marks(begins_s, middle - room * _TRAFFIC_PART, top)
        traces += [trace(curve, _axis("y", axes[curve.role])) for curve in curves[one.host]]
    return Figure(title=title, summary="Activity above traffic of each host, over one time axis", data=tuple(traces),
                  layout=layout)  # fmt: skip


def _axis(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"
