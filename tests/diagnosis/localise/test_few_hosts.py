"""A slow port among a few hosts is named although a load disturbs the flows, and no healthy host is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.procedure import Phase, Rounds, carry_out, locate
from railwright.locate.host_fabric import build_host_fabric

TRIALS = 20
LEVEL = 0.33


def measure_under(load: float, fabric: Fabric, slow: int | None, random: Random) -> Callable[[Phase], None]:
    """Return a measurement with a slow class: a load slows single flows and all of a host's, and tilts whole rounds."""

    def measure(phase: Phase) -> None:
        for one in phase:
            level = LEVEL * (1 + load * random.uniform(-0.3, 0.3))
            busy = {host: random.uniform(0.7, 0.97) for host in fabric.hosts if random.random() < load / 2}
            one.ratio = []
            for flow in one.flows:
                ratio = min(random.gauss(1, 0.012 + 0.04 * load), 1.04)
                ratio *= random.uniform(0.78, 0.97) if random.random() < load else 1
                for nic in (flow.source, flow.destination):
                    ratio *= busy.get(fabric.hosts[fabric.nic_host[nic]], 1)
                if slow in flow.path:
                    ratio = min(ratio, level * random.gauss(1, 0.01 + 0.05 * load))
                one.ratio.append(ratio)

    return measure


def name_classes(hosts: int, load: float, slow: int | None, seed: int) -> list[set[int]]:
    """Return each suspect's class, with its rivals if there are two hosts: there they carry the same flows."""
    fabric = build_host_fabric([f"host{number}" for number in range(hosts)], ["gpu0"], None)
    phases = locate(fabric, Random(seed), Rounds(least_gap=0.1))
    outcome = carry_out(phases, measure_under(load, fabric, slow, Random(f"{hosts} {load} {slow} {seed}")))
    suspicions = outcome.explanation.suspicions
    return [{one.number, *(number for number, _ in one.rivals if hosts == 2)} for one in suspicions]


@pytest.mark.parametrize("load", [0, 0.15, 0.3])
@pytest.mark.parametrize("hosts", [2, 3, 4, 8])
def test_a_slow_port_is_named_alone_and_a_healthy_one_never(hosts: int, load: float) -> None:
    named = 0
    for seed in range(TRIALS):
        assert name_classes(hosts, load, None, seed) == [], f"seed {seed}"
        slow = seed % (2 * hosts)
        other_end = slow ^ 3
        named += name_classes(hosts, load, slow, seed) == [{slow, other_end} if hosts == 2 else {slow}]
    assert named >= 0.95 * TRIALS
