"""Screen rounds: permutations of all NIC ports that load no link beyond its capacity.

Each flow gets a random path up, lane by lane: a link of k times a NIC's rate has k lanes. Where lanes end, because of
oversubscription or at the top, flows turn. The flows that turn at a switch are permuted: flow f comes down the links
that flow p(f) went up, to the port where p(f) started. So each link carries as many flows down as up, every port
receives as many as it sends, and all links are full at once.
Each round is drawn independently, so that elements that share a flow in one round do not in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from railwright.diagnosis.localise.fabric import Fabric, build_path
from railwright.diagnosis.localise.flows import Flow, Round

_MAX_PARTS = 4
_TRIES = 24

Ascent = list[int]
"""The cables of a flow's path up, the lowest first."""


def choose_flows_per_nic(fabric: Fabric) -> int:
    """Return the number of flows per NIC that fill the links: 2 if a link has 1.5 times the NIC's rate.

    At most 4; links that are still not full are tested partially.
    """
    capacities = {round(capacity, 6) for capacity in fabric.capacity}

    def unfilled(parts: int) -> float:
        return max(1 - lanes(capacity, parts) / (capacity * parts) for capacity in capacities)

    return min(range(1, _MAX_PARTS + 1), key=lambda parts: (round(max(unfilled(parts), 0.0), 2), parts))


def lanes(capacity: float, parts: int) -> int:
    """Return the number of flows that fill a link; at least one, which may be slower than a NIC."""
    return max(1, int(capacity * parts + 1e-6))


def compute_share(fabric: Fabric, path: Sequence[int], parts: int) -> float:
    """Return the rate of a flow on fully loaded links, in units of a NIC port's rate."""
    narrowest = min(fabric.capacity[one // 2] / lanes(fabric.capacity[one // 2], parts) for one in path)
    return min(1.0 / parts, narrowest)


class Screen:
    """Draws rounds, preferring links that were tested least."""

    def __init__(self, fabric: Fabric, random: Random) -> None:
        self.fabric = fabric
        self.parts = choose_flows_per_nic(fabric)
        self._random = random
        self._tests = [0] * len(fabric.lower)
        self._has_rails = any(fabric.nic_rail)
        self._order: dict[int, float] | None = None

    def build_round(self) -> Round:
        """Return a round with all NIC ports."""
        flows: list[Flow] = []
        for turning in self._ascend().values():
            flows += self._turn(turning)
        for flow in flows:
            self._tests[flow.source] += 1
        return Round(flows)

    def _ascend(self) -> dict[int, list[Ascent]]:
        """Return the paths up, by the switch at which they turn."""
        fabric, turning = self.fabric, dict[int, list[Ascent]]()
        at: dict[int, list[Ascent]] = {}
        for nic in range(fabric.nics):
            at.setdefault(fabric.upper[nic], []).extend([nic] for _ in range(self.parts))
        self._order = {} if self._has_rails else None
        while at:
            higher: dict[int, list[Ascent]] = {}
            for node, arrived in at.items():
                self._random.shuffle(arrived)
                # A flow that turns here may find no partner; then it goes up in the next round.
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
        """Return cables up, each once per lane, the least tested first."""
        cables = list(self.fabric.above[node])
        self._random.shuffle(cables)
        if self._order is not None:
            # Ports of one rail meet above only if the switches of all pods use the same upper switch.
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
        """Permute the flows that turn at a switch, rail by rail."""
        rails: dict[int, list[Ascent]] = {}
        for way in turning:
            rails.setdefault(self.fabric.nic_rail[way[0]], []).append(way)
        flows = []
        for ways in rails.values():
            for way, back in pair_paths(ways, self._key, self._random):
                path = build_path(way, back)
                flows.append(Flow(way[0], back[0], path, compute_share(self.fabric, path, self.parts)))
        return flows

    def _key(self, way: Ascent) -> tuple[int, int]:
        """Return the last link and the host of a path up, to which the flow may not return."""
        return way[-1], self.fabric.nic_host[way[0]]


def pair_paths(
    ways: list[Ascent], key: Callable[[Ascent], tuple[int, int]], random: Random
) -> list[tuple[Ascent, Ascent]]:
    """Pair each path up with another's path down, never its own last link or its own host.

    Paths without a partner, because most came over one link, are left out.
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
