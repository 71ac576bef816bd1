"""A table of hosts on one screen: what stands out first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from railwright.diagnosis.fleet.host_table import HostTable
from railwright.report.text import wording
from railwright.report.text.between_hosts import Found, between_lines
from railwright.report.text.host_words import answer, host_says
from railwright.units import count

_MOST_HOSTS = 24


def lines(table: HostTable, *, compared: bool, between: Found | None = None) -> Iterator[str]:
    """The lines, at most about sixty."""
    yield answer(table)
    if not compared:
        yield "The hosts share CPUs, so that none is held against another."
    told = [host for host in table.hosts if host.is_outlier or host.telling]
    for host in told[:_MOST_HOSTS]:
        yield f"  {wording.visible(host.name)}  {wording.visible(host_says(host, table))}"
    if len(told) > _MOST_HOSTS:
        yield f"  and {count(len(told) - _MOST_HOSTS, 'host')} more: --json prints all"
    states = Counter(cell.state for host in table.hosts for cell in host.cells)
    paths = ", ".join(f"{number} {state}" for state, number in states.most_common())
    yield f"{count(len(table.columns), 'path')} on each host at most: {paths or 'none was measured'}"
    if between is not None:
        yield ""
        yield from map(wording.visible, between_lines(between))
