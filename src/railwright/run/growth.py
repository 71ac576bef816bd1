"""Groups of hosts that are merged by doubling as long as that gains: which are launched next, by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from railwright.diagnosis.localise.doubling import Doubling, Group
from railwright.diagnosis.peers.growth import Members, is_well
from railwright.launch.hosts import Hosts
from railwright.results.records import Result


@dataclass(frozen=True)
class Growth:
    """All hosts, and how a group of them is reached without the others."""

    names: Members
    group: Callable[[Members], Hosts]
    place: Callable[[str], tuple[int, ...]]
    """Sorts near hosts beside each other."""

    def all_well(self) -> Iterator[Hosts]:
        """Every group that is launched where all merges gain."""
        search = self._search()
        while level := search.level():
            yield from map(self._hosts, level)
            search.passed(dict.fromkeys(level, True))

    def found(self, results: Sequence[Result]) -> Iterator[Hosts]:
        """The groups, one after the other. `results` grows meanwhile by what each of them gave."""
        search = self._search()
        while level := search.level():
            yield from map(self._hosts, level)
            search.passed({group: is_well(group.members, results) for group in level})

    def _search(self) -> Doubling:
        return Doubling(self.names, self.place)

    def _hosts(self, group: Group) -> Hosts:
        hosts = self.group(group.members)
        first = len(group.first) if group.second else 0
        return Hosts(hosts.names, hosts.ranks_per_host, hosts.reach, hosts.interfaces, first, len(self.names))
