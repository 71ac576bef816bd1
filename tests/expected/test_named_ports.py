"""Limits of verbs over named ports: each port by its own path, several as their sum."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.benchmarks.test_rdma_plan import machine
from tests.checks.machines import with_facts

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Limit, NoLimit
from railwright.results.workload import Message
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import InfinibandLink
from railwright.topology.expand import expand
from railwright.units import MIB


def bounds(nics: str, path: str = "gpu0@0>gpu0@1", **more):
    workload = Message(by="verbs", one_sided=True, path=path, nics=nics, size_bytes=8 * MIB, hosts=2, **more)
    return expect(workload, Machine(cluster=build_cluster(machine(), 1)))


def test_a_port_has_its_own_limit_and_several_have_their_sum():
    near, band = bounds("mlx5_0:1")
    assert isinstance(near, Limit)
    assert near == bounds("")[0], "the nearest port is the default"
    both, wide = bounds("mlx5_0:1+mlx5_1:1")
    alone = bounds("mlx5_1:1")[0]
    assert both.value == pytest.approx(near.value + alone.value)
    assert wide.low / band.low == pytest.approx(both.value / near.value)
    assert both.because.startswith("2 ports at once, each: ")
    assert bounds("mlx5_0:1", both_ways=True)[0].value == pytest.approx(2 * near.value)


def test_a_bonded_port_may_reach_the_rate_of_as_many_ports_as_it_has_queue_pairs():
    bonded = with_facts(machine(), "nic", 0, bond="bond0", bond_mode="802.3ad", bond_ports="eth0 eth1")

    def bounds_of(host, pairs, nics="mlx5_0:1"):
        more = {"path": "memory0@0>memory0@1", "size_bytes": 8 * MIB, "hosts": 2, "queue_pairs": pairs}
        return expect(Message(by="verbs", one_sided=True, nics=nics, **more), Machine(cluster=build_cluster(host, 1)))

    (plain, band), (wide, wider) = bounds_of(machine(), 4), bounds_of(bonded, 4)
    assert bounds_of(bonded, 1) == (plain, band)
    assert (wide.value, wider.low, wider.high) == pytest.approx((2 * plain.value, band.low, 2 * band.high))
    assert wide.because.endswith("on 2 ports of a bond")
    other = bounds_of(bonded, 4, "mlx5_1:1")[0].value
    assert bounds_of(bonded, 4, "mlx5_0:1+mlx5_1:1")[0].value == pytest.approx(wide.value + other)


def test_a_far_port_is_judged_by_its_own_way():
    far, _ = bounds("mlx5_7:1")
    assert isinstance(far, Limit)
    assert far.value <= bounds("mlx5_0:1")[0].value


def test_unknown_ports_and_a_nic_that_sends_to_its_own_host_have_no_limit():
    assert bounds("other:1")[0] == NoLimit(
        quantity="bandwidth_bytes_per_s", why="the topology has no RDMA port other:1"
    )
    assert "to its own host" in bounds("mlx5_0:1", path="memory0>memory0")[0].why


def test_headers_that_only_some_runs_have_reduce_the_limit():
    shape = expand("hgx-h100", {})
    cluster = build_cluster(shape, 2)
    plain, routed, datagram = (
        expect(Message(by="verbs", size_bytes=8 * MIB, **more), Machine(cluster=cluster))[0].value
        for more in ({}, {"has_grh": True}, {"connection": "UD"})
    )
    assert all(isinstance(link.protocol, InfinibandLink) for _, link in shape.ports_out)
    assert routed / plain == pytest.approx(4122 / 4162)
    assert datagram / plain == pytest.approx(4122 / 4130)


def test_the_mtu_of_an_infiniband_port_is_that_of_the_connection():
    shape = expand("hgx-h100", {})
    links = tuple(
        replace(link, protocol=InfinibandLink(line_rate_bits_per_s=400e9))
        if any(link is port for _, port in shape.ports_out)
        else link
        for link in shape.links
    )
    cluster = build_cluster(replace(shape, links=links), 2)
    workload = Message(by="verbs", size_bytes=8 * MIB)
    assert expect(workload, Machine(cluster=cluster))[0].because.startswith("PCIe")
    known = expect(replace(workload, mtu_bytes=4096), Machine(cluster=cluster))[0]
    assert known.value == pytest.approx(400e9 / 8 * 4096 / 4122, rel=1e-3)
