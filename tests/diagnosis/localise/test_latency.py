"""Pairs are compared only with those whose packets cross the same number of switches."""

from __future__ import annotations

from random import Random

import pytest

from railwright.diagnosis.localise.fat_tree import parse_fat_tree
from railwright.diagnosis.localise.latency import RoundTrip, classify_round_trips, latency_rounds

NORMAL_S = {1: 20e-6, 3: 55e-6, 5: 90e-6}


def tries(random: Random, slow: tuple[str, str] = ("", ""), added_s: float = 0.0, each: int = 2) -> list[RoundTrip]:
    """All ordered pairs of 12 hosts, 2 per leaf and 4 per pod; some tries wait for other traffic."""
    found = []
    for one in range(12):
        for other in range(12):
            if one == other:
                continue
            switches = 1 if one // 2 == other // 2 else 3 if one // 4 == other // 4 else 5
            names = f"host{one}", f"host{other}"
            for _ in range(each):
                waits = random.expovariate(1 / 200e-6) if random.random() < 0.1 else 0.0
                seconds = NORMAL_S[switches] * random.uniform(0.95, 1.1) + waits + (added_s if names == slow else 0.0)
                found.append(RoundTrip(*names, switches, seconds))
    return found


def test_classes_are_told_apart_and_healthy_pairs_are_not_named() -> None:
    for seed in range(30):
        found = classify_round_trips(tries(Random(seed), each=3))
        assert [(one.switches, one.pairs) for one in found.classes] == [(1, 12), (3, 24), (5, 96)]
        for one in found.classes:
            assert one.median_s == pytest.approx(NORMAL_S[one.switches], rel=0.1)
        assert not [pair for pair in found.slow_pairs if pair.times < 2], seed
        assert len(found.slow_pairs) <= 1  # one pair that waited in all three tries


@pytest.mark.parametrize("slow", [("host0", "host1"), ("host0", "host3"), ("host11", "host0")])
def test_a_pair_that_always_takes_longer_is_named_with_its_direction(slow: tuple[str, str]) -> None:
    for seed in range(10):
        found = classify_round_trips(tries(Random(seed), slow, 100e-6, each=3))
        assert slow in [(one.source, one.destination) for one in found.slow_pairs]


def test_one_try_and_a_class_of_few_pairs_give_no_verdict() -> None:
    found = classify_round_trips(tries(Random(1), ("host0", "host9"), 500e-6, each=1))
    assert not found.slow_pairs
    assert found.tried_once >= 1
    few = [RoundTrip("a", "b", 1, 1e-6), RoundTrip("b", "a", 1, 1e-3), RoundTrip("b", "a", 1, 1e-3)]
    assert classify_round_trips(few).slow_pairs == ()
    assert classify_round_trips([]).classes == ()


def test_rounds_try_every_pair_twice_and_large_fabrics_are_sampled() -> None:
    for words, ports in (("hosts=16 gpus=1 leaf-down=4", 16), ("hosts=9 gpus=2 leaf-down=4 rails=own", 18)):
        fabric = parse_fat_tree(words.split())
        tried = [(flow.source, flow.destination) for one in latency_rounds(fabric) for flow in one.flows]
        rails = fabric.nic_rail
        wanted = {(a, b) for a in range(ports) for b in range(ports) if a != b and rails[a] == rails[b]}
        wanted = {(a, b) for a, b in wanted if fabric.nic_host[a] != fabric.nic_host[b]}
        assert sorted(tried) == sorted([*wanted, *wanted])
    rounds = latency_rounds(parse_fat_tree(["hosts=400", "gpus=1", "tiers=3", "leaf-down=8"]))
    assert len(rounds) <= 2 * 63
    assert {len(flow.path) - 1 for one in rounds for flow in one.flows} == {1, 3, 5}
