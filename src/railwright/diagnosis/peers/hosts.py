"""Hosts that were measured each by itself: ranked, and those named that are slower than the others at the same work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from railwright.checks.finding import Finding, OfParameter
from railwright.diagnosis.peers.gpus import AGAIN, SLOWER_BY
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.groups import grouped
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile
from railwright.topology.devices import Scalar

_NEEDED = 3
"""Of two hosts nobody knows which is the healthy one."""


class Host(NamedTuple):
    """One host at one kind of work."""

    name: str
    values: tuple[float, ...]
    """The medians of its launches, from low to high; none where it gave no sound result."""
    cpu_share: float
    """The least part of its cores' time that it had in any launch."""

    @property
    def value(self) -> float:
        """What stands for it."""
        return quantile(self.values, 0.5) if self.values else 0.0


class Ranking(NamedTuple):
    """Hosts at the same work, the fastest first; those without a result last."""

    benchmark: str
    quantity: str
    parameters: dict[str, Scalar]
    hosts: tuple[Host, ...]

    def others(self, host: Host) -> float:
        """The median of the other hosts; 0 where there are none."""
        values = sorted(one.value for one in self.hosts if one is not host and one.values)
        return quantile(values, 0.5) if values else 0.0


def rankings(results: Iterable[Result]) -> tuple[Ranking, ...]:
    """Every kind of work that was measured on several hosts, each by itself. Only rates: more is better."""
    named = [one for one in results if one.parameters.get("host") and one.quantity != "latency_s"]
    alike = grouped(named, lambda one: (one.benchmark, one.quantity, *sorted(_rest(one).items())))
    found = []
    for _, group in alike:
        by_host = grouped(group, lambda one: one.parameters["host"])
        hosts = [Host(str(name), *launches_of(own)) for name, own in by_host]
        hosts.sort(key=lambda host: host.value, reverse=True)
        if len(hosts) > 1:
            found.append(Ranking(group[0].benchmark, group[0].quantity, _rest(group[0]), tuple(hosts)))
    return tuple(found)


def _rest(result: Result) -> dict[str, Scalar]:
    return {name: value for name, value in result.parameters.items() if name != "host"}


def launches_of(results: Iterable[Result]) -> tuple[tuple[float, ...], float]:
    """The medians of the launches that were measured, from low to high, and the least share of the cores' time."""
    sound = [one for one in results if one.outcome == "measured" and one.summary is not None]
    shares = [share for one in sound if isinstance(share := one.settings.get("cpu_share"), int | float)]
    medians = sorted(one.summary.median for one in sound if one.summary is not None)
    return tuple(medians), float(min(shares, default=1.0))


def slower_hosts(results: Iterable[Result]) -> tuple[Finding, ...]:
    """One finding for each host that is slower in all of its launches, at the work that shows it most.

    A host whose cores were shared is not called slow: the others had them.
    """
    worst: dict[str, tuple[float, Finding]] = {}
    for ranking in rankings(results):
        if sum(bool(host.values) for host in ranking.hosts) < _NEEDED:
            continue
        for host in ranking.hosts:
            others = ranking.others(host)
            lost = 1 - host.values[-1] / others if host.values and others else 0.0
            if lost > SLOWER_BY and host.cpu_share >= WHOLE_CORES.value and lost > worst.get(host.name, (0.0,))[0]:
                worst[host.name] = (lost, _slower(host, ranking, lost, others))
    return tuple(finding for _, finding in worst.values())


def _slower(host: Host, ranking: Ranking, lost: float, others: float) -> Finding:
    once = len(host.values) < 2
    value, rest = (format_quantity(ranking.quantity, one) for one in (host.value, others))
    work = " ".join(str(one) for one in (ranking.benchmark, ranking.parameters.get("part", "")) if one)
    return Finding(
        fault="host_slower_than_siblings",
        where=(OfParameter("host", host.name),),
        certainty="possible" if once else "likely",
        says=f"{host.name} is {lost:.0%} slower than the other hosts in {work}: {value}, they have {rest}",
        costs="work that all hosts share goes at the rate of the slowest",
        remedy=(AGAIN if once else "")
        + "compare clocks, power limits, temperatures, memory modules and firmware with another host",
        evidence=(Evidence(claim=ranking.quantity, value=value, seen=f"{len(host.values)} launches"),),
    )
