"""A table of hosts as a page without network access or scripts: a heat map of hosts and paths, outliers first.

The page shares its policy and its style with the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from railwright.diagnosis.fleet.host_table import Cell, HostSeen, HostTable
from railwright.report.nccl_scaling import TITLES, scaling_tables
from railwright.report.pages.offline_page import mark_safe, render_page
from railwright.report.pictures.locate import matrix_svg
from railwright.report.text import between_hosts as between_words
from railwright.report.text import wording
from railwright.report.text.between_hosts import BetweenHostsResult, find_notable_pairs, format_pair, merge_pairs
from railwright.report.text.host_words import column_name, describe_host, describe_lag, summarize
from railwright.report.text.locate import capacity_words, confidence_words, suspect_words

_MAX_SUSPECTS = 12
_MAX_LAGS = 6
_MAX_PAIRS = 40
_STEPS = ((0.5, "d"), (0.75, "c"), (0.9, "b"))


class _Row(NamedTuple):
    name: str
    link: str
    is_outlier: bool
    cells: tuple[tuple[str, str, str, int], ...]
    """A class, a sign, a tooltip, and the number of columns; merged cells make the browser's layout faster."""


def render_hosts_html(
    table: HostTable, link_of: Callable[[str], str], found: BetweenHostsResult | None = None, collectives_link: str = ""
) -> str:
    """Render the whole page; `link_of` returns the link to a host's own report, empty if there is none.

    `found` has the measurements between the hosts; the report of their collectives is at `collectives_link`.
    """
    outliers = [host for host in table.hosts if host.is_outlier]
    fields = {
        "title": summarize(table),
        "is_bad": bool(outliers) or (found is not None and found.said.is_bad),
        "outliers": [(host.name, link_of(host.name), describe_host(host, table),
                  [describe_lag(cell, table.columns[cell.column]) for cell in host.behind[1:_MAX_LAGS]])
                 for host in outliers[:_MAX_SUSPECTS]],
        "left_out": max(0, len(outliers) - _MAX_SUSPECTS),
        "capacity_words": capacity_words,
        "confidence_words": confidence_words,
        "columns": [(number, column_name(column)) for number, column in enumerate(table.columns, 1)],
        "rows": [_row(host, table, link_of(host.name)) for host in table.hosts],
        "between": _describe_network(found, collectives_link) if found is not None else None,
    }  # fmt: skip
    return render_page("hosts.html.j2", [], fields)


def _describe_network(found: BetweenHostsResult, link: str) -> dict[str, Any]:
    """Return the fields of the section on measurements between hosts."""
    notable = find_notable_pairs(found)
    paths = found.collectives.paths if found.collectives is not None else ()
    return {
        "answer": between_words.summarize(found),
        "suspects": [(suspect, suspect_words(suspect)) for suspect in found.said.suspects[:_MAX_SUSPECTS]],
        "pairs": [format_pair(suspect) for suspect in notable[:_MAX_PAIRS]],
        "pairs_left_out": max(0, len(notable) - _MAX_PAIRS),
        "matrix": mark_safe(matrix_svg(shown)) if (shown := merge_pairs(found)) is not None else "",
        "collectives": between_words.list_collectives(found),
        "scaling": tuple(scaling_tables(found.collectives.points if found.collectives is not None else ())),
        "scaling_titles": TITLES,
        "link": link if paths else "",
        "rows": list(between_words.rows(found)),
    }


def _row(host: HostSeen, table: HostTable, link: str) -> _Row:
    cells_by_column = {cell.column: cell for cell in host.cells}
    row = [_cell(cells_by_column.get(number), number, table) for number in range(len(table.columns))]
    alike = [list(group) for _, group in groupby(enumerate(row), lambda item: item if item[1][2] else item[1])]
    cells = tuple((*same[0][1], len(same)) for same in alike)
    return _Row(host.name, link, host.is_outlier, cells)


def _cell(cell: Cell | None, number: int, table: HostTable) -> tuple[str, str, str]:
    if cell is None:
        return "n", "", ""
    sign = "" if cell.state in ("ok", "reference") else wording.STATES[cell.state].sign
    if cell.standing != "behind":
        return "a", sign, ""  # there are tens of thousands of these; the host's own report has the value
    step = next((name for below, name in _STEPS if cell.part is not None and cell.part < below), "b")
    part = wording.ABSENT if cell.part is None else f"{cell.part:.2f}"
    return step, sign, f"{part} of the others, {wording.quantity(table.columns[number].quantity, cell.value)}"
