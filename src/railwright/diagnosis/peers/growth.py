"""Merged groups of hosts: the gain of each merge, and findings for merges that lose. Pure.

Every host has the same amount of work (weak scaling), so two groups together should reach the sum of their separate
rates. No rate is predicted from the network: a merge is compared with its own halves and with other merges of the
same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from railwright.checks.finding import Finding, ParameterPlace, Place
from railwright.diagnosis.peers.gpus import AGAIN
from railwright.diagnosis.peers.hosts import rankings, slower_hosts, summarize_launches
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.groups import group_by_key
from railwright.limits.limit import Quantity
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.host_list import format_hosts, parse_host_list
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile

MIN_EFFICIENCY = 0.75
"""Our choice, as a share of the sum of both halves: below it more than half of the second half's rate is lost."""
LESS_THAN_SIBLINGS = 0.1
"""Our choice: twice the threshold for a slow host, because the noise of three measurements adds up."""
_HARDLY_MORE = 0.6
"""Our choice, as a share of the sum of both halves: hardly more than the better half alone, beyond a healthy merge's
noise."""
_MIN_MERGES = 3
"""The number of merges of one size needed to compare one with the others."""
_GROUP_PARAMETERS = frozenset({"host", "hosts", "first", "n", "p", "q"})
"""Parameters that may differ between a group and its halves at the same kind of work."""

Members = tuple[str, ...]
State = Literal["gains", "loses", "disturbed", "failed"]


class Group(NamedTuple):
    """The rate of several hosts together, or of a single host."""

    members: Members
    values: tuple[float, ...]
    """The medians of its launches, ascending; empty without a valid result."""
    cpu_share: float
    reason: str = ""
    """The reason why it has no value."""

    @property
    def value(self) -> float:
        """The median of `values`; 0 if empty."""
        return quantile(self.values, 0.5) if self.values else 0.0


class Merge(NamedTuple):
    """Two groups and their merged result."""

    quantity: Quantity
    together: Group
    first: Group
    second: Group

    @property
    def efficiency(self) -> float:
        """The merged rate over the sum of the halves' rates; 0 if any of the three is unknown."""
        alone = self.first.value + self.second.value
        return self.together.value / alone if self.first.values and self.second.values else 0.0

    @property
    def best_efficiency(self) -> float:
        """The efficiency of the fastest launch."""
        return self.efficiency * self.together.values[-1] / self.together.value if self.together.values else 0.0


def merges(results: Iterable[Result]) -> tuple[Merge, ...]:
    """Return every merge in the order of measurement."""
    of_groups = [result for result in results if result.parameters.get("first") or result.parameters.get("host")]
    found = []
    for _, alike in group_by_key(of_groups, lambda result: (result.benchmark, result.quantity, *_work_key(result))):
        groups = {members: _build_group(members, list(own)) for members, own in group_by_key(alike, _members)}
        firsts = {
            _members(result): first for result in alike if isinstance(first := result.parameters.get("first"), int)
        }
        for members, first in firsts.items():
            half, other = groups.get(members[:first]), groups.get(members[first:])
            if half is not None and other is not None:
                found.append(Merge(alike[0].quantity, groups[members], half, other))
    return tuple(found)


def _work_key(result: Result) -> list[tuple[str, object]]:
    """Return the varied parameters except the hosts and those that grow with their number."""
    return sorted((name, value) for name, value in result.parameters.items() if name not in _GROUP_PARAMETERS)


def _members(result: Result) -> Members:
    host = result.parameters.get("host")
    return (str(host),) if host else parse_host_list(str(result.parameters.get("hosts", "")))


def _build_group(members: Members, results: Sequence[Result]) -> Group:
    values, cpu_share = summarize_launches(results)
    reason = "" if values else next((result.reason for result in results if result.reason), "not measured")
    return Group(members, values, cpu_share, reason)


def judge_merge(merge: Merge, every: Iterable[Merge]) -> State:
    """Return whether the merge gained as expected. `every` holds all merges to compare with, including itself."""
    if not merge.efficiency:
        return "failed"
    alike = [peer for peer in every if peer is not merge and len(peer.together.members) == len(merge.together.members)]
    others = sorted(peer.efficiency for peer in alike if peer.efficiency)
    threshold = MIN_EFFICIENCY
    if len(others) >= _MIN_MERGES - 1:
        threshold = max(threshold, quantile(others, 0.5) * (1 - LESS_THAN_SIBLINGS))
    if merge.best_efficiency >= threshold:
        return "gains"
    usual = min(merge.first.cpu_share, merge.second.cpu_share)
    return "disturbed" if merge.together.cpu_share < usual - (1 - WHOLE_CORES.value) else "loses"


