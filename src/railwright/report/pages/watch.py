"""The curves of a job as a page without network access: activity above traffic, with the iterations marked.

The page shares its policy and its figures with the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railwright.diagnosis.iterations.samples import Curve
from railwright.report.pages.offline_page import render_page
from railwright.report.pictures.axes import Axis, linear_axis, rate_axis
from railwright.report.pictures.chart import WIDTH, Figure, Panel, chart, label, plot_box
from railwright.report.text.watch import source_lines, watched_lines
from railwright.units import format_count, format_duration
from railwright.watch.seen import Watched

_MAX_POINTS = 20_000
"""The limit on points of a curve; a longer curve is drawn as means of neighbours."""
_MAX_MARKS = 2_000
_STYLES = {"compute": "s1", "traffic": "s3"}
_HEIGHT = 300.0
_LEAST_TRAFFIC = 1e6
"""The end of the axis in bytes/s if nothing moved."""
BOTTOM_PX = 30.0
"""The height of the words of the time axis."""


def render_watched_html(found: Watched, curves: Sequence[Curve]) -> str:
    """Render the whole page."""
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
    """Draw both curves over a common time axis."""
    begins = [begin for source in found.estimates for begin in source.begins_s][:_MAX_MARKS]
    panels, labels = host_panels(curves, time_axis(curves), begins, top=0, height=_HEIGHT, watts=is_in_watts(found))
    summary = "Activity above traffic, over time"
    drawn = chart(title, summary, _HEIGHT + BOTTOM_PX, panels, labels + seconds_label(_HEIGHT))
    return Figure(title=title, summary=summary, svg=drawn)


def is_in_watts(found: Watched) -> bool:
    """Report whether the power of the GPUs stands for computing."""
    return any(source.unit == "W" for source in found.sources if source.stands_for == "compute")


def time_axis(curves: Iterable[Curve]) -> Axis:
    """Return the axis from 0 to the end of the last curve."""
    end_s = max((curve.ends_s[-1] for curve in curves if curve.ends_s), default=0.0)
    return linear_axis(end_s or 1.0, "plain s", lambda value: f"{value:g} s", room=1.0)


def seconds_label(height: float) -> str:
    """Return the title of the time axis."""
    return label(WIDTH / 2, height + BOTTOM_PX - 4, "time", anchor="middle")


def host_panels(
    curves: Sequence[Curve], time: Axis, begins_s: Sequence[float], *, top: float, height: float, watts: bool
) -> tuple[list[Panel], str]:
    """Draw the activity of a host above its traffic, with the starts of its iterations; also return their titles."""
    panels, labels = [], []
    each = height / 2
    for place, role in enumerate(("compute", "traffic")):
        shown = [(curve, _points(curve)) for curve in curves if curve.role == role and curve.ends_s]
        highest = max((value for _, points in shown for _, value in points), default=0.0) or 1.0
        words, axis = _activity_axis(role, highest, watts=watts)
        left, _, width, _ = plot_box(each)
        panel = Panel((left, top + each * place + 20, width, each - 24), time, axis, decimals=2)
        panel.verticals([begin_s for begin_s in begins_s if time.low <= begin_s <= time.high], "begins")
        for _, points in shown:
            panel.steps(points, f"steps {_STYLES[role]}", words)
        panels.append(panel)
        labels.append(label(panel.left, panel.top - 5, words))
    return panels, "".join(labels)


def _activity_axis(role: str, highest: float, *, watts: bool) -> tuple[str, Axis]:
    if role == "traffic":
        return "traffic", rate_axis("bandwidth_bytes_per_s", [max(highest, _LEAST_TRAFFIC)])
    if watts:
        return "power of the GPUs", linear_axis(highest, "plain W", lambda value: f"{value:g} W")
    return "cores in user mode", linear_axis(highest, "plain ", lambda value: f"{value:g}")


def _points(curve: Curve) -> list[tuple[float, float]]:
    """Return the start and the value of each interval and the end of the last, of a long curve the means."""
    begins = [curve.begin_s, *curve.ends_s[:-1]]
    step = max(1, -(-len(begins) // _MAX_POINTS))
    points = []
    for first in range(0, len(begins), step):
        last = min(first + step, len(begins))
        whole_s = curve.ends_s[last - 1] - begins[first]
        total = sum(curve.values[at] * (curve.ends_s[at] - begins[at]) for at in range(first, last))
        points.append((begins[first], total / whole_s if whole_s > 0 else 0.0))
    return [*points, (curve.ends_s[-1], points[-1][1])]
