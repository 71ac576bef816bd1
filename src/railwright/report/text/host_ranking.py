"""Hosts that were measured separately, the fastest first."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.diagnosis.peers.hosts import Host, Ranking, rankings
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.records import Result


def lines(results: Iterable[Result]) -> list[str]:
    """Return a line for each host and kind of work; parentheses hold the ratio to the others' median."""
    found = []
    for ranking in rankings(results):
        varied = ", ".join(f"{name} {value}" for name, value in ranking.parameters.items())
        found.append(f"{ranking.benchmark} {varied}")
        width = max(len(host.name) for host in ranking.hosts)
        found += [f"  {place:3}  {host.name:{width}}  {_words(host, ranking)}"
                  for place, host in enumerate(ranking.hosts, 1)]  # fmt: skip
    return found


def _words(host: Host, ranking: Ranking) -> str:
    if not host.values:
        return "no result"
    others = ranking.others(host)
    words = format_quantity(ranking.quantity, host.value)
    words += f" ({host.value / others:.2f})" if others else ""
    if host.cpu_share >= WHOLE_CORES.value:
        return words
    return f"{words}, with {host.cpu_share:.0%} of the time of its cores".replace("%", " %")
