"""Screen rounds: permutations of all NIC ports whose paths meet on no link more often than the link has room.

Each flow is given a random way up, lane by lane: a link of k times a NIC's rate has k lanes. Where lanes end, because
the fabric is oversubscribed or because nothing is above, flows turn. At each switch the flows that turn there are
permuted: flow f comes down the links by which flow p(f) went up, to the port from which p(f) started. So each link
carries exactly as many flows down as up, every port receives as many as it sends, and all is full at once.
The whole is drawn anew for each round, so that what shares a flow with an element in one round does not in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from railwright.diagnosis.localise.fabric import Fabric, path_over
from railwright.diagnosis.localise.flows import Flow, Round

_MOST_PARTS = 4
_TRIES = 24

Ascent = list[int]
"""The cables by which a flow goes up, the lowest first."""


def parts_of_nic(fabric: Fabric) -> int:
    """Into how many flows a NIC's rate is divided so that they fill the links: 2 where a link has 1.5 times its rate.

    At most 4; a link that is still not full is tested to the part that is.
    """
    capacities = {round(capacity, 6) for capacity in fabric.capacity}

    def unfilled(parts: int) -> float:
        return max(1 - lanes(capacity, parts) / (capacity * parts) for capacity in capacities)

    return min(range(1, _MOST_PARTS + 1), key=lambda parts: (round(max(unfilled(parts), 0.0), 2), parts))


def lanes(capacity: float, parts: int) -> int:
    """The flows that fill a link; one at least, which then is slower than a NIC."""
    return max(1, int(capacity * parts + 1e-6))


def share_of(fabric: Fabric, path: Sequence[int], parts: int) -> float:
    """The rate of a flow that shares every link with as many as it has lanes, in rates of a NIC port."""
    narrowest = min(fabric.capacity[one // 2] / lanes(fabric.capacity[one // 2], parts) for one in path)
    return min(1.0 / parts, narrowest)


class Screen:
    """Draws rounds, and remembers which links were tested less than others."""

    def __init__(self, fabric: Fabric, random: Random) -> None:
        self.fabric = fabric
        self.parts = parts_of_nic(fabric)
        self._random = random
        self._tests = [0] * len(fabric.lower)
        self._has_rails = any(fabric.nic_rail)
        self._order: dict[int, float] | None = None

    def round(self) -> Round:
        """One round with all NIC ports."""
        flows: list[Flow] = []
        for turning in self._ascend().values():
            flows += self._turn(turning)
        for flow in flows:
            self._tests[flow.source] += 1
        return Round(flows)

    def _ascend(self) -> dict[int, list[Ascent]]:
        """The ways up, by the switch at which they turn."""
        fabric, turning = self.fabric, dict[int, list[Ascent]]()
        at: dict[int, list[Ascent]] = {}
        for nic in range(fabric.nics):
            at.setdefault(fabric.upper[nic], []).extend([nic] for _ in range(self.parts))
        self._order = {} if self._has_rails else None
        while at:
            higher: dict[int, list[Ascent]] = {}
            for node, arrived in at.items():
                self._random.shuffle(arrived)
                # What turns here may find no partner: then it goes up the next time.
                arrived.sort(key=lambda way: (self._tests[way[0]], fabric.nic_rail[way[0]]))
                chosen = self._lanes_up(node, len(arrived))
                for way, cable in zip(arrived, chosen, strict=False):
                    way.append(cable)
                    higher.setdefault(fabric.upper[cable], []).append(way)
                if len(chosen) < len(arrived):
                    turning[node] = arrived[len(chosen) :]
            at = higher
        return turning

    def _lanes_up(self, node: int, wanted: int) -> list[int]:
        """Cables that lead up, each as often as it has lanes, those first that were tested least."""
        cables = list(self.fabric.above[node])
        self._random.shuffle(cables)
        if self._order is not None:
            # Ports of one rail meet above only where the switches of all pods send them to the same.
            order, upper = self._order, self.fabric.upper
            cables.sort(key=lambda cable: order.setdefault(upper[cable], self._random.random()))
        found = [cable for cable in cables for _ in range(lanes(self.fabric.capacity[cable], self.parts))]
        if len(found) > wanted:
            cables.sort(key=lambda cable: self._tests[cable])
            found = [cable for cable in cables for _ in range(lanes(self.fabric.capacity[cable], self.parts))][:wanted]
        for cable in set(found):
            self._tests[cable] += 1
        return found

    def _turn(self, turning: list[Ascent]) -> list[Flow]:
        """Permute what turns at one switch, rail by rail."""
        rails: dict[int, list[Ascent]] = {}
        for way in turning:
            rails.setdefault(self.fabric.nic_rail[way[0]], []).append(way)
        flows = []
        for ways in rails.values():
            for way, back in deranged(ways, self._key, self._random):
                path = path_over(way, back)
                flows.append(Flow(way[0], back[0], path, share_of(self.fabric, path, self.parts)))
        return flows

    def _key(self, way: Ascent) -> tuple[int, int]:
        """By which link it reached the switch, and from which host: it may not go back there."""
        return way[-1], self.fabric.nic_host[way[0]]


def deranged(
    ways: list[Ascent], key: Callable[[Ascent], tuple[int, int]], random: Random
) -> list[tuple[Ascent, Ascent]]:
    """Pairs (way up, whose way to come down), each once; none back over its own last link or to its own host.

    Ways for which there is no partner, because most came over one link, are left out.
    """
    random.shuffle(ways)
    groups: dict[int, list[Ascent]] = {}
    for way in ways:
        groups.setdefault(key(way)[0], []).append(way)
    ordered = [way for group in groups.values() for way in group]
    count, largest = len(ordered), max(map(len, groups.values()))
    if count < 2 or len(groups) < 2:
        return []
    shift = random.randint(largest, count - largest) if 2 * largest <= count else largest
    to = [(place + shift) % count for place in range(count)]
    keys = [key(way) for way in ordered]

    def fits(one: int, other: int) -> bool:
        return keys[one][0] != keys[other][0] and keys[one][1] != keys[other][1]

    for place in range(count):
        if fits(place, to[place]):
            continue
        for _ in range(_TRIES):
            other = random.randrange(count)
            if fits(place, to[other]) and fits(other, to[place]):
                to[place], to[other] = to[other], to[place]
                break
    return [(ordered[place], ordered[to[place]]) for place in range(count) if fits(place, to[place])]
