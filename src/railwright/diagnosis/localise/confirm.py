"""Confirm rounds: each doubtful class is tested again, filled, over companions that are trusted.

Flows are short: they turn at the first switch above what they test, so that least else lies on them. What is not
needed stays idle, so that a flow that takes another way than believed meets nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from railwright.diagnosis.localise.evidence import Evidence
from railwright.diagnosis.localise.fabric import UP, Path, path_over
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.schedule import lanes, parts_of_nic, share_of

_TRIES = 48
_LEAST_TESTS = 2


class Confirm:
    """Builds one round."""

    def __init__(self, evidence: Evidence, random: Random) -> None:
        self._evidence, self._fabric, self._random = evidence, evidence.fabric, random
        self._parts = parts_of_nic(evidence.fabric)
        self._used: dict[int, int] = {}
        self._flows: list[Flow] = []

    def round(self, doubtful: Sequence[int], repeated: Iterable[Flow] = ()) -> Round:
        """Test `doubtful`, then repeat some flows on their own paths, then test what was tested least."""
        wanted = set(doubtful)
        for number in self._shuffled(doubtful):
            self._test(number, wanted)
        for flow in repeated:
            if self._room(flow.path):
                self._take(flow)
        cleared, accused = self._evidence.cleared, self._evidence.accused
        rare = [n for n in range(self._fabric.classes) if cleared[n] + len(accused.get(n, ())) < _LEAST_TESTS]
        for number in self._shuffled(rare):
            self._test(number, wanted)
        return Round(self._flows, purpose="confirm")

    def only(self, flows: Iterable[Flow]) -> Round:
        """As many of some flows as have room beside each other."""
        for flow in flows:
            if self._room(flow.path):
                self._take(flow)
        return Round(self._flows, purpose="repeat")

    def _shuffled(self, numbers: Sequence[int]) -> list[int]:
        """In random order, NIC ports first: links between switches are then tested over those that were cleared."""
        mixed = list(numbers)
        self._random.shuffle(mixed)
        return sorted(mixed, key=lambda number: number // 2 >= self._fabric.nics)

    def _test(self, number: int, doubtful: set[int]) -> None:
        """As many flows over a class as fill it; none where not all of them can be had."""
        room = (
            lanes(self._fabric.capacity[number // 2], self._parts) if number // 2 >= self._fabric.nics else self._parts
        )
        missing = room - self._used.get(number, 0)
        if missing < 1:
            return
        before = len(self._flows)
        for _ in range(missing):
            flow = self._flow_over(number, doubtful)
            if flow is None:
                break
            self._take(flow)
        # Half-filled, a link that lost a third of its rate looks healthy, and its flows keep others from theirs.
        if 0 < len(self._flows) - before < missing and self._used.get(number, 0) < room:
            for flow in self._flows[before:]:
                for one in flow.path:
                    self._used[one] -= 1
            del self._flows[before:]

    def _take(self, flow: Flow) -> None:
        self._flows.append(flow)
        for one in flow.path:
            self._used[one] = self._used.get(one, 0) + 1

    def _room(self, path: Path) -> bool:
        nics, capacity = self._fabric.nics, self._fabric.capacity
        for one in path:
            most = self._parts if one // 2 < nics else lanes(capacity[one // 2], self._parts)
            if self._used.get(one, 0) >= most:
                return False
        return True

    def _flow_over(self, number: int, doubtful: set[int]) -> Flow | None:
        """A flow over a class and trusted ones; where none is trusted, over some that nobody accuses most.

        A second doubtful class is better than none: two that are well together are both cleared.
        """
        fallback: Flow | None = None
        for _ in range(_TRIES):
            path = self._some_path(number)
            if path is None or not self._room(path):
                continue
            flow = Flow(path[0] // 2, path[-1] // 2, path, share_of(self._fabric, path, self._parts))
            others = [one for one in path if one != number]
            if all(self._evidence.trusts(one) for one in others):
                return flow
            if fallback is None and not any(one in doubtful for one in others[1:-1]):
                fallback = flow
        return fallback

    def _some_path(self, number: int) -> Path | None:
        """A random path over a class that turns at the switch above it, between two hosts of one rail."""
        fabric = self._fabric
        cable, way = divmod(number, 2)
        near = self._descend(fabric.lower[cable])
        top = fabric.upper[cable]
        others = fabric.below[top]
        if near is None or len(others) < 2:
            return None
        other = self._random.choice(others)
        if fabric.lower[other] == fabric.lower[cable]:
            return None
        far = self._descend(fabric.lower[other])
        if far is None:
            return None
        near, far = [*near, cable], [*far, other]
        one, two = near[0], far[0]
        if fabric.nic_host[one] == fabric.nic_host[two] or fabric.nic_rail[one] != fabric.nic_rail[two]:
            return None
        return path_over(near, far) if way == UP else path_over(far, near)

    def _descend(self, node: int) -> list[int] | None:
        """Random cables from a NIC port up to a node, the lowest first, without the last; empty at a NIC port."""
        cables: list[int] = []
        while node >= self._fabric.nics:
            below = self._fabric.below[node]
            if not below:
                return None
            cables.append(self._random.choice(below))
            node = self._fabric.lower[cables[-1]]
        return cables[::-1]
