"""`limits` and `whatif` print the bounds by which a measurement is judged."""

from __future__ import annotations

import itertools

import pytest

from railwright.expected.collective_rows import collective_row
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.expected.path_rows import list_network_rows
from railwright.results.workload import Collective, Message
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

SHAPES = ("hgx-h100", "aws-p5", "gh200", "pcie-8gpu")
SIZES = (1024, 2**20, 2**30)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_collective_has_the_limit_and_the_band_that_limits_prints(shape) -> None:
    cluster = build_cluster(expand(shape, {}), 2)
    for operation, size in itertools.product(("all_reduce", "all_gather", "all_to_all"), SIZES):
        printed = collective_row(cluster, operation, "auto", size).algbw_bytes_per_s
        workload = Collective(operation=operation, size_bytes=size, ranks=cluster.ranks)
        limit, band = expect(workload, Machine(cluster=cluster))
        assert limit.value == pytest.approx(printed.limit), (operation, size)
        assert (band is None) == (printed.expected_low is None), (operation, size)
        if band is not None:
            ends = band.low, band.high
            assert ends == pytest.approx((printed.expected_low, printed.expected_high)), (operation, size)


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_have_the_limit_of_the_path_that_limits_prints(shape) -> None:
    cluster = build_cluster(expand(shape, {}), 2)
    for first, last in itertools.product((False, True), repeat=2):
        path = f"{'gpu0' if first else 'memory0'}:{'gpu0' if last else 'memory0'}@1"
        for size in SIZES:
            workload = Message(by="verbs", from_gpu=first, to_gpu=last, size_bytes=size)
            limit, _ = expect(workload, Machine(cluster=cluster))
            assert limit == list_network_rows(Machine(cluster=cluster), path)[0].limit, (path, size)
