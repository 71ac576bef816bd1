"""A table of hosts on one screen, outliers first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from railwright.diagnosis.fleet.host_table import HostTable
from railwright.report.text import wording
from railwright.report.text.between_hosts import BetweenHostsResult, format_between_hosts
from railwright.report.text.host_words import describe_host, summarize
from railwright.results.host_list import fold_sentences
from railwright.units import format_count

_MAX_HOSTS = 24


def lines(table: HostTable, *, compared: bool, between: BetweenHostsResult | None = None) -> Iterator[str]:
    """Yield the report in at most about sixty lines."""
    yield summarize(table)
    if not compared:
        yield "The hosts share CPUs, so they are not compared with each other."
    troubles = {host.name: f"{host.name}  {host.trouble}" for host in table.hosts if host.trouble}
    for sentence in fold_sentences(troubles):
        yield f"  {wording.escape(sentence)}"
    notable = [host for host in table.hosts if (host.is_outlier or host.telling) and not host.trouble]
    for host in notable[:_MAX_HOSTS]:
        yield f"  {wording.escape(host.name)}  {wording.escape(describe_host(host, table))}"
    if len(notable) > _MAX_HOSTS:
        yield f"  and {format_count(len(notable) - _MAX_HOSTS, 'host')} more: --json prints all"
    states = Counter(cell.state for host in table.hosts for cell in host.cells)
    paths = ", ".join(f"{number} {wording.state_word(state)}" for state, number in states.most_common())
    yield f"at most {format_count(len(table.columns), 'path')} on each host: {paths or 'none was measured'}"
    if between is not None:
        yield ""
        yield from map(wording.escape, format_between_hosts(between))
