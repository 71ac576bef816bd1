"""A table of hosts as one page that needs no network and no script: a heat map of hosts and paths, outliers first.

The page, its policy and its style are those of the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from railwright.diagnosis.fleet.host_table import Cell, HostSeen, HostTable
from railwright.report.pages.offline_page import as_it_is, render_page
from railwright.report.pictures.locate import matrix_svg
from railwright.report.text import between_hosts as between_words
from railwright.report.text import wording
from railwright.report.text.between_hosts import Found, collective_words, pair_words, telling
from railwright.report.text.host_words import answer, behind_words, column_name, host_says
from railwright.report.text.locate import suspect_words

_MOST_TOLD = 12
_MOST_BEHIND = 6
_MOST_PAIRS = 40
_STEPS = ((0.5, "d"), (0.75, "c"), (0.9, "b"))


class _Row(NamedTuple):
    name: str
    link: str
    is_outlier: bool
    cells: tuple[tuple[str, str, str, int], ...]
    """A class, a sign, the words of a tooltip, and over how many columns: a browser lays out few cells sooner."""


def render_hosts_html(
    table: HostTable, link_of: Callable[[str], str], found: Found | None = None, collectives_link: str = ""
) -> str:
    """The whole page; `link_of` gives the place of a host's own report, empty where there is none.

    `found` is what was measured between the hosts; the report of their collectives is at `collectives_link`.
    """
    told = [host for host in table.hosts if host.is_outlier]
    fields = {
        "title": answer(table),
        "is_bad": bool(told) or (found is not None and found.said.is_bad),
        "told": [(host.name, link_of(host.name), host_says(host, table),
                  [behind_words(cell, table.columns[cell.column]) for cell in host.behind[1:_MOST_BEHIND]])
                 for host in told[:_MOST_TOLD]],
        "left_out": max(0, len(told) - _MOST_TOLD),
        "columns": [(number, column_name(column)) for number, column in enumerate(table.columns, 1)],
        "rows": [_row(host, table, link_of(host.name)) for host in table.hosts],
        "between": _between(found, collectives_link) if found is not None else None,
    }  # fmt: skip
    return render_page("hosts.html.j2", [], fields)


def _between(found: Found, link: str) -> dict[str, Any]:
    """The fields of the section of what crosses between hosts."""
    told = telling(found)
    paths = found.collectives.paths if found.collectives is not None else ()
    return {
        "answer": between_words.answer(found),
        "suspects": [(one, suspect_words(one)) for one in found.said.suspects[:_MOST_TOLD]],
        "pairs": [pair_words(one) for one in told[:_MOST_PAIRS]],
        "pairs_left_out": max(0, len(told) - _MOST_PAIRS),
        "matrix": as_it_is(matrix_svg(found.located)) if found.located is not None else "",
        "collectives": [collective_words(path) for path in paths],
        "link": link if paths else "",
        "rows": list(between_words.rows(found)),
    }


def _row(host: HostSeen, table: HostTable, link: str) -> _Row:
    own = {cell.column: cell for cell in host.cells}
    every = [_cell(own.get(number), number, table) for number in range(len(table.columns))]
    alike = [list(cells) for _, cells in groupby(enumerate(every), lambda one: one if one[1][2] else one[1])]
    cells = tuple((*same[0][1], len(same)) for same in alike)
    return _Row(host.name, link, host.is_outlier, cells)


def _cell(cell: Cell | None, number: int, table: HostTable) -> tuple[str, str, str]:
    if cell is None:
        return "n", "", ""
    sign = "" if cell.state in ("ok", "reference") else wording.STATES[cell.state].sign
    if cell.standing != "behind":
        return "a", sign, ""  # one of tens of thousands: its value is in the host's own report
    step = next((name for below, name in _STEPS if cell.part is not None and cell.part < below), "b")
    part = wording.ABSENT if cell.part is None else f"{cell.part:.2f}"
    return step, sign, f"{part} of the others, {wording.quantity(table.columns[number].quantity, cell.value)}"
