"""Groups double in few rounds, and a fault between groups or in a host ends up set aside, never a healthy host."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from random import Random

import pytest

from railwright.diagnosis.localise.doubling import Doubling, Group, Members


def grown(hosts: int, is_well: Callable[[Members], bool], leaf: int = 4) -> Doubling:
    """Run the search to its end, and check that the groups of a level share no host."""
    search = Doubling([f"host{n}" for n in range(hosts)], lambda name: (number(name) // leaf, number(name)))
    while level := search.level():
        members = [host for group in level for host in group.members]
        assert len(members) == len(set(members))
        search.record_results({group: is_well(group.members) for group in level})
        assert search.rounds < 200
    return search


def number(name: str) -> int:
    return int(name.removeprefix("host"))


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 8, 13, 16, 100])
def test_healthy_hosts_end_in_one_group_after_as_many_levels_as_doublings(hosts: int) -> None:
    search = grown(hosts, lambda _members: True)
    assert (len(search.largest), search.set_aside) == (hosts, [])
    assert search.rounds <= 1 + 2 * ceil(log2(max(hosts, 2)))


def test_the_first_merges_stay_below_a_leaf() -> None:
    search = Doubling([f"host{n}" for n in range(16)], lambda name: (number(name) // 4, number(name)))
    search.record_results(dict.fromkeys(search.level(), True))
    for _ in range(2):
        level = search.level()
        assert all(len({number(host) // 4 for host in group.members}) == 1 for group in level), level
        search.record_results(dict.fromkeys(level, True))


def test_a_host_that_is_slow_alone_or_only_in_company_is_set_aside_and_all_others_merge() -> None:
    for seed in range(100):
        random = Random(seed)
        hosts = random.randrange(4, 60)
        bad = {f"host{n}" for n in random.sample(range(hosts), random.randrange(1, 3))}
        alone = random.random() < 0.5
        search = grown(hosts, lambda group, bad=bad, alone=alone: not (bad & {*group} and (alone or len(group) > 1)))
        assert {host for one in search.set_aside for host in one} == bad, seed
        assert len(search.largest) == hosts - len(bad)


def test_a_fault_between_two_leaves_costs_no_host_where_others_can_take_their_place() -> None:
    def is_well(group: Members) -> bool:
        leaves = {number(host) // 4 for host in group}
        return leaves != {0, 1}

    search = grown(32, is_well)
    assert len(search.largest) == 32
    assert search.set_aside == []


def test_a_disturbed_run_is_tried_again_in_other_company() -> None:
    seen = list[Group]()

    def once(group: Members) -> bool:
        seen.append(Group(group))
        return len(seen) != 40

    assert len(grown(32, once).largest) == 32
