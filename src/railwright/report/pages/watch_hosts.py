"""Several hosts of a job as a page without network access: their curves stacked over a common time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.diagnosis.iterations.samples import Curve
from railwright.report.pages.offline_page import render_page
from railwright.report.pages.watch import BOTTOM_PX, host_panels, is_in_watts, seconds_label, time_axis
from railwright.report.pictures.chart import Figure, Panel, chart, label
from railwright.report.text.watch import source_lines
from railwright.report.text.watch_hosts import watched_hosts_lines
from railwright.report.text.wording import escape
from railwright.units import format_count
from railwright.watch.seen_hosts import SeenHost, WatchedHosts

_MAX_HOSTS = 16
"""The limit on drawn hosts; stragglers come first."""
_HOST_PX = 190.0
_MAX_MARKS = 400


def render_watched_hosts_html(found: WatchedHosts, curves: Mapping[str, Sequence[Curve]]) -> str:
    """Render the whole page; `curves` by host use the common time axis."""
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
    """Draw activity above traffic for each host over a common time axis."""
    time = time_axis(curve for host in shown for curve in curves[host.host])
    panels: list[Panel] = []
    labels: list[str] = []
    for number, host in enumerate(shown):
        top = _HOST_PX * number
        estimates = host.watched.estimates if host.watched is not None else ()
        begins = estimates[0].begins_s[:_MAX_MARKS] if estimates else ()
        begins_s = [begin_s + (host.begins_s or 0.0) for begin_s in begins]
        watts = host.watched is not None and is_in_watts(host.watched)
        box = {"top": top + 16, "height": _HOST_PX - 20}
        of_host, words = host_panels(curves[host.host], time, begins_s, **box, watts=watts)
        panels += of_host
        labels += [label(2, top + 14, escape(host.host), "host"), words]
    height = _HOST_PX * len(shown)
    summary = "Activity above traffic of each host, over a common time axis"
    drawn = chart(title, summary, height + BOTTOM_PX, panels, "".join(labels) + seconds_label(height))
    return Figure(title=title, summary=summary, svg=drawn)
