"""Groups of hosts that were merged: what each merge gained, and those named that lose. Pure.

Every group has as much work a host as every other one (weak scaling), so that two groups together should reach what
both reach by themselves. No rate is foretold from the network: a merge is held against its own halves, and against
other merges of as many hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from railwright.checks.finding import Finding, OfParameter, Place
from railwright.diagnosis.peers.gpus import AGAIN
from railwright.diagnosis.peers.hosts import launches_of, rankings, slower_hosts
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.groups import grouped
from railwright.limits.limit import Quantity
from railwright.limits.linpack import WHOLE_CORES
from railwright.results.host_list import format_hosts, parse_host_list
from railwright.results.records import Evidence, Result
from railwright.results.statistics import quantile

LEAST_EFFICIENCY = 0.75
"""Our choice: of what both halves reach by themselves; with less, over half of what the second one adds is lost."""
LESS_THAN_SIBLINGS = 0.1
"""Our choice: twice what tells a slow host from the others, for the noise of three measurements adds up."""
_NOTHING = 0.6
"""Our choice: hardly more than the better half alone, which no noise of a healthy merge comes down to."""
_NEEDED = 3
"""Merges of as many hosts, of which one can be told from the others."""
_OF_GROUPS = frozenset({"host", "hosts", "first", "n", "p", "q"})
"""What differs between a group and its halves without making their work another kind."""

Members = tuple[str, ...]
State = Literal["gains", "loses", "disturbed", "failed"]


class Group(NamedTuple):
    """What hosts reached together, or one by itself."""

    members: Members
    values: tuple[float, ...]
    """The medians of its launches, from low to high; none where it gave no sound result."""
    cpu_share: float
    reason: str = ""
    """Why it has no value."""

    @property
    def value(self) -> float:
        """What stands for it."""
        return quantile(self.values, 0.5) if self.values else 0.0


class Merge(NamedTuple):
    """Two groups and what they reached together."""

    quantity: Quantity
    together: Group
    first: Group
    second: Group

    @property
    def efficiency(self) -> float:
        """Of what the halves reached by themselves; 0 where one of the three is not known."""
        alone = self.first.value + self.second.value
        return self.together.value / alone if self.first.values and self.second.values else 0.0

    @property
    def best_efficiency(self) -> float:
        """That of its fastest launch."""
        return self.efficiency * self.together.values[-1] / self.together.value if self.together.values else 0.0


def merges(results: Iterable[Result]) -> tuple[Merge, ...]:
    """Every merge, in the order in which they were measured."""
    of_groups = [one for one in results if one.parameters.get("first") or one.parameters.get("host")]
    found = []
    for _, alike in grouped(of_groups, lambda one: (one.benchmark, one.quantity, *_kind(one))):
        groups = {members: _group(members, list(own)) for members, own in grouped(alike, _members)}
        firsts = {_members(one): first for one in alike if isinstance(first := one.parameters.get("first"), int)}
        for members, first in firsts.items():
            one, other = groups.get(members[:first]), groups.get(members[first:])
            if one is not None and other is not None:
                found.append(Merge(alike[0].quantity, groups[members], one, other))
    return tuple(found)


def _kind(result: Result) -> list[tuple[str, object]]:
    """What was varied besides the hosts and what grows with their number."""
    return sorted((name, value) for name, value in result.parameters.items() if name not in _OF_GROUPS)


def _members(result: Result) -> Members:
    host = result.parameters.get("host")
    return (str(host),) if host else parse_host_list(str(result.parameters.get("hosts", "")))


def _group(members: Members, results: Sequence[Result]) -> Group:
    values, cpu_share = launches_of(results)
    reason = "" if values else next((one.reason for one in results if one.reason), "it was not measured")
    return Group(members, values, cpu_share, reason)


def state_of(merge: Merge, every: Iterable[Merge]) -> State:
    """Whether it gained what it should. `every` has the merges beside which it is seen, itself as well."""
    if not merge.efficiency:
        return "failed"
    alike = [one for one in every if one is not merge and len(one.together.members) == len(merge.together.members)]
    others = sorted(one.efficiency for one in alike if one.efficiency)
    least = LEAST_EFFICIENCY
    if len(others) >= _NEEDED - 1:
        least = max(least, quantile(others, 0.5) * (1 - LESS_THAN_SIBLINGS))
    if merge.best_efficiency >= least:
        return "gains"
    usual = min(merge.first.cpu_share, merge.second.cpu_share)
    return "disturbed" if merge.together.cpu_share < usual - (1 - WHOLE_CORES.value) else "loses"


def is_well(members: Members, results: Sequence[Result]) -> bool:
    """Whether hosts may go on together; for a single one, whether it was measured and keeps up with the others."""
    if len(members) == 1:
        measured = {host.name for ranking in rankings(results) for host in ranking.hosts if host.values}
        slow = {place for one in slower_hosts(results) if one.certainty == "likely" for place in one.where}
        return members[0] in measured and OfParameter("host", members[0]) not in slow
    every = merges(results)
    return any(one.together.members == members and state_of(one, every) == "gains" for one in every)


def losing_merges(results: Sequence[Result]) -> tuple[Finding, ...]:
    """A finding for each part that gains with nobody, and for each other merge that loses."""
    every = merges(results)
    states = {one.together.members: state_of(one, every) for one in every}
    lost = [one for one in every if states[one.together.members] in ("loses", "failed")]
    gaining = [one for one in every if states[one.together.members] == "gains"]
    gained = {half.members for one in gaining for half in (one.first, one.second)}
    well = gained | {one.together.members for one in gaining}
    findings, explained = [], set[Members]()
    for part in dict.fromkeys(half.members for one in lost for half in (one.first, one.second)):
        own = [one for one in lost if part in (one.first.members, one.second.members)]
        if len(own) > 1 and part not in gained:
            others = [one for one in own if _others(one, part) not in well and one.together.members not in explained]
            if len(others) < len(own):  # else a part that gains with nobody either may be at fault
                findings.append(_of_part(part, own))
                explained |= {one.together.members for one in own}
    findings += [_of_merge(one, gained) for one in lost if one.together.members not in explained]
    findings += [_disturbed(one) for one in every if states[one.together.members] == "disturbed"]
    return tuple(findings)


def _others(merge: Merge, part: Members) -> Members:
    return merge.second.members if merge.first.members == part else merge.first.members


def words(merge: Merge) -> str:
    """`21.3 GFLOP/s of 10.8 + 10.9 (0.98)`."""
    if not merge.together.values:
        return f"no result: {merge.together.reason}"
    if not merge.efficiency:
        return f"{format_quantity(merge.quantity, merge.together.value)}, a half has no result"
    first, second, together = (
        format_quantity(merge.quantity, one.value) for one in (merge.first, merge.second, merge.together)
    )
    return f"{together} of {first} + {second} ({merge.efficiency:.2f})"


def _of_part(part: Members, lost: Sequence[Merge]) -> Finding:
    companions = " nor with ".join(format_hosts(_others(one, part)) for one in lost)
    return _finding(
        (OfParameter("hosts", format_hosts(part)),),
        f"{format_hosts(part)} gains nothing with {companions}, which it is measured well without",
        f"look at its NICs, cables and leaf: railwright locate --hosts with {format_hosts(part)} and a few others",
        lost,
    )


def _of_merge(merge: Merge, gained: set[Members]) -> Finding:
    first, second = format_hosts(merge.first.members), format_hosts(merge.second.members)
    if merge.first.members in gained and merge.second.members in gained:
        what = "each gains with others, so it lies between the two: links and routes from the one's leaf to the other's"
    else:
        what = "either of them, or what lies between: neither was merged with others as well"
    says = f"{first} and {second} together reach {words(merge)}: {what}"
    return _finding((OfParameter("hosts", first), OfParameter("hosts", second)), says, _REMEDY, (merge,))


_REMEDY = "search the routes between them: railwright locate --hosts; note the routing engine and try another one"


def _disturbed(merge: Merge) -> Finding:
    names = format_hosts(merge.together.members)
    had = f"{names} had {merge.together.cpu_share:.2f} of the time of their cores, less than by themselves"
    return Finding(
        fault="merge_loses",
        where=(OfParameter("hosts", names),),
        certainty="could not look",
        says=f"{had}: {words(merge)}",
        remedy="end what else runs on these hosts, and measure again",
    )


def _finding(where: tuple[Place, ...], says: str, remedy: str, lost: Sequence[Merge]) -> Finding:
    once = len(lost) < 2 and len(lost[0].together.values) < 2
    return Finding(
        fault="merge_loses",
        where=where,
        certainty="possible" if once and lost[0].efficiency > _NOTHING else "likely",
        says=says,
        costs="work that these groups share goes at the rate of one of them, or less",
        remedy=(AGAIN if once else "") + remedy,
        evidence=tuple(
            Evidence(
                claim=f"{format_hosts(one.first.members)} + {format_hosts(one.second.members)}", value=words(one),
                seen=f"{max(1, len(one.together.values))} launches",
            )
            for one in lost
        ),
    )  # fmt: skip
