"""The report as one page: a single HTML file that needs no network and may be opened anywhere, also years later.

How it stays safe and needs nothing from outside: `offline_page`.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec

from railwright.diagnosis.gpu_health import WATCHED, watched_words
from railwright.diagnosis.gpu_limits import decides_nothing
from railwright.diagnosis.judged import Diagnosis, Judged, State
from railwright.errors import RailwrightError
from railwright.groups import grouped
from railwright.limits.limit import Limit
from railwright.report import wording
from railwright.report.figures import figures, slow_edge
from railwright.report.offline_page import as_it_is, render_page
from railwright.report.text import all_findings
from railwright.report.topology_svg import render_topology_svg
from railwright.results.records import End, Result, Run
from railwright.topology.devices import Scalar, Topology
from railwright.units import count, format_size

_SHOWN_VALUES = 4


def render_html(run: Run, diagnosis: Diagnosis, results: tuple[Result, ...], end: End | None) -> str:
    """The whole page. `results` are the raw records, for what was held while measuring."""
    measured = (result for result in results if result.outcome == "measured")
    counts = wording.state_counts(path.verdict.state for path in diagnosis.paths)
    fields = {
        "topology_svg": as_it_is(_drawing(run.topology)),
        "run": run,
        "context": run.context,
        "gpus": wording.gpu_words(run.topology),
        "watched": wording.visible(watched_words(results)),
        "state_meanings": [(state, look.meaning) for state, look in wording.STATES.items()],
        "end": end,
        "headline": _headline(dict(counts)),
        "worst": counts[0][0] if counts else "unknown",
        "counts": counts,
        "closing": wording.closing_words(diagnosis),
        "cut_off": wording.cut_off_words(end),
        "paths": diagnosis.paths,
        "meter_of": _meter,
        "findings": all_findings(diagnosis),
        "unmeasured": wording.unmeasured(diagnosis.points),
        "methods": grouped(measured, lambda one: (one.benchmark, one.method, one.ranks, one.hosts)),
        "settings_of": _settings,
        "check_of": _checked,
    }
    return render_page("report.html.j2", figures(diagnosis.points), fields)


def _drawing(topology: Topology) -> str:
    """The topology as SVG, checked to be well-formed, so that a bad name could at worst break the drawing."""
    drawing: str = render_topology_svg(topology)
    try:
        ET.fromstring(drawing)  # noqa: S314  # our own drawing, and without a document type nothing can be expanded
    except ET.ParseError as error:
        raise RailwrightError(
            f"the drawing of {wording.visible(topology.name)!r} is not well-formed: {error}",
            hint="please report this with the output of: railwright topo capture",
        ) from error
    return drawing[drawing.index("<svg") :]  # an XML declaration has no place inside a page


def _headline(counts: dict[State, int]) -> str:
    """What the page says first, in one line."""
    total = count(sum(counts.values()), "path")
    slow, fine = counts.get("slow", 0), counts.get("ok", 0)
    unjudged = sum(counts.get(state, 0) for state in ("suspicious", "failed", "unknown"))
    if slow:
        return f"{slow} of {total} {'is' if slow == 1 else 'are'} slow"
    if unjudged:
        return f"{unjudged} of {total} could not be judged"
    if fine == 1:
        return "The measured path is as fast as expected"
    return f"All {fine} measured paths are as fast as expected" if fine else "Nothing was measured"


METER_LIMIT = 80.0
"""Where the limit stands on a bar that is 100 long: what is above the limit must be seen to be above it."""


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """The fraction of limit as a bar: how far it reaches, and where the expected band begins."""

    reached: float
    band_from: float | None
    limit: float = METER_LIMIT


def _meter(head: Judged | None) -> Meter | None:
    if head is None or head.fraction_of_limit is None or not head.fraction_of_limit >= 0:
        return None
    if decides_nothing(head.limit, head.expected):
        return None
    edge, band_from = slow_edge(head), None
    if edge and isinstance(head.limit, Limit) and head.limit.value > 0:
        share = head.limit.value / edge if head.quantity == "latency_s" else edge / head.limit.value
        band_from = round(min(share, 1.0) * METER_LIMIT, 2)
    return Meter(reached=round(min(head.fraction_of_limit * METER_LIMIT, 100.0), 2), band_from=band_from)


def _settings(results: list[Result]) -> str:
    """Every setting once: its value, its few values, or the range of them; of the GPUs what was seen, in words."""
    values: dict[str, list[Scalar]] = {}
    for result in results:
        for key, value in result.settings.items():
            found = values.setdefault(key, [])
            if key not in WATCHED and value not in found:
                found.append(value)
    held = ", ".join(f"{wording.key_words(key)} {_range_words(key, found)}" for key, found in values.items() if found)
    seen = wording.visible(watched_words(results))
    return ". ".join(words for words in (held, seen[:1].upper() + seen[1:]) if words)


def _range_words(key: str, values: list[Scalar]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(values) > _SHOWN_VALUES and len(numbers) == len(values):
        return f"{wording.scalar(key, min(numbers))} to {wording.scalar(key, max(numbers))}"
    shown = [wording.scalar(key, value) for value in values[:_SHOWN_VALUES]]
    more = f" and {len(values) - _SHOWN_VALUES} more" if len(values) > _SHOWN_VALUES else ""
    return " / ".join(shown) + more


def _checked(results: list[Result]) -> str:
    checks = [result.verification for result in results if result.verification]
    if not checks:
        return "The data was not checked"
    total = format_size(sum(check.bytes_checked for check in checks))
    wrong = sum(check.bytes_wrong for check in checks)
    unchecked = len(results) - len(checks)
    missing = f", {count(unchecked, 'point')} not checked" if unchecked else ""
    methods = ", ".join(sorted({check.method for check in checks}))
    return f"{total} checked ({methods}), {wrong} bytes wrong{missing}"
