"""Rounds of disjoint pairs of hosts that cover all pairs, and rounds that leave a part of the hosts idle.

The rounds form a round-robin tournament by the circle method: n - 1 rounds for n hosts, or n rounds with one idle host
if n is odd. Both hosts of a pair send to each other over all rails at once, so every port sends and receives one flow,
as in a screen round. Paths are drawn to balance the load between switches; a flow should reach its share of its
narrowest link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round, random_flow

PURPOSE = "cover of every pair of hosts"
_DRAWS = 8
"""The number of random paths per flow, of which the least loaded is used."""

Pair = tuple[int, int]


def disjoint_pairs(count: int) -> list[list[Pair]]:
    """Return rounds of disjoint pairs of the integers below `count`; every two meet in exactly one round."""
    places: list[int | None] = [*range(count), *([None] * (count % 2))]
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(first, second) for first, second in met if first is not None and second is not None])
        places[1:] = [places[-1], *places[1:-1]]
    return rounds


def pair_rounds(fabric: Fabric, random: Random) -> Iterator[Round]:
    """Yield the flows of each round of disjoint pairs of the fabric's hosts."""
    for pairs in disjoint_pairs(len(fabric.hosts)):
        flows: list[Flow] = []
        load: dict[int, int] = {}
        for one, other in pairs:
            for source, destination in _pair_ports(fabric, one, other):
                drawn = [random_flow(fabric, source, destination, random) for _ in range(_DRAWS)]
                there = [flow for flow in drawn if flow is not None]
                if not there:
                    continue
                flow = min(there, key=lambda flow: _max_load(fabric, load, flow))
                for number in flow.path:
                    load[number] = load.get(number, 0) + 1
                flows.append(flow)
        yield Round([_with_share(fabric, load, flow) for flow in flows], purpose=PURPOSE)


def _pair_ports(fabric: Fabric, one: int, other: int) -> list[Pair]:
    """Return (sending, receiving) ports in both directions, the n-th port of a rail with the other host's n-th."""

    def by_rail(host: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for nic in fabric.nics_of_host[host]:
            found.setdefault(fabric.nic_rail[nic], []).append(nic)
        return found

    here, possible = by_rail(one), by_rail(other)
    joined = [ends for rail in here for ends in zip(here[rail], possible.get(rail, ()), strict=False)]
    return [ends for near, far in joined for ends in ((near, far), (far, near))]


def _max_load(fabric: Fabric, load: dict[int, int], flow: Flow) -> float:
    return max((load.get(number, 0) + 1) / fabric.capacity[number // 2] for number in flow.path)


def _with_share(fabric: Fabric, load: dict[int, int], flow: Flow) -> Flow:
    share = min(fabric.capacity[number // 2] / load[number] for number in flow.path)
    return flow._replace(share=min(1.0, share))


def max_hosts(count: int, load: float) -> int:
    """Return the maximum number of hosts that may be loaded at once."""
    return int(load * count + 1e-9)


def _split_directions(fabric: Fabric, one: Round) -> list[Round]:
    """Split a round so that no two hosts send to each other."""
    sent: set[Pair] = set()
    forward: list[Flow] = []
    back: list[Flow] = []
    for flow in one.flows:
        source, destination = fabric.nic_host[flow.source], fabric.nic_host[flow.destination]
        if (destination, source) in sent:
            back.append(flow)
        else:
            sent.add((source, destination))
            forward.append(flow)
    return [one] if not back else [Round(flows, purpose=one.purpose) for flows in (forward, back)]


def split_rounds(fabric: Fabric, rounds: Sequence[Round], load: float, *, one_way: bool = False) -> list[Round]:
    """Split rounds so that each loads at most the part `load` of the hosts, but at least the hosts of one flow.

    `one_way` also splits rounds in which two hosts send to each other.
    """
    if one_way:
        rounds = [part for one in rounds for part in _split_directions(fabric, one)]
    if load >= 1:
        return list(rounds)
    max_loaded = max_hosts(len(fabric.hosts), load)
    found = []
    for one in rounds:
        hosts: set[int] = set()
        flows: list[Flow] = []
        for flow in one.flows:
            ends = {fabric.nic_host[flow.source], fabric.nic_host[flow.destination]}
            if flows and len(hosts | ends) > max_loaded:
                found.append(Round(flows, purpose=one.purpose))
                hosts, flows = set(), []
            hosts |= ends
            flows.append(flow)
        found.append(Round(flows, purpose=one.purpose))
    return found
