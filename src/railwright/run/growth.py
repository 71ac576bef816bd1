"""Groups of hosts that are merged by doubling as long as that gains: the next ones follow from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from railwright.diagnosis.localise.doubling import Doubling, Group
from railwright.launch.hosts import PlannedHosts

Place = Callable[[str], tuple[int, ...]]
"""Sorts near hosts beside each other."""


def growing_groups(hosts: PlannedHosts, place: Place, gains: Callable[[Group], bool]) -> Iterator[PlannedHosts]:
    """The groups, one after the other. `gains` is asked of each after all of its level were taken."""
    search = Doubling(hosts.names, place)
    while level := search.level():
        for group in level:
            first = len(group.first) if group.second else 0
            yield replace(hosts.part(group.members), first=first, grows_to=len(hosts.names))
        search.passed({group: gains(group) for group in level})
