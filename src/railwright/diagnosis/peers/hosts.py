"""Ranks hosts that were measured separately, and reports those slower than the others at the same work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from railwright.checks.finding import Finding, ParameterPlace
from railwright.diagnosis.peers.gpus import AGAIN, SLOWER_BY
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.groups import group_by_key
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.devices import Scalar

_MIN_HOSTS = 3
"""With two hosts it is unknown which one is healthy."""


class Host(NamedTuple):
    """A host at one kind of work."""

    name: str
    values: tuple[float, ...]
    """The medians of its launches, ascending; empty without a valid result."""
    cpu_share: float
    """The smallest share of its cores' time in any launch."""

    @property
    def value(self) -> float:
        """The median of `values`; 0 if empty."""
        return quantile(self.values, 0.5) if self.values else 0.0


class Ranking(NamedTuple):
    """Hosts at the same work, the fastest first, those without a result last."""

    benchmark: str
    quantity: str
    parameters: dict[str, Scalar]
    hosts: tuple[Host, ...]

    def others(self, host: Host) -> float:
        """Return the median of the other hosts; 0 if there are none."""
        values = sorted(other.value for other in self.hosts if other is not host and other.values)
        return quantile(values, 0.5) if values else 0.0


def rankings(results: Iterable[Result]) -> tuple[Ranking, ...]:
    """Rank the hosts at every kind of work that was measured separately on several hosts. Only rates are ranked."""
    named = [result for result in results if result.parameters.get("host") and result.quantity != "latency_s"]
    alike = group_by_key(
        named, lambda result: (result.benchmark, result.quantity, *sorted(_other_parameters(result).items()))
    )
    found = []
    for _, group in alike:
        by_host = group_by_key(group, lambda result: result.parameters["host"])
        hosts = [Host(str(name), *summarize_launches(launches)) for name, launches in by_host]
        hosts.sort(key=lambda host: host.value, reverse=True)
        if len(hosts) > 1:
            found.append(Ranking(group[0].benchmark, group[0].quantity, _other_parameters(group[0]), tuple(hosts)))
    return tuple(found)


def _other_parameters(result: Result) -> dict[str, Scalar]:
    return {name: value for name, value in result.parameters.items() if name != "host"}


def summarize_launches(results: Iterable[Result]) -> tuple[tuple[float, ...], float]:
    """Return the medians of the measured launches, ascending, and the smallest share of the cores' time."""
    sound = [result for result in results if result.outcome == "measured" and result.summary is not None]
    shares = [share for result in sound if isinstance(share := result.settings.get("cpu_share"), int | float)]
    medians = sorted(result.summary.median for result in sound if result.summary is not None)
    return tuple(medians), float(min(shares, default=1.0))


def slower_hosts(results: Iterable[Result]) -> tuple[Finding, ...]:
    """Return a finding for each host that is slower in all of its launches, at the work with the largest loss.

    A host that shared its cores with other work is not reported.
    """
    worst: dict[str, tuple[float, Finding]] = {}
    for ranking in rankings(results):
        if sum(bool(host.values) for host in ranking.hosts) < _MIN_HOSTS:
            continue
        for host in ranking.hosts:
            others = ranking.others(host)
            lost = 1 - host.values[-1] / others if host.values and others else 0.0
            if lost > SLOWER_BY and host.cpu_share >= WHOLE_CORES.value and lost > worst.get(host.name, (0.0,))[0]:
                worst[host.name] = (lost, _build_finding(host, ranking, lost, others))
    return tuple(finding for _, finding in worst.values())


def _build_finding(host: Host, ranking: Ranking, lost: float, others: float) -> Finding:
    once = len(host.values) < 2
    value, rest = (format_quantity(ranking.quantity, rate) for rate in (host.value, others))
    work = " ".join(str(word) for word in (ranking.benchmark, ranking.parameters.get("part", "")) if word)
    return Finding(
        fault="host_slower_than_siblings",
        where=(ParameterPlace("host", host.name),),
        certainty="possible" if once else "likely",
        says=f"{host.name} is {lost:.0%} slower than the other hosts in {work}: {value} instead of {rest}",
        costs="work shared by all hosts runs at the rate of the slowest",
        remedy=(AGAIN if once else "")
        + "compare clocks, power limits, temperatures, memory modules and firmware with another host",
        evidence=(Evidence(claim=ranking.quantity, value=value, seen=f"{len(host.values)} launches"),),
    )
