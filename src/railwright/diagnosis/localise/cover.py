"""Rounds that cover every route of a two-tier fabric once.

Leaf cover: every (leaf, leaf, spine). In round d all of leaf i's uplinks carry flows to leaf i + d, for a total of
leaves - 1 rounds. Pair cover: every (port, port, spine), which also finds faults of a single pair: in each of those
rounds the ports are paired in every way over every spine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from railwright.diagnosis.localise.fabric import Fabric, build_path
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.schedule import choose_flows_per_nic, compute_share, lanes
from railwright.errors import UsageError

CoverKind = Literal["leaf", "pair"]


@dataclass(frozen=True)
class Cover:
    """The cost of a cover, and its rounds."""

    kind: CoverKind
    leaf_pairs: int
    """The number of ordered pairs of leaves that flows can join."""
    paths: int
    """The largest number of paths between two leaves."""
    rounds: int
    """The approximate number of rounds: uneven leaves split some of them."""


class RouteCover:
    """Plans the cover of a fabric. Raises UsageError if it has a single leaf or three tiers."""

    def __init__(self, fabric: Fabric, kind: CoverKind) -> None:
        self._fabric, self._kind = fabric, kind
        self._parts = choose_flows_per_nic(fabric)
        self._room = {
            cable: self._parts if cable < fabric.nics else lanes(capacity, self._parts)
            for cable, capacity in enumerate(fabric.capacity)
        }
        self._leaves: dict[int, list[int]] = {}
        for nic in range(fabric.nics):
            self._leaves.setdefault(fabric.leaf_of(nic), []).append(nic)
        uplinks = max(len(fabric.above[leaf]) for leaf in self._leaves)
        if len(self._leaves) < 2 or not uplinks:
            raise UsageError("a route cover needs at least two leaves, got one", hint="omit --route-cover")
        if any(fabric.above[node] for leaf in self._leaves for node in (fabric.upper[c] for c in fabric.above[leaf])):
            what = "a route cover needs a fabric of two tiers, got three"
            raise UsageError(what, hint="cover each pod separately: give a file with two tiers")
        count, largest = len(self._leaves), max(map(len, self._leaves.values()))
        each = 1 if kind == "leaf" else largest * uplinks
        self.cost = Cover(kind, count * (count - 1), uplinks, (count - 1) * each)

    def rounds(self, random: Random) -> Iterator[Round]:
        """Yield all rounds."""
        order = list(self._leaves)
        for shift in range(1, len(order)):
            pairs = [(leaf, order[(place + shift) % len(order)]) for place, leaf in enumerate(order)]
            flows = self._leaf_flows(pairs, random) if self._kind == "leaf" else None
            if flows is not None:
                yield from self._fitted(flows)
                continue
            largest = max(map(len, self._leaves.values()))
            for turn in range(largest):
                for spine in range(self.cost.paths):
                    yield from self._fitted(self._pair_flows(pairs, turn, spine))

    def _leaf_flows(self, pairs: list[tuple[int, int]], random: Random) -> list[Flow]:
        """Fill every uplink of the first leaf of each pair with one flow per lane."""
        flows = []
        for one, other in pairs:
            sources, destinations = list(self._leaves[one]), list(self._leaves[other])
            random.shuffle(sources)
            random.shuffle(destinations)
            number = 0
            for up in self._fabric.above[one]:
                for _ in range(lanes(self._fabric.capacity[up], self._parts)):
                    ends = sources[number % len(sources)], destinations[number % len(destinations)]
                    flow = self._flow(*ends, up)
                    flows += [flow] if flow else []
                    number += 1
        return flows

    def _pair_flows(self, pairs: list[tuple[int, int]], turn: int, spine: int) -> list[Flow]:
        flows = []
        for one, other in pairs:
            sources, destinations = self._leaves[one], self._leaves[other]
            ups = self._fabric.above[one]
            for place, source in enumerate(sources):
                where = place + turn
                larger = max(len(sources), len(destinations))
                if where % larger < len(destinations):
                    flow = self._flow(source, destinations[where % larger], ups[(place + spine) % len(ups)])
                    flows += [flow] if flow else []
        return flows

    def _flow(self, source: int, destination: int, up: int) -> Flow | None:
        fabric = self._fabric
        back = fabric.descent_to(destination, fabric.upper[up], 2)
        if back is None or fabric.nic_rail[source] != fabric.nic_rail[destination]:
            return None
        if fabric.nic_host[source] == fabric.nic_host[destination]:
            return None
        path = build_path([source, up], back)
        return Flow(source, destination, path, compute_share(fabric, path, self._parts))

    def _fitted(self, flows: list[Flow]) -> Iterator[Round]:
        return pack_rounds(flows, self._room, f"cover of every {self._kind} route")


def pack_rounds(flows: list[Flow], room: Mapping[int, int], purpose: str) -> Iterator[Round]:
    """Pack the flows into rounds, each as full as possible; `room` is the number of flows that fill each cable."""
    while flows:
        used: dict[int, int] = {}
        now, later = [], []
        for flow in flows:
            if any(used.get(number, 0) >= room[number // 2] for number in flow.path):
                later.append(flow)
                continue
            now.append(flow)
            for number in flow.path:
                used[number] = used.get(number, 0) + 1
        yield Round(now, purpose=purpose)
        flows = later
