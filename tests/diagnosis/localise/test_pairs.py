"""Rounds of disjoint pairs: every two hosts meet once, no host is in two pairs of a round, and the load is limited."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.fat_tree import parse_fat_tree
from railwright.diagnosis.localise.flows import class_loads
from railwright.diagnosis.localise.pairs import disjoint_pairs, pair_rounds, split_rounds
from railwright.diagnosis.localise.procedure import Rounds, carry_out, locate
from railwright.locate.host_fabric import build_host_fabric


def hosts_of(fabric: Fabric, flows) -> list[tuple[str, str]]:
    return [tuple(fabric.hosts[fabric.nic_host[nic]] for nic in (one.source, one.destination)) for one in flows]


@pytest.mark.parametrize("count", [2, 3, 7, 8, 64])
def test_every_two_meet_once_and_nobody_twice_in_a_round(count):
    rounds = disjoint_pairs(count)
    assert len(rounds) == count - 1 + count % 2
    met = [tuple(sorted(pair)) for one in rounds for pair in one]
    assert sorted(met) == list(combinations(range(count), 2))
    for one in rounds:
        busy = [host for pair in one for host in pair]
        assert len(busy) == len(set(busy)) == count - count % 2


def test_both_hosts_of_a_pair_send_on_every_rail_and_no_link_carries_more_than_its_share_says():
    fabric = parse_fat_tree(["hosts=8", "gpus=2", "leaf-down=4"])
    sent = []
    for one in pair_rounds(fabric, Random(1)):
        assert len(one.flows) == 16
        sent += hosts_of(fabric, one.flows)
        assert max(class_loads(fabric, one.flows).values()) <= 1 + 1e-9
    assert sorted(sent) == sorted([ends for pair in combinations(fabric.hosts, 2) for ends in (pair, pair[::-1])] * 2)


def test_a_part_of_the_hosts_may_be_loaded_at_once():
    fabric = build_host_fabric([f"h{number}" for number in range(8)], ("port",), None)
    whole = list(pair_rounds(fabric, Random(1)))
    parts = split_rounds(fabric, whole, 0.5)
    assert len(parts) == 2 * len(whole)
    assert [flow for one in parts for flow in one.flows] == [flow for one in whole for flow in one.flows]
    assert all(len({host for ends in hosts_of(fabric, one.flows) for host in ends}) == 4 for one in parts)
    assert split_rounds(fabric, whole, 1.0) == whole


def test_a_round_is_divided_where_two_hosts_send_to_each_other():
    fabric = build_host_fabric([f"h{number}" for number in range(6)], ("port",), None)
    whole = list(pair_rounds(fabric, Random(1)))
    parts = split_rounds(fabric, whole, 1.0, one_way=True)
    assert len(parts) == 2 * len(whole)
    assert sorted(flow for one in parts for flow in one.flows) == sorted(flow for one in whole for flow in one.flows)
    for one in parts:
        sent = hosts_of(fabric, one.flows)
        assert not {ends[::-1] for ends in sent} & set(sent)
    assert split_rounds(fabric, parts, 1.0, one_way=True) == parts


def test_a_search_of_one_way_at_a_time_names_a_port_where_two_ways_halve_each_other():
    fabric = build_host_fabric([f"h{number}" for number in range(4)], ("port",), None)

    def measure(phase):
        for one in phase:
            ends = {(flow.source, flow.destination) for flow in one.flows}
            assert not {(destination, source) for source, destination in ends} & ends
            one.ratio = [0.33 if flow.source == 1 else 1.0 for flow in one.flows]

    for seed in range(20):
        outcome = carry_out(locate(fabric, Random(seed), Rounds(load_test=True, one_way=True)), measure)
        assert [one.number for one in outcome.explanation.suspicions] == [2 * 1]


def test_a_search_within_a_load_never_loads_more_and_still_names_the_slow_port():
    fabric = build_host_fabric([f"h{number}" for number in range(8)], ("port",), None)
    rounds = []

    def measure(phase):
        for one in phase:
            one.ratio = [0.4 if flow.source == 5 else 1.0 for flow in one.flows]
            rounds.append(one)

    wanted = Rounds(load=0.5, cover_at_once=1, again=0)
    outcome = carry_out(locate(fabric, Random(1), wanted, pair_rounds(fabric, Random(1))), measure)
    assert max(len({host for ends in hosts_of(fabric, one.flows) for host in ends}) for one in rounds) == 4
    assert [one.number for one in outcome.explanation.suspicions] == [2 * 5]
    assert outcome.cover_rounds == 14
    assert all(one.purpose.startswith("cover") for one in rounds[-14:])
