"""The report as one page: a single HTML file that needs no network and may be opened anywhere, also years later.

How it stays safe and needs nothing from outside: `offline_page`.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec

from railwright.diagnosis.gpu_health import WATCHED, watched_words
from railwright.diagnosis.gpu_limits import decides_nothing
from railwright.diagnosis.model import Diagnosis, Judged, JudgedPath, State
from railwright.errors import RailwrightError
from railwright.limits.model import Limit, Source, Step
from railwright.report import wording
from railwright.report.figures import figures
from railwright.report.offline_page import as_it_is, render_page
from railwright.report.text import all_findings
from railwright.results.model import End, Result, Run
from railwright.topology.model import Scalar, Topology
from railwright.units import format_size

_SHOWN_VALUES = 4


def render_html(run: Run, diagnosis: Diagnosis, results: tuple[Result, ...], end: End | None) -> str:
    """The whole page. `results` are the raw records, for what was held while measuring."""
    fields = {
        "topology_svg": as_it_is(_drawing(run.topology)),
        "run": run,
        "context": run.context,
        "gpus": wording.gpu_words(run.topology),
        "watched": wording.visible(watched_words(results)),
        "end": end,
        "headline": _headline(diagnosis),
        "worst": _worst(diagnosis),
        "counts": wording.state_counts(path.verdict.state for path in diagnosis.paths),
        "closing": wording.closing_words(diagnosis),
        "cut_off": wording.cut_off_words(end),
        "paths": [_path_view(path) for path in diagnosis.paths],
        "findings": all_findings(diagnosis),
        "unmeasured": wording.unmeasured(diagnosis.points),
        "methods": _methods(results),
    }
    return render_page("report.html.j2", figures(diagnosis.points), fields)


def _drawing(topology: Topology) -> str:
    """The topology as SVG, checked to be well-formed, so that a bad name could at worst break the drawing."""
    from railwright.report.topology_svg import render_topology_svg

    drawing: str = render_topology_svg(topology)
    try:
        ET.fromstring(drawing)  # noqa: S314  # our own drawing, and without a document type nothing can be expanded
    except ET.ParseError as error:
        raise RailwrightError(
            f"the drawing of {wording.visible(topology.name)!r} is not well-formed: {error}",
            hint="please report this with the output of: railwright topo capture",
        ) from error
    return drawing[drawing.index("<svg") :]  # an XML declaration has no place inside a page


def _worst(diagnosis: Diagnosis) -> State:
    counted = wording.state_counts(path.verdict.state for path in diagnosis.paths)
    return counted[0][0] if counted else "unknown"


def _headline(diagnosis: Diagnosis) -> str:
    """What the page says first, in one line."""
    counts = dict(wording.state_counts(path.verdict.state for path in diagnosis.paths))
    total = wording.count(len(diagnosis.paths), "path")
    slow, fine = counts.get("slow", 0), counts.get("ok", 0)
    unjudged = sum(counts.get(state, 0) for state in ("suspicious", "failed", "unknown"))
    if slow:
        return f"{slow} of {total} {'is' if slow == 1 else 'are'} slow"
    if unjudged:
        return f"{unjudged} of {total} could not be judged"
    if not fine:
        return "Nothing was measured"
    return (
        "The measured path is as fast as expected"
        if fine == 1
        else f"All {fine} measured paths are as fast as expected"
    )


METER_LIMIT = 80.0
"""Where the limit stands on a bar that is 100 long: what is above the limit must be seen to be above it."""


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """The fraction of limit as a bar: how far it reaches, and where the expected band begins."""

    reached: float
    band_from: float | None
    limit: float = METER_LIMIT


class PathView(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of paths, and what unfolds under it."""

    path: JudgedPath
    head: Judged | None
    varied: str
    size: str
    measured: str
    spread: str
    limit: str
    fraction: str
    because: str
    why: str
    meter: Meter | None
    steps: tuple[Step, ...]
    sources: tuple[Source, ...]


def _path_view(path: JudgedPath) -> PathView:
    head = path.headline
    limit = head.limit if head and isinstance(head.limit, Limit) else None
    because = wording.because(head.limit) if head else ""
    limit_words, share = wording.limit_and_share(head)
    why = wording.visible(path.verdict.why)
    return PathView(
        path=path,
        head=head,
        varied=wording.parameter_words(path.parameters),
        size=wording.scalar("size_bytes", head.parameters["size_bytes"])
        if head and "size_bytes" in head.parameters
        else "",
        measured=wording.quantity(path.quantity, head.value if head else None),
        spread=wording.percent(head.launch_spread if head else None),
        limit=limit_words,
        fraction=share,
        because=because,
        why="" if why and why in because else why,
        meter=_meter(head),
        steps=limit.derivation if limit else (),
        sources=limit.sources if limit else (),
    )


def _meter(head: Judged | None) -> Meter | None:
    if head is None or head.fraction_of_limit is None or not head.fraction_of_limit >= 0:
        return None
    if decides_nothing(head.limit, head.expected):
        return None
    edge = None
    if head.expected is not None and isinstance(head.limit, Limit) and head.limit.value > 0:
        slow_edge = head.expected.high if head.quantity == "latency_s" else head.expected.low
        if slow_edge:
            share = head.limit.value / slow_edge if head.quantity == "latency_s" else slow_edge / head.limit.value
            edge = round(min(share, 1.0) * METER_LIMIT, 2)
    return Meter(reached=round(min(head.fraction_of_limit * METER_LIMIT, 100.0), 2), band_from=edge)


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """How the points of one benchmark were measured: what they all share."""

    benchmark: str
    method: str
    ranks: int
    hosts: int
    settings: str
    points: int
    checked: str


def _methods(results: tuple[Result, ...]) -> tuple[Method, ...]:
    groups = wording.grouped(
        (result for result in results if result.outcome == "measured"),
        lambda result: (result.benchmark, result.method, result.ranks, result.hosts),
    )
    return tuple(
        Method(
            benchmark=benchmark, method=method, ranks=ranks, hosts=hosts, settings=_settings(found),
            points=len(found), checked=_checked(found),
        )
        for (benchmark, method, ranks, hosts), found in groups
    )  # fmt: skip


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
    missing = f", {wording.count(unchecked, 'point')} not checked" if unchecked else ""
    methods = ", ".join(sorted({check.method for check in checks}))
    return f"{total} checked ({methods}), {wrong} bytes wrong{missing}"
