"""A table of hosts on one screen, outliers first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from railwright.diagnosis.fleet.host_table import HostTable
from railwright.report.text import wording
from railwright.report.text.between_hosts import Found, between_lines
from railwright.report.text.host_words import answer, describe_host
from railwright.units import count

_MOST_HOSTS = 24


def lines(table: HostTable, *, compared: bool, between: Found | None = None) -> Iterator[str]:
    """Yield the report in at most about sixty lines."""
    yield answer(table)
    if not compared:
        yield "The hosts share CPUs, so they are not compared with each other."
    notable = [host for host in table.hosts if host.is_outlier or host.telling]
    for host in notable[:_MOST_HOSTS]:
        yield f"  {wording.visible(host.name)}  {wording.visible(describe_host(host, table))}"
    if len(notable) > _MOST_HOSTS:
        yield f"  and {count(len(notable) - _MOST_HOSTS, 'host')} more: --json prints all"
    states = Counter(cell.state for host in table.hosts for cell in host.cells)
    paths = ", ".join(f"{number} {wording.state_word(state)}" for state, number in states.most_common())
    yield f"at most {count(len(table.columns), 'path')} on each host: {paths or 'none was measured'}"
    if between is not None:
        yield ""
        yield from map(wording.visible, between_lines(between))
