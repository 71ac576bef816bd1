"""Confirm rounds, which fill each doubtful class and test it again over trusted companions.

Flows are short: they turn at the first switch above the tested class, to cross as few other links as possible. Unneeded
ports stay idle, so that a flow on an unexpected path meets no other flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random

from railwright.diagnosis.localise.evidence import Evidence
from railwright.diagnosis.localise.fabric import UP, Path, build_path
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.schedule import choose_flows_per_nic, compute_share, lanes

_TRIES, _RAIL_FACTOR = 48, 4
_DIVIDED = (2, 3, 4)
_HEADROOM = 1.05
_HIGHER_PROBABILITY = 0.25
_EPSILON, _UNFILLED = 1e-6, 0.1
_MIN_TESTS = 2


FlowOver = Callable[[int], Flow | None]
"""Finds a flow over a class."""


class Confirm:
    """Builds a confirm round."""

    def __init__(self, evidence: Evidence, random: Random) -> None:
        self._evidence, self._fabric, self._random = evidence, evidence.fabric, random
        self._parts = choose_flows_per_nic(evidence.fabric)
        self._tries = _TRIES * (_RAIL_FACTOR if any(evidence.fabric.nic_rail) or evidence.fabric.ways else 1)
        self._load: dict[int, float] = {}
        """The load of this round's flows on each class, in units of a NIC port's rate."""
        self._flows: list[Flow] = []
        self._one_host: dict[int, bool] = {}

    def build_round(self, doubtful: Sequence[int], repeated: Iterable[Flow] = (), *, paired: bool = True) -> Round:
        """Build a round: tests of `doubtful`, some flows repeated on their own paths, then the least tested classes.

        Doubtful classes are tested over trusted ones, and finally, if there is room, over any. Links without trusted
        companions are `paired` with each other first, or tested by divided flows first.
        """
        ordered = self._shuffled(doubtful)
        left = [number for number in ordered if not self._test(number, self._trusted_flow)]
        cleared, accused = self._evidence.cleared, self._evidence.accused
        # Alternate between bottom-up and top-down, since tests of one kind of links fill the other.
        for number in sorted(left, key=lambda one: self._fabric.upper[one // 2] * (1 if paired else -1)):
            self._test_over_doubtful(number, paired=paired)
        for flow in repeated:
            if self._room(flow.path, flow.share):
                self._take(flow)
        tests = [cleared[number] + len(accused.get(number, ())) for number in range(self._fabric.classes)]
        rare = sorted((number for number, count in enumerate(tests) if count < _MIN_TESTS), key=tests.__getitem__)
        for number in [*self._shuffled(rare, tests), *left]:
            self._test(number, self._any_flow)
        return Round(self._flows, purpose="confirm")

    def _test_over_doubtful(self, number: int, *, paired: bool) -> None:
        attempts: list[tuple[FlowOver, int]] = [(partial(self._divided_flow, parts), parts) for parts in _DIVIDED]
        if number // 2 < self._fabric.nics:
            attempts = []
        attempts.insert(0 if paired else len(attempts), (self._paired_flow, 1))
        any(self._test(number, *way) for way in attempts)

    def build_repeat(self, flows: Iterable[Flow]) -> Round:
        """Return a round of as many of the flows as fit together."""
        for flow in flows:
            if self._room(flow.path, flow.share):
                self._take(flow)
        return Round(self._flows, purpose="repeat")

    def _shuffled(self, numbers: Sequence[int], tests: Sequence[int] | None = None) -> list[int]:
        """Shuffle classes, the least tested first, then NIC ports, so that links are tested over cleared ports."""
        mixed = list(numbers)
        self._random.shuffle(mixed)
        return sorted(mixed, key=lambda number: (tests[number] if tests else 0, number // 2 >= self._fabric.nics))

    def _test(self, number: int, flow_over: FlowOver, divided: int = 1) -> bool:
        """Add the flows that fill a class, or none if not all of them are possible. Report whether it is filled."""
        is_link = number // 2 >= self._fabric.nics
        room = self._fabric.capacity[number // 2] if is_link else 1.0
        max_flows = divided * (lanes(room, self._parts) if is_link else self._parts)
        room = min(room, max_flows / divided / self._parts)
        before = len(self._flows)
        while self._load.get(number, 0.0) < room - _EPSILON and len(self._flows) - before < max_flows:
            flow = flow_over(number)
            if flow is None:
                break
            self._take(flow)
        # At a lower load a link that lost a third of its rate looks healthy, and uses room.
        if self._load.get(number, 0.0) >= (1 - _UNFILLED) * min(room, self._evidence.filled[number] * room):
            return True
        for flow in self._flows[before:]:
            for one in flow.path:
                self._load[one] -= flow.share
        del self._flows[before:]
        return False

    def _take(self, flow: Flow) -> None:
        self._flows.append(flow)
        for one in flow.path:
            self._load[one] = self._load.get(one, 0.0) + flow.share

    def _room(self, path: Path, share: float) -> bool:
        nics, capacity, load = self._fabric.nics, self._fabric.capacity, self._load
        for one in path:
            limit = 1.0 if one // 2 < nics else capacity[one // 2]
            if load.get(one, 0.0) + share > limit + _EPSILON:
                return False
        return True

    def _others(self, flow: Flow, number: int) -> list[int]:
        """Return the classes on a flow's path except the given class and its twin."""
        same = self._fabric.twin_of(number)
        return [one for one in flow.path if one != number and self._fabric.twin_of(one) != same]

    def _trusted_flow(self, number: int) -> Flow | None:
        """Return a flow over the class and otherwise trusted classes."""
        trusts = self._evidence.trusts
        return next((flow for flow in self._some_flows(number) if all(map(trusts, self._others(flow, number)))), None)

    def _paired_flow(self, number: int) -> Flow | None:
        """Return a flow over the class, a peer below the switch and trusted ones, which clears healthy pairs."""
        for flow in self._some_flows(number):
            turn = len(flow.path) // 2
            pair = flow.path[turn - 1 : turn + 1]
            rest = (one for one in self._others(flow, number) if one not in pair)
            if number in pair and all(map(self._evidence.trusts, rest)):
                return flow
        return None

    def _any_flow(self, number: int) -> Flow | None:
        """Return a flow over trusted classes, or else over those that carried most of their rate."""
        best: Flow | None = None
        highest = -1.0
        for flow in self._some_flows(number):
            others = self._others(flow, number)
            if all(map(self._evidence.trusts, others)):
                return flow
            # A fast flow clears both classes; a slow class hides the other.
            carried = min(self._evidence.carried[one] / self._fabric.capacity[one // 2] for one in others or [number])
            if carried > highest:
                best, highest = flow, carried
        return best

    def _divided_flow(self, parts: int, number: int) -> Flow | None:
        """Return one of `parts` flows that together fill a link, over slow ports that carry a part of their rate.

        This clears a link although every port behind it is slow, as on a leaf with a slow line card.
        """
        evidence, load = self._evidence, self._load
        for flow in self._some_flows(number, 1 / parts):
            fits = (
                evidence.carried[one] >= _HEADROOM * (load.get(one, 0.0) + flow.share)
                for one in self._others(flow, number)
                if not evidence.trusts(one)
            )
            if all(fits):
                return flow
        return None

    def _some_flows(self, number: int, part: float = 1.0) -> Iterator[Flow]:
        """Yield random flows over a class."""
        for _ in range(self._tries):
            flow = self._some_flow(number, part)
            if flow is not None:
                yield flow

    def _some_flow(self, number: int, part: float = 1.0) -> Flow | None:
        """Return a flow at `part` of its share over a random path with room for it."""
        path = self._some_path(number)
        if path is None:
            return None
        share = part * compute_share(self._fabric, path, self._parts)
        return Flow(path[0] // 2, path[-1] // 2, path, share) if self._room(path, share) else None

    def _some_path(self, number: int) -> Path | None:
        """Return a random path over a class that turns at the switch above it, between two hosts of one rail.

        From a port it sometimes turns one tier higher, because everything below a leaf may be doubtful or of one host.
        """
        fabric = self._fabric
        cable, way = divmod(number, 2)
        near = self._descend(fabric.lower[cable])
        if near is None:
            return None
        if fabric.ways is not None:
            ends = (near[0] if near else fabric.lower[cable]), self._random.randrange(fabric.nics)
            return self._prescribed(number, *(ends if way == UP else reversed(ends)))
        near, top = [*near, cable], fabric.upper[cable]
        if (
            cable < fabric.nics
            and fabric.above[top]
            and (self._is_of_one_host(top) or self._random.random() < _HIGHER_PROBABILITY)
        ):
            near.append(self._random.choice(fabric.above[top]))
            top = fabric.upper[near[-1]]
        others = fabric.below[top]
        if len(others) < 2:
            return None
        other = self._random.choice(others)
        if fabric.lower[other] == fabric.lower[near[-1]]:
            return None
        far = self._descend(fabric.lower[other])
        if far is None:
            return None
        far = [*far, other]
        one, two = near[0], far[0]
        if fabric.nic_host[one] == fabric.nic_host[two] or fabric.nic_rail[one] != fabric.nic_rail[two]:
            return None
        return build_path(near, far) if way == UP else build_path(far, near)

    def _prescribed(self, number: int, source: int, destination: int) -> Path | None:
        """Return the prescribed path between two ports if it crosses the class."""
        assert self._fabric.ways is not None
        if self._fabric.nic_host[source] == self._fabric.nic_host[destination]:
            return None
        path = self._fabric.ways(source, destination)
        return path if path is not None and number in path else None

    def _is_of_one_host(self, leaf: int) -> bool:
        if leaf not in self._one_host:
            hosts = {self._fabric.nic_host[nic] if nic < self._fabric.nics else -1 for nic in self._fabric.below[leaf]}
            self._one_host[leaf] = len(hosts) == 1
        return self._one_host[leaf]

    def _descend(self, node: int) -> list[int] | None:
        """Return random cables from a NIC port up to a node, lowest first; empty at a NIC port, None above no port."""
        cables: list[int] = []
        while node >= self._fabric.nics:
            below = self._fabric.below[node]
            if not below:
                return None
            cables.append(self._random.choice(below))
            node = self._fabric.lower[cables[-1]]
        return cables[::-1]
