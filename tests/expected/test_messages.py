"""Bounds of messages: their bytes over a rate, and a start that every message pays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.expected.message_time import find_start
from railwright.explain.table import explain
from railwright.limits.limit import Limit, NoLimit
from railwright.results.readers import registry
from railwright.results.records import Result
from railwright.results.workload import Collective, Message, Workload, describe
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

EXTERNAL = Path(__file__).parent.parent.parent / "testdata" / "external"
KIB, MIB = 2**10, 2**20
TWO = Machine(cluster=build_cluster(expand("hgx-h100", {}), 2))
ONE = Machine(cluster=build_cluster(expand("hgx-h100", {}), 1))
KINDS = (
    Message(by="verbs"),
    Message(),
    Message(from_gpu=True, to_gpu=True),
    Message(one_at_a_time=True),
    Message(one_sided=True, batch=64),
    Message(both_ways=True),
)


def expect_at_size(workload: Workload, size: int, machine: Machine = TWO):
    return expect(replace(workload, size_bytes=size), machine)


@pytest.mark.parametrize("workload", KINDS, ids=str)
def test_the_start_lowers_only_the_band_and_never_the_limit(workload) -> None:
    found = [expect_at_size(workload, 2**power) for power in range(26)]
    assert len({limit.value for limit, _ in found}) == 1
    lows = [band.low for _, band in found]
    assert lows == sorted(lows)
    assert lows[0] < found[0][0].value / 1000
    assert all(band.low <= limit.value for limit, band in found)
    assert all(band.doubtful_to is not None and band.doubtful_to < band.low for _, band in found)


def test_a_batch_shares_the_start_of_its_request() -> None:
    single, batch_of_64 = (expect_at_size(Message(one_sided=True, batch=batch), 64 * KIB)[1] for batch in (1, 64))
    assert batch_of_64.low > 2 * single.low
    start = find_start(Message(one_sided=True), in_one_host=False, over_efa=False)
    assert single.low < 64 * KIB / start.expected_s


def test_a_times_limit_is_its_bytes_and_its_band_adds_the_start() -> None:
    _, rate = expect_at_size(Message(by="verbs"), MIB)
    limit, band = expect_at_size(Message(by="verbs", quantity="latency_s"), MIB)
    start = find_start(Message(by="verbs", quantity="latency_s"), in_one_host=False, over_efa=False)
    assert band.high == pytest.approx(start.expected_s + MIB / rate.low)
    assert limit.value == band.low < band.high < band.doubtful_to
    nothing, _ = expect_at_size(Message(quantity="latency_s"), 0)
    assert isinstance(nothing, NoLimit)


def test_a_fault_is_a_changed_machine_with_the_same_workload() -> None:
    capped = replace(TWO.supposed, port_cap_bytes_per_s=10e9)
    slower = dataclasses.replace(TWO, case=capped)
    healthy, _ = expect_at_size(Message(), 4 * MIB)
    limit, band = expect_at_size(Message(), 4 * MIB, slower)
    assert isinstance(limit, Limit)
    assert limit.value == 4 * 10e9 < healthy.value, "of each of the four ports that are near"
    assert band.low <= 10e9


def test_a_changed_machine_finds_its_collectives_anew() -> None:
    """A machine caches the results of its linear programs; another number of hosts is another machine."""
    reduce = Collective(operation="all_reduce", size_bytes=2**30, ranks=16)
    limits = {expect(reduce, dataclasses.replace(TWO, cluster=build_cluster(TWO.host, hosts)))[0].value
              for hosts in (1, 2, 4)}  # fmt: skip
    first = expect(reduce, TWO)[0].value
    assert first in limits
    assert len(limits) == 3
    assert expect(reduce, ONE)[0].value in limits


def test_a_record_cannot_set_the_readers_fields_or_wrong_types() -> None:
    record = Result(
        benchmark="b", quantity="bandwidth_bytes_per_s", path="memory0>memory0",
        parameters={"by": "verbs", "one_sided": True, "threads": "many", "size_bytes": 8, "pairs": 3},
        settings={"size_bytes": 9, "path": "gpu0>gpu1"},
    )  # fmt: skip
    described = describe(Message(), record)
    assert (described.by, described.one_sided, described.threads) == ("library", False, 1)
    assert (described.size_bytes, described.pairs, described.path) == (8, 3, "memory0>memory0")


def test_a_table_of_latencies_has_its_bytes_over_the_rate_as_floor_and_names_no_fault() -> None:
    text = (EXTERNAL / "perftest/ib_write_lat-connectx3.txt").read_text()
    (file,) = registry.read(text)
    found = explain(file, Machine(cluster=build_cluster(expand("gh200", {"nic-rate": "56Gb/s"}), 2)))
    assert {row.limit.quantity for row in found.rows if isinstance(row.limit, Limit)} == {"latency_s"}
    assert {row.verdict.state for row in found.rows} <= {"ok", "unknown"}
    assert found.hypotheses == ()
