"""Hosts that were measured separately: their order, and the slow ones."""

from __future__ import annotations

import random

from tests.expected.finders import Finder

from railwright.diagnosis.peers.hosts import rankings, slower_hosts
from railwright.limits.limit import Limit
from railwright.report.text.host_ranking import lines
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.sources.load import load

CHECKED = Verification(method="HPL scaled residual", bytes_checked=8, bytes_wrong=0)


def solved(host, value, *, launch=0, share=1.0, outcome="measured", **parameters):
    samples = () if outcome == "failed" else (value,)
    return Result(
        benchmark="hpl", quantity="flop_per_s", path="memory0@0>memory0@0", launch=launch, outcome=outcome,
        parameters={"n": 4000, "threads": 2, "host": host} | parameters, settings={"cpu_share": share},
        samples=samples, summary=summarise(samples) if samples else None, verification=CHECKED,
    )  # fmt: skip


def slow(results):
    return {str(one.where[0]): one.certainty for one in slower_hosts(results)}


def test_the_fastest_host_is_first_and_what_gave_nothing_last():
    found = [solved("a", 90e9), solved("b", 0, outcome="failed"), solved("c", 100e9), solved("c", 102e9, launch=1)]
    (ranking,) = rankings(found)
    assert [one.name for one in ranking.hosts] == ["c", "a", "b"]
    assert lines(found) == [
        "hpl n 4000, threads 2", "    1  c  101 GFLOP/s (1.12)", "    2  a  90.0 GFLOP/s (0.89)", "    3  b  no result",
    ]  # fmt: skip


def test_work_of_another_size_and_a_single_host_have_no_order():
    assert rankings([solved("a", 1e9), solved("b", 2e9, n=8000)]) == ()
    assert rankings([solved("", 1e9), solved("", 2e9)]) == ()
    assert lines([]) == []


def test_a_host_that_is_slower_than_the_others_is_named():
    values = {"a": 100e9, "b": 101e9, "c": 80e9, "d": 99e9}
    once = [solved(host, value) for host, value in values.items()]
    assert slow(once) == {"host c": "possible"}
    thrice = [solved(host, value, launch=launch) for launch in range(3) for host, value in values.items()]
    assert slow(thrice) == {"host c": "likely"}
    (finding,) = slower_hosts(thrice)
    assert finding.says == "c is 20% slower than the other hosts in hpl: 80.0 GFLOP/s instead of 100 GFLOP/s"


def test_a_healthy_host_is_not_called_slow():
    values = {"a": 100e9, "b": 101e9, "c": 80e9}
    one_good = [solved(host, value, launch=launch) for launch in range(2) for host, value in values.items()]
    assert slow([*one_good, solved("c", 99e9, launch=2)]) == {}
    shared = [solved(host, value, share=0.6 if host == "c" else 1.0) for host, value in values.items()]
    assert slow(shared) == {}
    assert slow([solved("a", 100e9), solved("b", 50e9)]) == {}, "of two hosts nobody knows which is healthy"
    draw = random.Random(4)
    for _ in range(100):
        assert slow([solved(str(host), draw.uniform(98e9, 102e9)) for host in range(draw.randint(3, 40))]) == {}


def test_dgemm_of_the_same_host_is_the_limit():
    topology = load("hgx-h100")
    products = [solved(host, value, part="dgemm") for host, value in (("a", 120e9), ("b", 60e9))]
    path = "memory0@0>memory0@0"
    where = {"n": 4000, "threads": 2, "host": "b"}
    limit, band = Finder(topology, products).find("hpl", "flop_per_s", path, where)
    assert isinstance(limit, Limit)
    assert (limit.value, limit.kind, band) == (60e9, "measured_ceiling", None)
    shared, _ = Finder(topology, products).find("hpl", "flop_per_s", path, where, {"cpu_share": 0.5})
    assert "50 % of the time of its cores" in shared.because
    for settings, parameters in (
        ({"functional": True}, where),
        ({}, where | {"threads": 4}),
        ({}, where | {"host": "c"}),
    ):
        found, _ = Finder(topology, products).find("hpl", "flop_per_s", path, parameters, settings)
        assert not isinstance(found, Limit), parameters
