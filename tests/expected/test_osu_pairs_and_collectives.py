"""Bounds of OSU's programs for several pairs, and of the MPI collectives that NCCL lacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.limits.limit import Expected, Limit, NoLimit
from railwright.results.readers import registry
from railwright.results.workload import Collective, Message
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

MIB = 2**20
TWO, FOUR = (Machine(cluster=build_cluster(expand("hgx-h100", {}), hosts)) for hosts in (2, 4))
LATENCY = Message(quantity="latency_s", size_bytes=MIB)
PRINTED = {
    "gather": ("Gather Latency Test", "gather"),
    "scatter": ("Scatter Latency Test", "scatter"),
    "allgatherv": ("Allgatherv Latency Test", "all_gather"),
}


def bounds_of(workload, machine=TWO) -> tuple[Limit, Expected]:
    limit, band = expect(workload, machine)
    assert isinstance(limit, Limit)
    assert band is not None
    return limit, band


def test_pairs_of_osu_multi_lat_share_the_ports_and_half_of_them_may_be_on_their_way_back() -> None:
    alone, alone_band = bounds_of(replace(LATENCY, pairs=1))
    two, _ = bounds_of(replace(LATENCY, pairs=2))
    eight, eight_band = bounds_of(replace(LATENCY, pairs=8))
    ports = 8 * MIB / 2 / eight.value
    assert two.value <= alone.value, "one message in either direction needs no more than one way alone"
    assert ports >= MIB / alone.value, "several pairs have at least the ports of one"
    assert eight_band.low == eight.value < eight_band.high < eight_band.doubtful_to
    over_one_port = 8 * alone_band.high
    assert eight_band.doubtful_to > over_one_port, "a library may send all pairs over one port"
    one_port = Machine(cluster=build_cluster(expand("gh200", {"nic-rate": "56Gb/s"}), 2))
    waits = [bounds_of(replace(LATENCY, pairs=pairs), one_port)[1].high for pairs in (1, 8)]
    assert 7 * waits[0] < waits[1] < 8 * waits[0], "and a single port has to"


@pytest.mark.parametrize("operation", ["gather", "scatter"])
def test_the_root_must_carry_what_the_other_hosts_send(operation) -> None:
    workload = Collective(operation=operation, by="mpi", quantity="latency_s", size_bytes=64 * MIB, ranks=4)
    limit, band = bounds_of(workload, FOUR)
    whole, _ = bounds_of(replace(workload, operation="broadcast", ranks=8), FOUR)
    assert limit.value == pytest.approx(whole.value * 3 / 4), "a broadcast sends all of it"
    assert band.low == limit.value < band.high < band.doubtful_to


@pytest.mark.parametrize("operation", ["gather", "all_gather", "reduce_scatter", "all_to_all"])
def test_several_ranks_a_host_lengthen_the_band_and_a_host_still_sends_once(operation) -> None:
    few = Collective(operation=operation, by="mpi", quantity="latency_s", size_bytes=64 * MIB, ranks=4)
    (once, once_band), (often, often_band) = (bounds_of(replace(few, ranks=ranks), FOUR) for ranks in (4, 64))
    factor = 16 if operation == "all_to_all" else 1
    assert often.value == pytest.approx(factor * once.value)
    assert often_band.high / often.value > 4 * once_band.high / once.value


@pytest.mark.parametrize("name", list(PRINTED))
def test_osus_collectives_are_read_and_compared(name) -> None:
    title, operation = PRINTED[name]
    rows = "\n".join(f"{2**power:<20} {time:>10.2f}" for power, time in ((20, 900.0), (22, 3600.0), (24, 0.5)))
    text = f"$ mpirun -np 8 -N 4 osu_{name}\n# OSU MPI {title} v7.3\n# Size          Avg Latency(us)\n{rows}\n"
    (file,) = registry.read(text)
    found = explain(file, TWO)
    assert len(found.rows) == 3
    assert all(isinstance(row.limit, Limit) for row in found.rows), operation
    assert found.rows[-1].verdict.state == "suspicious", "16 MiB in half a microsecond is beyond every limit"
    assert {row.verdict.state for row in found.rows[:-1]} <= {"ok", "unknown", "slow"}


def test_a_stream_without_a_size_is_never_slow() -> None:
    limit, band = bounds_of(Message())
    assert limit.value > 0
    assert band.doubtful_to == 0
    limit, _ = expect(Message(quantity="latency_s"), TWO)
    assert isinstance(limit, NoLimit), "nor has a message of no bytes a minimum time"
