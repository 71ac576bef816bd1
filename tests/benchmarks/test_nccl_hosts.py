"""NCCL between hosts over stand-ins: ranks of one machine that NCCL takes for hosts, and that move data by TCP.

Labs and namespaces are in tests/launch/test_nccl_hosts.py.
"""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.nccl.subgroups import Subgroup, list_rounds
from railwright.benchmarks.registry import find
from railwright.errors import UsageError
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.topology.sources.load import load

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
HOSTS = ("a", "b", "c")


@pytest.fixture(scope="module")
def two_gpus():
    return load(str(archive("2xh200-firecracker-vm")))


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    """Run all launches of a benchmark over hosts of two GPUs each."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name, *, hosts=HOSTS, faults=None, **options):
        benchmark = find(name)
        where = {"hosts": hosts, "ranks_per_host": 2, "hosts_share_gpus": True, "reached_by": "nothing"}
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        variables = os.environ | environment(stand_ins, *addresses) | {"OMPI_MCA_mpi_yield_when_idle": "1"}
        found = []
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        for job in jobs_of(benchmark, two_gpus, cpus, {"sizes": "16,300K"} | options, **where):
            planned = PlannedLaunch(benchmark, job, benchmark.plan(job))
            session = Session(planned, MpiLauncher(mpiruns["openmpi"]), variables | (faults or {}), 120.0)
            found.extend(session.results())
        return found

    return run


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_moves_right_data_between_hosts(measure, operation):
    results = measure(f"nccl_{operation}")
    placements = 1 if operation in ("all_to_all", "send_recv") else 2
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert len(results) == 3 * 2 * placements
    for one in results:
        assert (one.path, one.ranks, one.hosts, one.settings["hosts"]) == ("gpu0@0>gpu1@2", 6, 3, "a,b,c")
        assert one.verification.bytes_wrong == 0
        assert one.verification.bytes_checked > 0


def test_graphs_and_forced_protocols_run_between_hosts(measure):
    results = measure("nccl_all_reduce", sizes="4K", launched="graph", algorithms="Ring,Tree", protocols="LL")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert {one.parameters["algorithm"] for one in results} == {"Ring", "Tree"}


def test_groups_of_hosts_and_rails_are_measured_each_by_itself(measure):
    results = measure("nccl_all_reduce", sizes="4K", placements="out of place", among="all,pairs,rails,growing")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    times = [one for one in results if one.quantity == "latency_s"]
    found = Counter((one.parameters.get("among", "all"), one.settings["hosts"], one.ranks, one.path) for one in times)
    assert found == Counter([
        ("all", "a,b,c", 6, "gpu0@0>gpu1@2"),
        *(("pairs", pair, 4, "gpu0@0>gpu1@1") for pair in ("a,b", "a,c", "b,c")),
        ("rails", "a,b,c", 3, "gpu0@0>gpu0@2"),
        ("rails", "a,b,c", 3, "gpu1@0>gpu1@2"),
        ("growing", "a", 2, "gpu0>gpu1"),
        ("growing", "a,b", 4, "gpu0@0>gpu1@1"),
        ("growing", "a,b,c", 6, "gpu0@0>gpu1@2"),
    ])  # fmt: skip
    assert {one.hosts for one in times} == {1, 2, 3}
    named = {(one.parameters.get("between"), one.parameters.get("rail"), one.parameters.get("gpus")) for one in times}
    assert named >= {("a,b", None, None), (None, 1, "gpu1")}


def test_wrong_data_on_one_host_fails_the_size_and_names_the_rank(measure):
    results = measure("nccl_all_reduce", placements="out of place", faults={"STANDIN_NCCL_CORRUPT": "1"})
    bad = [one for one in results if one.outcome == "failed"]
    assert {one.reason for one in bad} == {"wrong result at 300 KiB: 4 bytes on rank 1"}


def test_a_rank_that_dies_is_named_and_not_the_neighbours_whose_sockets_break(measure):
    *_, failed = measure("nccl_all_reduce", sizes="4K", faults={"STANDIN_NCCL_KILL": "50"})
    assert failed.outcome == "failed"
    assert failed.reason.startswith("rank 1 (host ")
    assert "at step 'nccl_all_reduce 4 KiB" in failed.reason


@pytest.mark.parametrize("hosts", [2, 3, 4, 7, 8])
def test_pairs_are_disjoint_in_a_round_and_each_comes_once(hosts):
    rounds = list_rounds("pairs", hosts, 2)
    assert len(rounds) == hosts - 1 + hosts % 2
    for groups in rounds:
        members = [host for group in groups for host in group.hosts]
        assert len(members) == len(set(members))
    pairs = Counter(group.hosts for groups in rounds for group in groups)
    assert pairs == Counter((one, two) for one in range(hosts) for two in range(one + 1, hosts))


def test_groups_grow_by_doubling_up_to_all_and_a_single_gpu_is_no_group():
    def sizes(hosts, gpus):
        return [len(groups[0].hosts) for groups in list_rounds("growing", hosts, gpus)]

    assert sizes(6, 8) == [1, 2, 4, 6]
    assert sizes(4, 1) == [2, 4]
    assert Subgroup((1, 2), (0, 1)).ranks(4) == (4, 5, 8, 9)


def test_a_host_gets_a_rank_for_each_gpu_and_namespaces_share_the_gpus_out(two_gpus):
    benchmark = find("nccl_all_reduce")

    def ranks(**where):
        return job_of(benchmark, two_gpus, given={}, **where).ranks

    assert ranks(hosts=("a", "b", "c")) == 6
    assert ranks(hosts=("a", "b"), hosts_share_gpus=True) == 2
    assert ranks(hosts=("a", "b", "c", "d"), hosts_share_gpus=True) == 4
    four = job_of(benchmark, two_gpus, given={}, hosts=("a", "b", "c", "d"), hosts_share_gpus=True)
    assert [four.find_gpu(rank).id for rank in range(4)] == ["gpu0", "gpu1", "gpu0", "gpu1"]
    with pytest.raises(UsageError, match="a host has 2 GPUs for ranks, but 3 ranks are started on each"):
        ranks(hosts=("a", "b"), ranks_per_host=3)
    with pytest.raises(UsageError, match="ranks_in must be processes over several hosts, got threads"):
        job_of(benchmark, two_gpus, given={"ranks_in": "threads"}, hosts=("a", "b"))
    with pytest.raises(UsageError, match="among=rails requires several hosts"):
        job_of(benchmark, two_gpus, given={"among": "rails"})
