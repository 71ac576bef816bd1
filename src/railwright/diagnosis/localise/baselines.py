"""Other ways to look for slow links, in the same simulator: what they cost, and what they find.

None of them pins paths: each flow takes one at random, as ECMP does, and shares links with others. So they name ports
(in a direction at best), never links between switches.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from random import Random

import msgspec

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Round, random_flow
from railwright.diagnosis.localise.procedure import ROUND_S
from railwright.diagnosis.localise.simulate import Simulator

MOST_SIMULATED_HOSTS = 1024
_MOST_FLOWS = 400_000
_FLOOR = 0.93
PEERS = 8


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One way and its cost on a fabric."""

    name: str
    rounds: int
    seconds: float
    """Each round at its longest."""
    precision: float | None = None
    recall: float | None = None
    """Of all faulty classes of links; None where it was not simulated."""
    how: str


def baselines(fabric: Fabric, simulator: Callable[[], Simulator], bad: set[int], random: Random) -> list[Baseline]:
    """All of them. Costs are closed forms; what they find is simulated up to 1,024 hosts, where it is affordable."""
    nics, hosts = fabric.nics, len(fabric.hosts)
    small = hosts <= MOST_SIMULATED_HOSTS
    found = []
    for name, rounds, simulated in (
        ("all pairs", nics - 1, small and nics * (nics - 1) <= _MOST_FLOWS),
        (f"random {PEERS} peers", PEERS, small and nics * PEERS <= _MOST_FLOWS),
    ):
        seen = _peers(fabric, simulator(), rounds, random) if simulated else None
        found.append(_scored(name, rounds, seen, bad, "simulated" if simulated else "closed form"))
    found.insert(1, _scored("pairs one after another", nics // 2, None, bad, "closed form: NICs / 2 tests, once each"))
    # One collective a round over each half in turn: a fault needs log2(hosts) levels of two.
    faulty = max(1, len({fabric.nic_host[n // 2] for n in bad if n // 2 < nics}))
    rounds = 2 * ceil(log2(max(hosts, 2))) * faulty
    how = "closed form: 2 log2(hosts) rounds for each faulty host, one after another"
    found.append(_scored("bisection of collectives", min(rounds, 2 * hosts), None, bad, how))
    return found


def _scored(name: str, rounds: int, seen: set[int] | None, bad: set[int], how: str) -> Baseline:
    precision = recall = None
    if seen is not None:
        precision = len(seen & bad) / len(seen) if seen else 1.0
        recall = len(seen & bad) / len(bad) if bad else 1.0
    return Baseline(name=name, rounds=rounds, seconds=rounds * ROUND_S, precision=precision, recall=recall, how=how)


def _peers(fabric: Fabric, simulator: Simulator, rounds: int, random: Random) -> set[int]:
    """Each port sends to another peer in each round; a port is a suspect by the median of what it sent, received."""
    sent: dict[int, list[float]] = {}
    order = list(range(fabric.nics))
    random.shuffle(order)
    for shift in random.sample(range(1, fabric.nics), min(rounds, fabric.nics - 1)):
        flows = []
        for place, source in enumerate(order):
            flow = random_flow(fabric, source, order[(place + shift) % len(order)], random)
            flows += [flow] if flow else []
        one = Round(flows)
        simulator.measure(one)
        for flow, ratio in zip(flows, one.ratio, strict=True):
            sent.setdefault(2 * flow.source, []).append(ratio)
            sent.setdefault(2 * flow.destination + 1, []).append(ratio)
    middle = sorted(ratio for ratios in sent.values() for ratio in ratios)
    normal = middle[len(middle) // 2]
    return {number for number, ratios in sent.items() if sorted(ratios)[len(ratios) // 2] < _FLOOR * normal}
