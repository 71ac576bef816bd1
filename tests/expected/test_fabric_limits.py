"""Limits and bands of ranks on hosts whose links are known."""

from __future__ import annotations

import pytest

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.limits.limit import Limit, NoLimit
from railwright.results.records import Fabric, Result
from railwright.topology.expand import expand

MIB = 2**20
LAB = Fabric(name="lab lab", ports_bytes_per_s=50e6, flow_bytes_per_s=12.5e6, narrowest="spine0 of leaf0 to spine0")


def bounds(benchmark, size, quantity="bandwidth_bytes_per_s", fabric=LAB, ranks=2, hosts=2, settings=None, **varied):
    point = Result(
        benchmark=benchmark, quantity=quantity, path="memory0@0>memory0@1", ranks=ranks, hosts=hosts,
        parameters={"size_bytes": size, **varied}, settings=settings or {},
    )  # fmt: skip
    return LimitFinder(expand("laptop", {}), (), DECLARATIONS, fabric=fabric).find(point)


def test_a_plain_socket_uses_one_cable_and_a_library_all_ports():
    limit, band = bounds("tcp_stream", MIB)
    assert (limit.value, limit.kind, band.low) == (12.5e6, "derived", 6.25e6)
    assert LAB.narrowest in limit.because
    limit, band = bounds("mpi_bandwidth", MIB, transport="tcp")
    assert (limit.value, band.low) == (50e6, 6.25e6)
    limit, _ = bounds("mpi_bidirectional", MIB, transport="tcp")
    assert limit.value == 100e6


@pytest.mark.parametrize(
    ("operation", "ranks", "hosts", "algbw"),
    [
        ("all_reduce", 2, 2, 50e6),  # 2(H-1)/H of the size leaves each host
        ("all_gather", 8, 4, 50e6 * 4 / 3),
        ("all_to_all", 8, 2, 25e6),  # each of the four ranks of a host has half of its size for the other
    ],
)
def test_the_traffic_out_of_each_host_bounds_a_collective(operation, ranks, hosts, algbw):
    limit, band = bounds(f"mpi_{operation}", MIB, ranks=ranks, hosts=hosts, rate="algbw", transport="tcp")
    assert limit.value == pytest.approx(algbw)
    assert band.low == pytest.approx(algbw / 4 / 2 * 2 / ranks)


def test_small_messages_and_fast_labs_are_not_bounded_by_links():
    assert isinstance(bounds("mpi_bandwidth", MIB // 2, transport="tcp")[0], NoLimit)
    assert isinstance(bounds("mpi_latency", MIB, "latency_s", transport="tcp")[0], NoLimit)
    fast = Fabric(name="lab lab", ports_bytes_per_s=2.5e9, flow_bytes_per_s=1.25e9, narrowest="a cable")
    limit, band = bounds("tcp_stream", MIB, fabric=fast)
    assert isinstance(limit, Limit)
    assert band is None


def test_unknown_links_and_shared_cores_give_no_limit():
    assert isinstance(bounds("mpi_all_reduce", MIB, fabric=None, rate="algbw")[0], NoLimit)
    limit, _ = bounds("mpi_all_reduce", MIB, ranks=8, settings={"functional": True}, rate="algbw")
    assert "functional" in limit.why


def test_reads_of_the_hosts_own_files_are_compared_with_no_link_between_hosts() -> None:
    for quantity, size in (("bandwidth_bytes_per_s", 64 * MIB), ("operations_per_s", 4096)):
        parameters = {"part": "read", "reader": "direct", "size_bytes": size}
        point = Result(benchmark="deepcam_read", quantity=quantity, path="vda>memory0@0", hosts=2, ranks=2,
                       parameters=parameters)  # fmt: skip
        limit, _ = LimitFinder(expand("laptop", {}), (), DECLARATIONS, fabric=LAB).find(point)
        assert "a link that was idle" not in limit.why
