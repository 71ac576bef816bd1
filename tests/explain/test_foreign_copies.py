"""Copies in tables of other tools: by copy engine and by kernel, from and to host memory."""

from __future__ import annotations

import pytest

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.results.workload import Copy
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

CLUSTER = build_cluster(expand("hgx-h100", {}), 1)


def bounds(test: str, path: str, direction: str = "one"):
    engine = "sm" if test.endswith("_sm") else "ce"
    return expect(Copy(path=path, engine=engine, direction=direction), Machine(cluster=CLUSTER))


def test_a_kernel_that_copies_is_expected_to_reach_less_than_an_engine() -> None:
    _, engine = bounds("host_to_device_memcpy_ce", "memory0>gpu0")
    _, writes = bounds("device_to_host_memcpy_sm", "gpu0>memory0")
    assert writes.low == pytest.approx(0.85 * engine.low)
    assert writes.doubtful_to is None


def test_a_kernel_that_reads_host_memory_is_in_doubt_where_healthy_hosts_were() -> None:
    """Hosts with eight H100 reached 35.0 to 35.4 GB/s in this direction, and 52.8 in the other."""
    _, reads = bounds("host_to_device_memcpy_sm", "memory0>gpu0")
    assert reads.doubtful_to < 35.0e9 < reads.low < 52.8e9


def test_between_gpus_and_both_ways_nothing_changes() -> None:
    assert bounds("device_to_device_memcpy_read_sm", "gpu0>gpu1") == bounds(
        "device_to_device_memcpy_read_ce", "gpu0>gpu1"
    )


def test_both_ways_at_once_have_a_band_where_that_was_measured() -> None:
    _, to_host = bounds("device_to_host_bidirectional_memcpy_ce", "gpu0>memory0", "both")
    _, one_way = bounds("device_to_host_memcpy_ce", "gpu0>memory0")
    assert to_host.doubtful_to < to_host.low < one_way.low
    over_pcie = Machine(cluster=build_cluster(expand("pcie-8gpu", {}), 1))
    pair = expect(Copy(path="gpu0>gpu1", direction="both"), over_pcie)[1]
    assert 0 < pair.doubtful_to < pair.low < expect(Copy(path="gpu0>gpu1"), over_pcie)[1].low


def test_copies_inside_a_gpu_have_half_of_its_memorys_rate_and_no_band() -> None:
    limit, band = bounds("device_local_copy", "gpu6>gpu6")
    assert limit.value == pytest.approx(3.35e12 / 2)
    assert band is None
