"""The report of a run as a single HTML file that needs no network and stays readable for years.

`offline_page` keeps it safe and self-contained.
"""

from __future__ import annotations

from operator import attrgetter
from xml.etree import ElementTree as ET

from railwright.diagnosis.peers.gpu_health import WATCHED, format_samples
from railwright.diagnosis.verdicts.judged import Judged
from railwright.errors import RailwrightError
from railwright.groups import group_by_key
from railwright.report import storage_ways
from railwright.report.pages.offline_page import mark_safe, render_page
from railwright.report.pages.path_groups import Sources, group_paths
from railwright.report.pictures.figures import figures
from railwright.report.pictures.machine import draw_machine
from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text import wording
from railwright.report.view import View
from railwright.results.records import Result
from railwright.topology.devices import Scalar, Topology
from railwright.units import format_count, format_size

_SHOWN_VALUES = 4


def render_html(view: View) -> str:
    """Render the whole page."""
    run = view.run
    machine_svg, links_note = draw_machine(run.topology, view.every)
    measured = (result for result in view.results if result.outcome == "measured")
    methods = group_by_key(measured, lambda result: (result.benchmark, *_method(result)))
    numbers = {key: number for number, (key, _) in enumerate(methods, 1)}
    fields = {
        "machine_svg": mark_safe(_check_well_formed(machine_svg, run.topology)),
        "links_note": links_note,
        "topology_svg": mark_safe(_check_well_formed(render_topology_svg(run.topology), run.topology)),
        "run": run,
        "context": run.context,
        "gpus": wording.gpu_words(run.topology),
        "watched": view.watched,
        "state_meanings": [(wording.state_word(state), look.meaning) for state, look in wording.STATES.items()],
        "end": view.end,
        "view": view,
        "methods": methods,
        "method_number": lambda row: numbers.get((row.judged.benchmark, *_method(row.head))),
        "storage_ways": storage_ways,
        "path_groups": group_paths(view.rows),
        "reference_groups": group_paths(view.references),
        "cited": Sources(),
        "same": group_by_key,
        "benchmark_of": attrgetter("first.benchmark"),
        "settings_of": _settings_words,
        "check_of": _verification_words,
    }
    return render_page("report.html.j2", (*storage_ways.figures(view.ways), *figures(view.diagnosis.points)), fields)


def _method(measured: Result | Judged) -> tuple[str, int, int]:
    return measured.method, measured.ranks, measured.hosts


def _check_well_formed(drawing: str, topology: Topology) -> str:
    """Return the drawing if it is well-formed, so that a bad name cannot break the page. Raises RailwrightError."""
    if not drawing:
        return ""
    try:
        ET.fromstring(drawing)  # noqa: S314  # our own drawing; without a document type no entity can be expanded
    except ET.ParseError as error:
        raise RailwrightError(
            f"the drawing of {wording.escape(topology.name)!r} is not well-formed: {error}",
            hint="please report this with the output of: railwright topo capture",
        ) from error
    return drawing


def _settings_words(results: list[Result]) -> str:
    """Format each setting once with its value, its few values or their range, then the state of the GPUs."""
    values: dict[str, list[Scalar]] = {}
    for result in results:
        for key, value in result.settings.items():
            found = values.setdefault(key, [])
            if key not in WATCHED and value not in found:
                found.append(value)
    held = ", ".join(f"{wording.key_words(key)} {_range_words(key, found)}" for key, found in values.items() if found)
    seen = wording.escape(format_samples(results))
    return ". ".join(words for words in (held, seen[:1].upper() + seen[1:]) if words)


def _range_words(key: str, values: list[Scalar]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(values) > _SHOWN_VALUES and len(numbers) == len(values):
        return f"{wording.scalar(key, min(numbers))} to {wording.scalar(key, max(numbers))}"
    return wording.join_first([wording.scalar(key, value) for value in values], _SHOWN_VALUES, between=" / ")


def _verification_words(results: list[Result]) -> str:
    checks = [result.verification for result in results if result.verification]
    if not checks:
        return "The data was not checked"
    total = format_size(sum(check.bytes_checked for check in checks))
    wrong = sum(check.bytes_wrong for check in checks)
    unchecked = len(results) - len(checks)
    missing = f", {format_count(unchecked, 'point')} not checked" if unchecked else ""
    methods = ", ".join(sorted({check.method for check in checks}))
    return f"{total} checked ({methods}), {wrong} bytes wrong{missing}"
