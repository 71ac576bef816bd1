"""A simulated fabric that answers rounds: capacities, sharing, noise, interference, wrong paths, lost probes.

Flows on a link share its rate max-min fairly (Bertsekas and Gallager, "Data Networks", section
6.5.2), among all that cross it. Interference lowers a flow to 0.3 to 0.9 of its rate, drawn in each round. A wrong
entry of the path map sends a flow over another path, where it shares links with the other flows.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from random import Random

from railwright.diagnosis.localise.fabric import Fabric, Path, build_path
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.truth import Truth

_INTERFERENCE_RANGE = (0.3, 0.9)
_TRIES = 8


@dataclass(frozen=True)
class Weather:
    """The disturbances of probes."""

    noise: float = 0.02
    """The relative standard deviation of each rate."""
    interference: float = 0.02
    """The share of disturbed flows in each round."""
    wrong_map: float = 0.0
    """The share of flows with a wrong entry in the path map."""
    lost: float = 0.0
    """The share of lost probes."""


class Simulator:
    """Measures rounds on a simulated fabric."""

    def __init__(self, fabric: Fabric, truth: Truth, weather: Weather, seed: int) -> None:
        self.fabric, self._truth, self._weather = fabric, truth, weather
        self._random = Random(seed)
        self.bytes_per_rate = 0.0
        """The sum of flow rates, in units of a NIC port's rate. Times rate and seconds it gives the bytes sent."""

    def measure_all(self, rounds: Sequence[Round]) -> None:
        """Measure the rounds of a phase."""
        for one in rounds:
            self.measure(one)

    def measure(self, one: Round) -> None:
        """Fill in the rate of each flow."""
        random, weather = self._random, self._weather
        paths = [self._real(flow) for flow in one.flows]
        left = dict(self._truth.left)
        for number in self._truth.occupied:
            left[number] = left.get(number, 1.0) * random.uniform(*_INTERFERENCE_RANGE)
        rates = share_out(self.fabric, [flow.share for flow in one.flows], paths, left)
        one.ratio = []
        for flow, path, rate in zip(one.flows, paths, rates, strict=True):
            ratio = rate / flow.share
            if self._truth.routes:
                ratio = min(ratio, self._route(flow, path))
            if random.random() < weather.interference:
                ratio *= random.uniform(*_INTERFERENCE_RANGE)
            ratio *= max(random.gauss(1.0, weather.noise), 0.01) if weather.noise else 1.0
            self.bytes_per_rate += ratio * flow.share
            one.ratio.append(nan if weather.lost and random.random() < weather.lost else ratio)

    def _route(self, flow: Flow, path: Path) -> float:
        routes = self._truth.routes
        pair = routes.get((flow.source, flow.destination, path), 1.0)
        return min(pair, routes.get((-1, -1, path[1:-1]), 1.0))

    def _real(self, flow: Flow) -> Path:
        """Return the actual path of a flow, an alternative one if the path map is wrong."""
        if not self._weather.wrong_map or self._random.random() >= self._weather.wrong_map:
            return flow.path
        height = len(flow.path) // 2
        for _ in range(_TRIES):
            up = self.fabric.ascents(flow.source, height, self._random)
            if len(up) < height:
                break
            back = self.fabric.descent_to(flow.destination, self.fabric.upper[up[-1]], height)
            if back is not None and back[-1] != up[-1]:
                path = build_path(up, back)
                if path != flow.path:
                    return path
        return flow.path


def share_out(fabric: Fabric, shares: Sequence[float], paths: Sequence[Path], left: dict[int, float]) -> list[float]:
    """Return the max-min fair rate of each flow up to its share, on links with a part of their capacity left."""
    load: dict[int, float] = {}
    for share, path in zip(shares, paths, strict=True):
        for number in path:
            load[number] = load.get(number, 0.0) + share
    room = {}
    for number, wanted in load.items():
        has = fabric.capacity[number // 2] * left.get(number, 1.0)
        if wanted > has * (1 + 1e-9):
            room[number] = has
    rates = list(shares)
    members: dict[int, list[int]] = {number: [] for number in room}
    for flow, path in enumerate(paths):
        for number in path:
            if number in members:
                members[number].append(flow)
    _fill_links(rates, paths, room, members)
    return rates


def _fill_links(
    rates: list[float], paths: Sequence[Path], room: dict[int, float], members: dict[int, list[int]]
) -> None:
    """Fill the overloaded links progressively, the narrowest first."""
    waiting = {number: len(flows) for number, flows in members.items()}
    fixed: set[int] = set()
    heap = [(room[number] / count, number) for number, count in waiting.items()]
    heapq.heapify(heap)
    while heap:
        level, number = heapq.heappop(heap)
        if not waiting[number]:
            continue
        now = room[number] / waiting[number]
        if now > level + 1e-12:
            heapq.heappush(heap, (now, number))
            continue
        open_flows = [flow for flow in members[number] if flow not in fixed]
        # A flow that needs less than its part leaves the rest to others.
        modest = [flow for flow in open_flows if rates[flow] < now - 1e-12]
        for flow in modest or open_flows:
            rates[flow] = min(rates[flow], now)
            fixed.add(flow)
            for other in paths[flow]:
                if other in waiting:
                    room[other] = max(room[other] - rates[flow], 0.0)
                    waiting[other] -= 1
        if waiting[number]:
            heapq.heappush(heap, (room[number] / waiting[number], number))