def is_healthy(members: Members, results: Sequence[Result]) -> bool:
    """Report whether a group may be merged further; for a single host, whether it was measured and is not slow."""
    if len(members) == 1:
        measured = {host.name for ranking in rankings(results) for host in ranking.hosts if host.values}
        slow = {place for finding in slower_hosts(results) if finding.certainty == "likely" for place in finding.where}
        return members[0] in measured and ParameterPlace("host", members[0]) not in slow
    every = merges(results)
    return any(merge.together.members == members and judge_merge(merge, every) == "gains" for merge in every)


def losing_merges(results: Sequence[Result]) -> tuple[Finding, ...]:
    """Return a finding for each part that gains with no other, each other merge that loses, and each disturbed one."""
    every = merges(results)
    states = {merge.together.members: judge_merge(merge, every) for merge in every}
    lost = [merge for merge in every if states[merge.together.members] in ("loses", "failed")]
    gaining = [merge for merge in every if states[merge.together.members] == "gains"]
    gained = {half.members for merge in gaining for half in (merge.first, merge.second)}
    well = gained | {merge.together.members for merge in gaining}
    findings, explained = [], set[Members]()
    for part in dict.fromkeys(half.members for merge in lost for half in (merge.first, merge.second)):
        partners = [merge for merge in lost if part in (merge.first.members, merge.second.members)]
        if len(partners) > 1 and part not in gained:
            others = [
                merge
                for merge in partners
                if _partner(merge, part) not in well and merge.together.members not in explained
            ]
            if len(others) < len(partners):  # otherwise a partner without gains may be at fault
                findings.append(_report_part(part, partners))
                explained |= {merge.together.members for merge in partners}
    findings += [_report_merge(merge, gained) for merge in lost if merge.together.members not in explained]
    findings += [_report_disturbed(merge) for merge in every if states[merge.together.members] == "disturbed"]
    return tuple(findings)


def _partner(merge: Merge, part: Members) -> Members:
    return merge.second.members if merge.first.members == part else merge.first.members


def format_merge(merge: Merge) -> str:
    """Format a merge as `21.3 GFLOP/s of 10.8 + 10.9 (0.98)`."""
    if not merge.together.values:
        return f"no result: {merge.together.reason}"
    if not merge.efficiency:
        return f"{format_quantity(merge.quantity, merge.together.value)}, a half has no result"
    first, second, together = (
        format_quantity(merge.quantity, group.value) for group in (merge.first, merge.second, merge.together)
    )
    return f"{together} of {first} + {second} ({merge.efficiency:.2f})"


def _report_part(part: Members, lost: Sequence[Merge]) -> Finding:
    companions = " nor with ".join(format_hosts(_partner(merge, part)) for merge in lost)
    return _build_finding(
        (ParameterPlace("hosts", format_hosts(part)),),
        f"{format_hosts(part)} gains nothing with {companions}, which measure well without it",
        f"check its NICs, cables and leaf: railwright locate --hosts with {format_hosts(part)} and a few others",
        lost,
    )


def _report_merge(merge: Merge, gained: set[Members]) -> Finding:
    first, second = format_hosts(merge.first.members), format_hosts(merge.second.members)
    if merge.first.members in gained and merge.second.members in gained:
        cause = "each gains with others, so the cause is between the two: links and routes between their leaves"
    else:
        cause = "the cause is in either group or between them: neither was also merged with others"
    says = f"{first} and {second} together reach {format_merge(merge)}: {cause}"
    return _build_finding((ParameterPlace("hosts", first), ParameterPlace("hosts", second)), says, _REMEDY, (merge,))


_REMEDY = "search the routes between them: railwright locate --hosts; note the routing engine and try another"


def _report_disturbed(merge: Merge) -> Finding:
    names = format_hosts(merge.together.members)
    had = f"{names} had {merge.together.cpu_share:.2f} of their cores' time, less than separately"
    return Finding(
        fault="merge_loses",
        where=(ParameterPlace("hosts", names),),
        certainty="could not look",
        says=f"{had}: {format_merge(merge)}",
        remedy="stop other work on these hosts, and measure again",
    )


def _build_finding(where: tuple[Place, ...], says: str, remedy: str, lost: Sequence[Merge]) -> Finding:
    once = len(lost) < 2 and len(lost[0].together.values) < 2
    return Finding(
        fault="merge_loses",
        where=where,
        certainty="possible" if once and lost[0].efficiency > _HARDLY_MORE else "likely",
        says=says,
        costs="work shared by these groups runs at the rate of one of them, or less",
        remedy=(AGAIN if once else "") + remedy,
        evidence=tuple(
            Evidence(
                claim=f"{format_hosts(merge.first.members)} + {format_hosts(merge.second.members)}",
                value=format_merge(merge),
                seen=f"{max(1, len(merge.together.values))} launches",
            )
            for merge in lost
        ),
    )  # fmt: skip
