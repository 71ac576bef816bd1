"""Alternative searches for slow links in the same simulator, with their costs and results.

None of them pins paths: each flow takes a random path, as with ECMP, and shares links with others. So they name ports
(at best with a direction), never links between switches.
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

MAX_SIMULATED_HOSTS = 1024
_MAX_FLOWS = 400_000
_FLOOR = 0.93
PEERS = 8


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """An alternative search and its cost on a fabric."""

    name: str
    rounds: int
    seconds: float
    """The time if every round takes its maximum."""
    precision: float | None = None
    recall: float | None = None
    """The share of faulty link classes that were found; None if not simulated."""
    how: str


def baselines(fabric: Fabric, simulator: Callable[[], Simulator], bad: set[int], random: Random) -> list[Baseline]:
    """Return all alternatives. Costs are closed forms; results are simulated up to 1,024 hosts."""
    nics, hosts = fabric.nics, len(fabric.hosts)
    small = hosts <= MAX_SIMULATED_HOSTS
    found = []
    for name, rounds, simulated in (
        ("all pairs", nics - 1, small and nics * (nics - 1) <= _MAX_FLOWS),
        (f"random {PEERS} peers", PEERS, small and nics * PEERS <= _MAX_FLOWS),
    ):
        seen = _test_random_peers(fabric, simulator(), rounds, random) if simulated else None
        found.append(_build_baseline(name, rounds, seen, bad, "simulated" if simulated else "closed form"))
    found.insert(
        1, _build_baseline("pairs one after another", nics // 2, None, bad, "closed form: NICs / 2 tests, once each")
    )
    # Each round runs a collective over one half: a fault needs log2(hosts) levels of two rounds.
    faulty = max(1, len({fabric.nic_host[n // 2] for n in bad if n // 2 < nics}))
    rounds = 2 * ceil(log2(max(hosts, 2))) * faulty
    how = "closed form: 2 log2(hosts) rounds for each faulty host, one after another"
    found.append(_build_baseline("bisection of collectives", min(rounds, 2 * hosts), None, bad, how))
    return found


def _build_baseline(name: str, rounds: int, seen: set[int] | None, bad: set[int], how: str) -> Baseline:
    precision = recall = None
    if seen is not None:
        precision = len(seen & bad) / len(seen) if seen else 1.0
        recall = len(seen & bad) / len(bad) if bad else 1.0
    return Baseline(name=name, rounds=rounds, seconds=rounds * ROUND_S, precision=precision, recall=recall, how=how)


def _test_random_peers(fabric: Fabric, simulator: Simulator, rounds: int, random: Random) -> set[int]:
    """Send from each port to a new peer in each round; suspect ports by the median rates sent and received."""
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
