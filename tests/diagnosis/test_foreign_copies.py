"""Copies in tables of other tools: by copy engine and by a kernel, from host memory and to it."""

from __future__ import annotations

import pytest

from railwright.diagnosis.foreign import BOTH_WAYS, copy_bounds
from railwright.results.records import Result
from railwright.topology.cluster import cluster_of
from railwright.topology.expand import expand

CLUSTER = cluster_of(expand("hgx-h100", {}), 1)


def bounds(test: str, path: str, arrow: str = "->"):
    point = Result(
        benchmark="nvbandwidth", quantity="bandwidth_bytes_per_s", path=path, parameters={"test": test},
        settings={"arrow": arrow},
    )  # fmt: skip
    return copy_bounds(point, CLUSTER)


def test_a_kernel_that_copies_is_expected_to_reach_less_than_an_engine() -> None:
    _, engine = bounds("host_to_device_memcpy_ce", "memory0>gpu0")
    _, writes = bounds("device_to_host_memcpy_sm", "gpu0>memory0")
    assert writes.low == pytest.approx(0.85 * engine.low)
    assert writes.doubtful_to is None


def test_a_kernel_that_reads_host_memory_is_in_doubt_where_healthy_hosts_were() -> None:
    """Hosts of eight H100 had 35.0 to 35.4 GB/s that way, and 52.8 the other."""
    _, reads = bounds("host_to_device_memcpy_sm", "memory0>gpu0")
    assert reads.doubtful_to < 35.0e9 < reads.low < 52.8e9


def test_between_gpus_and_both_ways_nothing_changes() -> None:
    assert bounds("device_to_device_memcpy_read_sm", "gpu0>gpu1") == bounds(
        "device_to_device_memcpy_read_ce", "gpu0>gpu1"
    )
    assert bounds("host_to_device_bidirectional_memcpy_sm", "memory0>gpu0", BOTH_WAYS)[1] is None


def test_copies_inside_a_gpu_have_half_of_its_memorys_rate_and_no_band() -> None:
    limit, band = bounds("device_local_copy", "gpu6>gpu6")
    assert limit.value == pytest.approx(3.35e12 / 2)
    assert band is None
