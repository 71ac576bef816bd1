"""Every two hosts at once, in rounds of disjoint pairs; and rounds that leave a part of the hosts idle.

The rounds are those of a tournament, by the circle method: of n hosts n - 1 rounds, n of them where n is odd and one
host rests. Both hosts of a pair send to each other over all rails at once, so that every port sends one flow and
receives one, as in a screen round. Paths are drawn so that links between switches share the load; a flow is to reach
what its narrowest link leaves to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round, random_flow

PURPOSE = "cover of every pair of hosts"
_DRAWS = 8
"""Of the paths of a flow, of which the least loaded is taken."""

Pair = tuple[int, int]


def disjoint_pairs(count: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs of the numbers below `count`, in which every two meet once."""
    places: list[int | None] = [*range(count), *([None] * (count % 2))]
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(one, other) for one, other in met if one is not None and other is not None])
        places[1:] = [places[-1], *places[1:-1]]
    return rounds


def pair_rounds(fabric: Fabric, random: Random) -> Iterator[Round]:
    """One round for each of the rounds of disjoint pairs of the fabric's hosts."""
    for pairs in disjoint_pairs(len(fabric.hosts)):
        flows: list[Flow] = []
        load: dict[int, int] = {}
        for one, other in pairs:
            for source, destination in _ports(fabric, one, other):
                drawn = [random_flow(fabric, source, destination, random) for _ in range(_DRAWS)]
                there = [flow for flow in drawn if flow is not None]
                if not there:
                    continue
                flow = min(there, key=lambda flow: _fullest(fabric, load, flow))
                for number in flow.path:
                    load[number] = load.get(number, 0) + 1
                flows.append(flow)
        yield Round([_shared(fabric, load, flow) for flow in flows], purpose=PURPOSE)


def _ports(fabric: Fabric, one: int, other: int) -> list[Pair]:
    """The ports that send and receive, both ways: the n-th of a rail with the n-th of it."""

    def by_rail(host: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for nic in fabric.nics_of_host[host]:
            found.setdefault(fabric.nic_rail[nic], []).append(nic)
        return found

    here, there = by_rail(one), by_rail(other)
    joined = [ends for rail in here for ends in zip(here[rail], there.get(rail, ()), strict=False)]
    return [ends for near, far in joined for ends in ((near, far), (far, near))]


def _fullest(fabric: Fabric, load: dict[int, int], flow: Flow) -> float:
    return max((load.get(number, 0) + 1) / fabric.capacity[number // 2] for number in flow.path)


def _shared(fabric: Fabric, load: dict[int, int], flow: Flow) -> Flow:
    share = min(fabric.capacity[number // 2] / load[number] for number in flow.path)
    return flow._replace(share=min(1.0, share))


def most_hosts(count: int, load: float) -> int:
    """How many hosts of so many may be loaded at once."""
    return int(load * count + 1e-9)


def _divided(fabric: Fabric, one: Round) -> list[Round]:
    """The same flows in one round or two, in none of which two hosts send to each other."""
    sent: set[Pair] = set()
    there: list[Flow] = []
    back: list[Flow] = []
    for flow in one.flows:
        source, destination = fabric.nic_host[flow.source], fabric.nic_host[flow.destination]
        if (destination, source) in sent:
            back.append(flow)
        else:
            sent.add((source, destination))
            there.append(flow)
    return [one] if not back else [Round(flows, purpose=one.purpose) for flows in (there, back)]


def within(fabric: Fabric, rounds: Sequence[Round], load: float, *, one_way: bool = False) -> list[Round]:
    """The same flows in rounds of which none loads more than that part of the hosts, but always those of one flow.

    `one_way` divides a round in which two hosts send to each other.
    """
    if one_way:
        rounds = [part for one in rounds for part in _divided(fabric, one)]
    if load >= 1:
        return list(rounds)
    most = most_hosts(len(fabric.hosts), load)
    found = []
    for one in rounds:
        hosts: set[int] = set()
        flows: list[Flow] = []
        for flow in one.flows:
            ends = {fabric.nic_host[flow.source], fabric.nic_host[flow.destination]}
            if flows and len(hosts | ends) > most:
                found.append(Round(flows, purpose=one.purpose))
                hosts, flows = set(), []
            hosts |= ends
            flows.append(flow)
        found.append(Round(flows, purpose=one.purpose))
    return found
