"""Doubling groups of hosts: each level merges pairs of groups that passed, nearby ones first. Pure.

For loads that need all hosts of a group, such as a collective or HPL. The groups of a level run at the same time and
share no host. If a merged group fails although both halves passed, the fault is between them or the run was disturbed:
each half is tried again with another companion. A half that fails with two companions is set aside (with three, if all
were single hosts), as is one without another companion. With n hosts there are log2 n levels, each with one or two
extra tries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Members = tuple[str, ...]


class Group(NamedTuple):
    """Hosts to run together: two halves that passed, or a single host."""

    first: Members
    second: Members = ()

    @property
    def members(self) -> Members:
        """All hosts of the group."""
        return self.first + self.second


class Doubling:
    """A search: run the groups of `level` at the same time and record their results, until it returns none."""

    def __init__(self, hosts: Sequence[str], place: Callable[[str], tuple[int, ...]]) -> None:
        """Set up the search. `place` is a sort key that keeps nearby hosts adjacent: (pod, leaf), the widest first."""
        ordered = sorted(hosts, key=place)
        self._waiting: list[Members] = [(host,) for host in ordered]
        self._alone = True
        self._failed: dict[Members, tuple[Members, ...]] = {}
        self._done: list[Members] = []
        self._rank = {host: number for number, host in enumerate(ordered)}
        self.set_aside: list[Members] = []
        """The groups that are not merged further."""
        self.rounds = 0

    @property
    def largest(self) -> Members:
        """The largest group that passed; empty if none did."""
        return max([*self._waiting, *self._done], key=len, default=()) if not self._alone else ()

    def level(self) -> list[Group]:
        """Return the groups to run next at the same time; empty if nothing is left to merge."""
        if self._alone:
            return [Group(one) for one in self._waiting]
        taken = set[Members]()
        groups = self._pair_failed(taken)
        rest = [one for one in self._waiting if one not in taken and one not in self._failed]
        for size in sorted(set(map(len, rest))):
            alike = [one for one in rest if len(one) == size]
            pairs = self._pair(alike, alike, taken)
            if pairs:
                return groups + pairs
        return groups or self._pair(self._waiting, self._waiting, taken)

    def _pair_failed(self, taken: set[Members]) -> list[Group]:
        """Pair each failed group with a companion that never failed, or else with another failed one."""
        trusted = [one for one in self._waiting if one not in self._failed]
        return self._pair(sorted((one for one in self._waiting if one in self._failed), key=len), trusted, taken)

    def _pair(
        self, candidates: Sequence[Members], companions: Sequence[Members], taken: set[Members]
    ) -> list[Group]:  # fmt: skip
        """Pair each candidate with the nearest companion that it did not fail with."""
        found = []
        for one in candidates:
            others = [other for other in companions if other not in taken and other != one]
            others = [other for other in others if not self._failed_together(one, other)]
            if others and one not in taken:
                found.append(self._join(one, self._nearest(one, others), taken))
        return found

    def _nearest(self, one: Members, others: Sequence[Members]) -> Members:
        """Return the best companion: merged groups before single hosts, then similar size, then distance."""
        rank, again = self._rank, one in self._failed

        def key(other: Members) -> tuple[bool, int, int]:
            return again and len(other) == 1, abs(len(other) - len(one)), abs(rank[other[0]] - rank[one[0]])

        return min(others, key=key)

    def _join(self, one: Members, other: Members, taken: set[Members]) -> Group:
        taken |= {one, other}
        return Group(*sorted((one, other), key=lambda part: self._rank[part[0]]))

    def _failed_together(self, one: Members, other: Members) -> bool:
        return other in self._failed.get(one, ())

    def record_results(self, results: Mapping[Group, bool]) -> None:
        """Record whether each group of the current level reached its rate."""
        self.rounds += 1
        if self._alone:
            self._alone = False
            self.set_aside += [group.members for group, well in results.items() if not well]
            self._waiting = [group.first for group, well in results.items() if well]
            return
        for group, well in results.items():
            if well:
                self._waiting = [one for one in self._waiting if one not in group]
                self._waiting.append(tuple(sorted(group.members, key=self._rank.__getitem__)))
                continue
            for half, other in ((group.first, group.second), (group.second, group.first)):
                self._failed[half] = (*self._failed.get(half, ()), other)
        self._set_aside_failed()

    def _set_aside_failed(self) -> None:
        """Set aside groups that failed with two companions or have no companion left."""
        for one in list(self._waiting):
            failed = self._failed.get(one, ())
            alone = bool(failed) and not any(
                other != one and not self._failed_together(one, other) for other in self._waiting
            )
            # A single host has never passed with others, so it may be at fault itself.
            enough = 2 if any(len(other) > 1 for other in failed) else 3
            if len(failed) >= enough or alone:
                self._waiting.remove(one)
                self.set_aside.append(one)
                self._forget_failures_with(one)

    def _forget_failures_with(self, culprit: Members) -> None:
        """Forget failures with a group that was set aside, which may have caused them."""
        for one, failed in list(self._failed.items()):
            rest = tuple(other for other in failed if other != culprit)
            if rest:
                self._failed[one] = rest
            else:
                del self._failed[one]
