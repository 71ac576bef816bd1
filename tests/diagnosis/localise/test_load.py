"""The same flows with all ports busy and with a quarter: flows that are slow only together are congested."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.fat_tree import parse_fat_tree
from railwright.diagnosis.localise.load import LoadClass, evaluate_load, load_rounds
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.localise.records import Fault
from railwright.diagnosis.localise.schedule import Screen
from railwright.diagnosis.localise.simulate import Simulator, Weather
from railwright.diagnosis.localise.truth import apply_faults

FABRIC = parse_fat_tree(["hosts=32", "gpus=1", "leaf-down=8"])


def searched(*faults: Fault) -> tuple[LoadClass, ...]:
    truth = apply_faults(FABRIC, list(faults))
    wanted = Rounds(load_test=True)
    found = trial.run(FABRIC, "", truth, Weather(interference=0.0), seed=1, rounds=wanted)
    assert found.load_rounds == 5
    return found.load


def test_the_parts_are_the_flows_and_load_every_leaf_alike() -> None:
    full, *parts = load_rounds(FABRIC, Screen(FABRIC, Random(3)).build_round())
    assert Counter(flow for part in parts for flow in part.flows) == Counter(full.flows)
    for part in parts:
        sending = Counter(FABRIC.leaf_of(flow.source) for flow in part.flows)
        receiving = Counter(FABRIC.leaf_of(flow.destination) for flow in part.flows)
        assert set(sending.values()) <= {1, 2, 3}
        assert set(receiving.values()) <= {1, 2, 3}


def test_healthy_links_are_held_back_by_nothing() -> None:
    (one,) = searched()
    assert (one.switches, one.flows, one.held_back, one.slow_alone, one.is_congested) == (3, 32, 0, 0, False)
    assert one.full == pytest.approx(1.0, abs=0.03)


def test_a_slow_host_stays_slow_when_the_others_rest() -> None:
    (one,) = searched(Fault(kind="host", id="host9", capacity=0.5))
    assert (one.held_back, one.slow_alone, one.is_congested) == (0, 2, False)


def test_too_little_room_for_all_is_congestion() -> None:
    """The links above the leaves have half of their planned capacity."""
    rounds = load_rounds(FABRIC, Screen(FABRIC, Random(3)).build_round())
    simulator = Simulator(FABRIC, apply_faults(FABRIC, []), Weather(interference=0.0), 1)
    for one in rounds:
        simulator.measure(one)
        load = Counter(FABRIC.leaf_of(flow.source) for flow in one.flows)
        one.ratio = [
            ratio * min(1.0, 4 / load[FABRIC.leaf_of(flow.source)])
            for flow, ratio in zip(one.flows, one.ratio, strict=True)
        ]
    (one,) = evaluate_load(rounds, 0.9, rate_is_known=True)
    assert one.is_congested
    assert (one.held_back, one.slow_alone) == (32, 0)
    assert one.full == pytest.approx(0.5, abs=0.05)


def test_where_no_rate_is_known_a_flow_may_be_faster_alone() -> None:
    """The fastest flow of a full network is the reference: 1.0 with all ports, and 2.0 with a quarter of them."""
    rounds = load_rounds(FABRIC, Screen(FABRIC, Random(3)).build_round())
    for one in rounds:
        one.ratio = [1.0 if one is rounds[0] else 2.0] * len(one.flows)
    assert [one.is_congested for one in evaluate_load(rounds, 0.9, rate_is_known=False)] == [True]
    assert [one.is_congested for one in evaluate_load(rounds, 0.9, rate_is_known=True)] == [False]
    assert evaluate_load([], 0.9, rate_is_known=True) == ()
