"""Merged groups of hosts: the gain of each merge, the merges that lose, and the parts at fault."""

from __future__ import annotations

import random

import pytest

from railwright.diagnosis.localise.doubling import Doubling, Group
from railwright.diagnosis.peers.growth import is_healthy, judge_merge, losing_merges, merges
from railwright.report.text.growth import lines
from railwright.results.host_list import format_hosts, parse_host_list
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise

CHECKED = Verification(method="HPL scaled residual", bytes_checked=8, bytes_wrong=0)


def reached(group, value, *, launch=0, share=1.0, reason=""):
    members = group.members
    named = {"hosts": format_hosts(members), "first": len(group.first)} if group.second else {"host": members[0]}
    samples = () if reason else (value,)
    return Result(
        benchmark="hpl", quantity="flop_per_s", path="memory0@0>memory0@1", launch=launch, hosts=len(members),
        outcome="failed" if reason else "measured", reason=reason,
        parameters={"n": 4000 * len(members), "nb": 192, "p": 1, "q": len(members), "threads": 2} | named,
        settings={"cpu_share": share}, samples=samples, summary=summarise(samples) if samples else None,
        verification=CHECKED,
    )  # fmt: skip


def grown(hosts, rate, leaf=2, launches=1, seed=0):
    """Results and search of hosts whose groups reach `rate` of their members, with 2 % noise."""
    noise = random.Random(seed)
    search = Doubling(hosts, lambda host: (hosts.index(host) // leaf, hosts.index(host)))
    results = []
    while level := search.level():
        for group in level:
            results += [
                reached(group, rate(group.members) * noise.gauss(1, 0.02), launch=launch) for launch in range(launches)
            ]
        search.record_results({group: is_healthy(group.members, results) for group in level})
        assert search.rounds < 100
    return results, search


def names(count):
    return [f"host{number}" for number in range(count)]


def accused(results):
    return {tuple(map(str, one.where)): one.certainty for one in losing_merges(results)}


def test_groups_that_gain_end_in_one_and_nothing_is_named():
    for seed, count in enumerate((2, 3, 4, 5, 8, 13, *[16] * 20)):
        results, search = grown(names(count), lambda some: 10e9 * 0.97 ** len(some).bit_length() * len(some), seed=seed)
        assert (len(search.largest), accused(results)) == (count, {}), count
        assert lines(results)[-1] == f"largest group that gains: {count} hosts, host[0-{count - 1}]"


def test_groups_1_and_2_merge_and_3_and_4_gain_nothing():
    # Four groups on four leaves; traffic that leaves the fourth is slow, so no merge with it gains.
    def rate(group):
        alone = 10e9 * len(group)
        return alone / 2 if len(group) > 1 and "host3" in group else alone

    results, search = grown(names(4), rate)
    said = lines(results)
    assert any(one.startswith("host0 + host1: ") and one.endswith("gains") for one in said)
    assert any(one.startswith("host2 + host3: ") and one.endswith("(0.50), loses") for one in said[:2] + said)
    assert search.largest == ("host0", "host1", "host2")
    assert accused(results) == {("hosts host3",): "likely"}


def test_the_merge_is_named_where_nothing_tells_its_halves_apart():
    slow = lambda group: 10e9 if len(group) > 1 else 9.9e9  # noqa: E731
    results, _ = grown(names(2), slow)
    assert accused(results) == {("hosts host0", "hosts host1"): "likely"}
    (finding,) = losing_merges(results)
    assert "the cause is in either group or between them" in finding.says


def test_a_route_between_two_leaves_accuses_no_host():
    def rate(group):
        crosses = {int(host[4:]) // 2 for host in group} >= {0, 1} and len(group) == 4
        return 10e9 * len(group) * (0.4 if crosses else 1)

    results, search = grown(names(8), rate)
    found = accused(results)
    assert ("hosts host[0-1]", "hosts host[2-3]") in found
    assert len(search.largest) == 8


def test_a_merge_that_is_below_the_others_of_its_size_loses_though_it_gains_most():
    pairs = [Group((f"host{one}",), (f"host{one + 1}",)) for one in range(0, 8, 2)]
    alone = [reached(Group((host,)), 10e9) for host in names(8)]
    results = [*alone, *(reached(pair, 19e9) for pair in pairs[:3]), reached(pairs[3], 16.5e9)]
    assert accused(results) == {("hosts host6", "hosts host7"): "possible"}
    # If all merges are equally below the sum, none is reported: the fabric limits them, and they still gain.
    assert accused([*alone, *(reached(pair, 16.5e9) for pair in pairs)]) == {}


@pytest.mark.parametrize(("share", "certainty"), [(1.0, "likely"), (0.9, "could not look")])
def test_hosts_that_had_less_of_their_cores_are_not_slow(share, certainty):
    pair = Group(("a",), ("b",))
    results = [reached(Group(("a",)), 10e9), reached(Group(("b",)), 10e9), reached(pair, 11e9, share=share)]
    assert list(accused(results).values()) == [certainty]
    assert not is_healthy(pair.members, results)


def test_a_group_that_gave_nothing_says_why_and_its_fastest_launch_counts():
    pair = Group(("a",), ("b",))
    alone = [reached(Group(("a",)), 10e9), reached(Group(("b",)), 10e9)]
    failed = [*alone, reached(pair, 0, reason="b cannot be reached from a: it has no route there")]
    assert lines(failed) == ["a + b: no result: b cannot be reached from a: it has no route there, failed"]
    assert list(accused(failed).values()) == ["likely"]
    twice = [*alone, reached(pair, 10e9), reached(pair, 19e9, launch=1)]
    (merge,) = merges(twice)
    assert judge_merge(merge, (merge,)) == "gains"


def test_a_host_that_gives_nothing_or_is_slow_by_itself_is_merged_with_nobody():
    results, search = grown(names(5), lambda group: 10e9 * len(group) * (0.8 if group == ("host2",) else 1), launches=2)
    assert search.set_aside == [("host2",)]
    assert all("host2" not in one.together.members for one in merges(results))


def test_hosts_as_one_word():
    draw = random.Random(4)
    for _ in range(500):
        some = [draw.choice(("node", "gpu-a1-", "", "fd00::", "x")) + str(draw.randint(0, 12)).zfill(draw.randint(1, 3))
                for _ in range(draw.randint(1, 9))]  # fmt: skip
        some += draw.choice(([], ["login"]))
        assert list(parse_host_list(format_hosts(some))) == some
    assert format_hosts(["node001", "node002", "node003", "node7", "login"]) == "node[001-003,7],login"
    assert format_hosts(["h9", "h10", "h11"]) == "h[9-11]"
    for broken in ("h[", "h[]", "h[1-", "h[2-1]", "h[0-999999999]", "h[1,]", "]", "a]b"):
        assert parse_host_list(broken) == (), broken
