"""A benchmark between two hosts is planned for disjoint pairs of more hosts, in a run and in a proof of hosts."""

from __future__ import annotations

import pytest
from tests.benchmarks.test_rdma_plan import machine as with_rdma
from tests.topology.machines import archive

from railwright.benchmarks.registry import find
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.options.arguments import Arguments
from railwright.run.plan import plan_launches
from railwright.topology.sources.load import load
from railwright.verbs.prove.between_benchmarks import parse_between, split_options
from railwright.verbs.prove.between_plan import PlannedBetween

PARTS = frozenset({"rails", "collectives", "kv"})


@pytest.fixture(scope="module")
def machine():
    return load(str(archive("2xh200-firecracker-vm")))


def hosts(count: int, ranks: int = 1) -> PlannedHosts:
    return PlannedHosts(tuple(f"h{number}" for number in range(count)), ranks, NoReach("ssh"))


@pytest.mark.parametrize(
    ("count", "pairs"),
    [(2, ["h0,h1"]), (4, ["h0,h1", "h2,h3"]), (5, ["h0,h1", "h2,h3", "h4,h0"])],
)
def test_every_host_is_in_a_pair_and_only_several_pairs_are_named(machine, count, pairs):
    benchmark = find("kv_cache")
    planned = plan_launches(machine, [(benchmark, benchmark.parse({}))], 0, hosts(count))
    assert [",".join(one.job.hosts) for one in planned] == pairs
    named = [one.job.case.parameters().get("between") for one in planned]
    assert named == ([None] if count == 2 else pairs)
    assert {one.job.ranks for one in planned} == {2}


def test_more_ranks_than_a_pair_has_are_refused_by_the_number(machine):
    benchmark = find("kv_transfer")
    (planned,) = plan_launches(machine, [(benchmark, benchmark.parse({}))], 0, hosts(2, ranks=4))
    assert planned.plan.waived == "it needs 2 ranks, got 2 hosts with 4 ranks each"


def test_a_proof_plans_minutes_and_bytes_of_every_part(machine):
    chosen = parse_between((), (), PARTS)
    between = PlannedBetween(hosts(4), Arguments(max_load=1.0, launches=2), PARTS, None, chosen, machine)
    lines, seconds = between.plan()
    text = "\n".join(lines)
    assert "rails: a search by NCCL between 2 GPUs of each host" in text
    assert "each of 48 flows is NCCL's for 1.5 s" in text
    assert "kv: kv_vram, kv_cache between hosts in pairs, 2 launches each" in text
    assert "mpi_all_reduce" in text
    assert "over all 4 hosts, 2 launches each" in text
    assert seconds > 0
    spared = PlannedBetween(hosts(4), Arguments(max_load=0.5, launches=2), PARTS, None, chosen, machine)
    said = "\n".join(spared.plan()[0])
    assert "collectives: not run, because they load all hosts and --max-load is 0.5" in said
    assert "kv: kv_vram" in said


def test_options_of_nixl_go_to_the_screen_only_if_it_measures_them():
    given = ("kv_cache.tokens=64", "kv_vram.sizes=4K", "nccl_all_reduce.sizes=8", "memory_copy.sizes=1M")
    alone, between = split_options(given, ("memory_copy", "kv_vram"))
    assert alone == ("kv_vram.sizes=4K", "memory_copy.sizes=1M")
    assert between == ("kv_cache.tokens=64", "kv_vram.sizes=4K", "nccl_all_reduce.sizes=8")
    assert [one.name for one, _ in parse_between(("kv_cache",), (), PARTS)] == ["kv_cache"]


def test_rdma_is_planned_where_hosts_have_its_ports():
    chosen, parts = parse_between((), (), {"rdma"}), frozenset({"rdma"})
    assert [one.name for one, _ in chosen] == ["rdma_write", "rdma_read", "rdma_send"]
    assert {options.nics for _, options in chosen} == {("each", "together")}
    arguments = Arguments(max_load=0.5, launches=1)
    told = PlannedBetween(hosts(4), arguments, parts, None, chosen, with_rdma()).plan()[0]
    assert told[0] == "rdma: rdma_write, rdma_read, rdma_send between hosts in pairs, 1 launch each"
    assert PlannedBetween(hosts(4), arguments, parts, None, chosen, load("laptop")).plan() == ([], 0.0)
    searched = PlannedBetween(hosts(4), arguments, frozenset({"rails"}), None, [], with_rdma()).plan()[0]
    assert searched[0] == "rails: a search by RDMA between 8 RDMA ports of each host"
    assert "each of 192 flows is RDMA's for 1.5 s" in searched[1]
    assert split_options(("rdma_write.depth=16",), ()) == ((), ("rdma_write.depth=16",))
