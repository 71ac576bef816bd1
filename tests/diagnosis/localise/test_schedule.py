"""Rounds fill every link and overload none, whatever the fabric."""

from random import Random

import pytest

from railwright.diagnosis.localise.cover import RouteCover
from railwright.diagnosis.localise.fat_tree import fabric_of_cluster, parse_fat_tree
from railwright.diagnosis.localise.flows import class_loads
from railwright.diagnosis.localise.schedule import Screen
from railwright.errors import UsageError
from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.expand import expand

FABRICS = (
    "hosts=8 gpus=8",
    "hosts=40 gpus=4 leaf-down=16",
    "hosts=33 gpus=3 leaf-down=10 oversubscription=2",
    "hosts=100 gpus=8 leaf-down=24 oversubscription=3",
    "hosts=20 gpus=1 leaf-down=6 oversubscription=1.5",
    "hosts=64 gpus=8 leaf-down=16 rails=own",
    "hosts=96 gpus=2 tiers=3 leaf-down=4",
    "hosts=50 gpus=4 tiers=3 leaf-down=8 oversubscription=2",
    "hosts=16 gpus=2 tiers=1",
)


@pytest.mark.parametrize("words", FABRICS)
def test_no_round_overloads_a_link_and_none_joins_a_host_to_itself(words: str) -> None:
    fabric = parse_fat_tree(words.split())
    screen = Screen(fabric, Random(3))
    for _ in range(3):
        one = screen.build_round()
        assert max(class_loads(fabric, one.flows).values()) <= 1 + 1e-9
        for flow in one.flows:
            assert fabric.nic_host[flow.source] != fabric.nic_host[flow.destination]
            assert fabric.nic_rail[flow.source] == fabric.nic_rail[flow.destination]
            assert flow.path[0] == 2 * flow.source
            assert flow.path[-1] == 2 * flow.destination + 1
            for here, there in zip(flow.path, flow.path[1:], strict=False):
                end = fabric.lower[here // 2] if here % 2 else fabric.upper[here // 2]
                assert end == (fabric.upper[there // 2] if there % 2 else fabric.lower[there // 2])


def test_a_round_of_a_balanced_tree_fills_every_link_in_both_directions() -> None:
    fabric = parse_fat_tree(["hosts=32", "gpus=4", "leaf-down=16"])
    load = class_loads(fabric, Screen(fabric, Random(1)).build_round().flows)
    assert len(load) == fabric.classes
    assert min(load.values()) == pytest.approx(1.0)


def test_uplinks_of_one_and_a_half_nics_are_filled_by_flows_of_half_a_nic() -> None:
    tiers = (Tier(hosts=3), Tier(name="spine", hosts=12, switches=2))
    cluster = build_cluster(expand("hgx-h100", {"nics": "1"}), 12, Fabric(tiers=tiers))
    fabric = fabric_of_cluster(cluster)
    screen = Screen(fabric, Random(1))
    assert screen.parts == 2
    load = class_loads(fabric, screen.build_round().flows)
    assert len(load) == fabric.classes
    assert all(value == pytest.approx(1.0) for value in load.values())


@pytest.mark.parametrize("words", ["hosts=12 gpus=1 leaf-down=4", "hosts=11 gpus=1 leaf-down=4 oversubscription=2"])
def test_a_leaf_cover_tries_every_pair_of_leaves_over_every_spine_and_a_pair_cover_every_pair_of_ports(
    words: str,
) -> None:
    fabric = parse_fat_tree(words.split())
    leaves, spines = 3, len(fabric.above[fabric.leaf_of(0)])
    rounds = list(RouteCover(fabric, "leaf").rounds(Random(1)))
    middles = {flow.path[1:-1] for one in rounds for flow in one.flows}
    assert len(middles) == leaves * (leaves - 1) * spines
    whole = {(flow.source, flow.path) for one in RouteCover(fabric, "pair").rounds(Random(1)) for flow in one.flows}
    ports = list(range(fabric.nics))
    pairs = sum(fabric.leaf_of(one) != fabric.leaf_of(other) for one in ports for other in ports)
    assert len(whole) == pairs * spines


@pytest.mark.parametrize(
    "words",
    ["gpus=8", "hosts=8 gpus=0", "hosts=8 leaf-down=1", "hosts=9 tiers=1 leaf-down=8", "hosts=8 oversubscription=nan"],
)
def test_words_that_make_no_fabric_are_refused(words: str) -> None:
    with pytest.raises(UsageError):
        parse_fat_tree(words.split())
