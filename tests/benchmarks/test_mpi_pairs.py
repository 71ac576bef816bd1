"""Several pairs of ranks at once, in real runs: senders and receivers, the combined rate, and its limit."""

from __future__ import annotations

import os

import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.expected.finders import Finder

from railwright.benchmarks.mpi.pairs import BENCHMARK, _loop
from railwright.benchmarks.registry import ON_REQUEST, find
from railwright.errors import UsageError
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

KIB, MIB = 1 << 10, 1 << 20
LAPTOP = expand("laptop", {})


def test_it_runs_on_request_alone():
    assert BENCHMARK in ON_REQUEST
    assert find("mpi_pairs_bandwidth") is BENCHMARK


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_all_pairs_are_checked_over_both_transports(railwright, mpiruns, mpi):
    done = railwright(
        *("run", "mpi_pairs_bandwidth", "--alone", "-o", "pairs=3", "-o", "sizes=8,64K", "-o", "pages=small"),
        *("--force", "--mpirun", mpiruns[mpi]),
    )
    assert done.status == 3, done.err
    found = railwright.results()
    assert [(one.parameters["transport"], one.parameters["size_bytes"]) for one in found] == [
        (transport, size) for transport in ("shm", "tcp") for size in (8, 64 * KIB)
    ]
    for one in found:
        assert (one.outcome, one.ranks, one.parameters["pairs"]) == ("measured", 6, 3), one.reason
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (6 * one.parameters["size_bytes"], 0)
        assert one.evidence[0].value == one.parameters["transport"]
        assert one.settings["functional"] is (len(os.sched_getaffinity(0)) < 6)
        assert len(one.samples) == one.settings["windows"]
        assert min(one.samples) > 0
    railwright.expect_nothing_left()


class Between:
    """A rank's connection to its pair, with windows of known times."""

    def __init__(self, *seconds):
        self.seconds, self.asked = seconds, []

    def window(self, _out, _into, size, *, window, warm, iterations):
        self.asked.append((size, window, warm, iterations))
        return list(self.seconds) if iterations else []


class Rank:
    """The first of four ranks; the second has other times, and the receivers have none."""

    def __init__(self, others):
        self.job, self.comm, self.others, self.barriers = job_of(BENCHMARK, LAPTOP), self, others, 0

    def barrier(self):
        self.barriers += 1

    def gather(self, seconds):
        return [seconds, *self.others]


def test_the_rate_is_of_the_bytes_of_all_pairs_by_the_mean_of_their_times():
    rank, between = Rank([[3e-3, 2e-3], [0.0, 0.0], [0.0, 0.0]]), Between(1e-3, 2e-3)
    timed = _loop(rank, between, None, None, MIB)
    assert timed.samples == pytest.approx([2 * 64 * MIB / 2e-3, 2 * 64 * MIB / 2e-3])
    assert timed.sent_bytes == 64 * MIB * 22, "of one rank"
    assert (between.asked, rank.barriers) == ([(MIB, 64, 2, 0), (MIB, 64, 0, 20)], 1)
    assert timed.settings["functional"] is True, "four ranks on two cores"


def test_the_plan_is_of_all_pairs_and_the_path_of_the_first():
    alone, several = (
        BENCHMARK.plan(job_of(BENCHMARK, LAPTOP, tuple(range(8)), {"pairs": pairs, "sizes": "1M", "pages": "small"}))
        for pairs in ("1", "4")
    )
    assert (several.memory_bytes, several.moved_bytes) == (16 * MIB, 4 * alone.moved_bytes)
    assert alone.moved_bytes == 22 * 64 * MIB
    assert several.path == "memory0>memory0"


def test_senders_are_on_the_first_hosts():
    (job,) = jobs_of(BENCHMARK, LAPTOP, given={"pairs": "4"}, hosts=("a", "b"), ranks_per_host=4)
    assert (job.ranks, BENCHMARK.plan(job).path) == (8, "memory0@0>memory0@1")


@pytest.mark.parametrize("text", ["0", "257", "-1", "two", ""])
def test_an_invalid_number_of_pairs_is_refused(text):
    with pytest.raises(UsageError, match="mpi_pairs_bandwidth pairs: must be a whole number from 1 to 256"):
        BENCHMARK.parse({"pairs": text})


@pytest.mark.parametrize(
    ("transport", "ceiling", "expected"), [("shm", "memory_copy", 0.5), ("tcp", "tcp_stream", 0.25)]
)
def test_as_many_ceilings_as_pairs_are_the_limit_and_one_pair_is_expected(transport, ceiling, expected):
    simple = Result(benchmark=ceiling, quantity="bandwidth_bytes_per_s", path="memory0>memory0",
                    parameters={"size_bytes": MIB, "threads": 1}, summary=summarise([4e9]),
                    verification=Verification(method="x", bytes_checked=1, bytes_wrong=0))  # fmt: skip
    point = {"size_bytes": MIB, "transport": transport, "pairs": 3}
    limit, band = Finder(LAPTOP, [simple]).find(
        "mpi_pairs_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", point
    )
    assert (limit.value, band.low) == (12e9, expected * 4e9)
