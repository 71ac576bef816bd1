"""Messages of a library between hosts: the ports that they use, and the verdicts on their tables."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.expected.rails import ports_expected
from railwright.explain.table import explain
from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.results.readers import registry
from railwright.results.workload import Message
from railwright.topology.cluster import build_cluster, ports
from railwright.topology.devices import Device, InfinibandLink, InternalLink, Link, PcieLink, Topology
from railwright.topology.expand import expand

MIB = 2**20
EIGHT = Machine(cluster=build_cluster(expand("hgx-h100", {}), 2))
PORT = link_limit(ports(EIGHT.host)[0][1]).value


def expect_bounds(machine: Machine = EIGHT, **fields: object):
    return expect(Message(size_bytes=4 * MIB, **fields), machine)


@pytest.mark.parametrize(("pairs", "expected"), [(2, 4), (4, 4), (6, 6), (8, 8), (64, 8)])
def test_pairs_use_one_port_each_up_to_the_hosts_ports_and_at_least_the_near_ones(pairs, expected) -> None:
    limit, band = expect_bounds(pairs=pairs)
    assert limit.value == pytest.approx(expected * PORT)
    assert f"{expected} ports that {pairs} pairs can use at once, each: 400 Gb/s port of nic0" in limit.because
    assert band.low == pytest.approx(min(pairs, 8) * 0.95 * PORT)
    assert band.doubtful_to == pytest.approx(0.85 * 0.95 * PORT), "all of them may have taken one port"


def test_one_pair_of_a_library_may_stripe_over_near_ports_and_is_expected_at_one() -> None:
    limit, band = expect_bounds()
    assert limit.value == pytest.approx(4 * PORT)
    assert "4 ports that a library can use at once" in limit.because
    assert band.low == pytest.approx(0.95 * PORT)
    assert expect_bounds(by="verbs")[0].value == PORT, "a tool of verbs opens one port"


def test_gpus_use_the_next_port_as_well_and_no_more_than_their_own_slot() -> None:
    limit, _ = expect_bounds(from_gpu=True, to_gpu=True)
    slot = next(link for link in EIGHT.host.links if link.b == "gpu0" and isinstance(link.protocol, PcieLink))
    assert PORT < limit.value == link_limit(slot).value < 2 * PORT
    assert expect_bounds(from_gpu=True, to_gpu=True, pairs=8)[0].value == pytest.approx(8 * PORT), (
        "each pair has its own GPU"
    )


@pytest.mark.parametrize(
    ("variables", "pairs", "expected"),
    [
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, 1, 1),
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, 8, 1),
        ({"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1"}, 1, 3),
        ({"UCX_NET_DEVICES": "all"}, 1, 4),
        ({"UCX_MAX_RNDV_RAILS": "1"}, 1, 1),
        ({"UCX_MAX_RNDV_RAILS": "1"}, 3, 3),
        ({"UCX_MAX_RNDV_RAILS": "6"}, 1, 6),
        ({"UCX_MAX_RNDV_RAILS": "2", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1"}, 4, 2),
        ({"UCX_MAX_RNDV_RAILS": "many", "UCX_NET_DEVICES": ","}, 1, 1),
    ],
)
def test_the_jobs_ucx_settings_count(variables, pairs, expected) -> None:
    configured = dataclasses.replace(EIGHT, environment=variables)
    assert expect_bounds(configured, pairs=pairs)[0].value == pytest.approx(expected * PORT)


def test_a_single_port_is_the_limit_of_any_number_of_pairs() -> None:
    single = Machine(cluster=build_cluster(expand("hgx-h100", {"nics": "1"}), 2))
    assert expect_bounds(single)[0] == expect_bounds(single, pairs=8)[0] == expect_bounds(single, by="verbs")[0]
    assert expect_bounds(single, pairs=8)[1].low == expect_bounds(single)[1].low


def two_ports_of_a_card() -> Topology:
    """Return a ConnectX-6 with two ports of HDR in a slot of PCIe 4.0, as in openucx/ucx issue 8851."""
    kinds = {"cpu0": "cpu", "memory0": "memory", "card0": "card", "nic0": "nic", "nic1": "nic", "fabric0": "fabric"}
    slot = PcieLink(gt_per_s=16.0, width=16, max_payload_bytes=256)
    port = InfinibandLink(line_rate_bits_per_s=200e9, mtu_bytes=4096)
    return Topology(
        name="two ports",
        source="shape",
        devices=tuple(Device(id=name, kind=kind) for name, kind in kinds.items()),  # type: ignore[arg-type]
        links=(
            Link(a="cpu0", b="memory0", protocol=InternalLink(name="")),
            Link(a="cpu0", b="card0", protocol=slot),
            *(Link(a="card0", b=nic, protocol=InternalLink(name="card")) for nic in ("nic0", "nic1")),
            *(Link(a=nic, b="fabric0", protocol=port) for nic in ("nic0", "nic1")),
        ),
    )


@pytest.mark.parametrize("pairs", [1, 2])
def test_two_ports_of_a_card_carry_no_more_than_its_slot(pairs) -> None:
    """A pair reached 21.3 GB/s over both ports there; each port carries 24.8 and the slot 28.8."""
    limit, _ = expect_bounds(Machine(cluster=build_cluster(two_ports_of_a_card(), 2)), pairs=pairs)
    assert limit.value == pytest.approx(28.8e9, rel=0.01)


def test_both_ways_and_a_fault_of_the_ports_count_for_all_of_them() -> None:
    assert expect_bounds(both_ways=True, pairs=8)[0].value == pytest.approx(16 * PORT)
    capped = dataclasses.replace(EIGHT, case=replace(EIGHT.supposed, port_cap_bytes_per_s=10e9))
    assert expect_bounds(capped, pairs=8)[0].value == pytest.approx(8 * 10e9)


@pytest.mark.parametrize(
    ("rate", "state"),
    [(38_000, "slow"), (46_000, "unknown"), (47_900, "ok"), (96_000, "ok"), (190_000, "ok"), (210_000, "suspicious")],
)
def test_a_table_of_one_pair_over_several_ports_is_not_suspicious(rate, state) -> None:
    (file,) = registry.read(f"# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n4194304 {rate}\n")
    found = explain(file, EIGHT)
    assert [row.verdict.state for row in found.rows] == [state]
    assert state in ("slow", "unknown") or all(hypothesis.fault == "healthy" for hypothesis in found.hypotheses)


@pytest.mark.parametrize(
    ("rate", "state"), [(30_000, "slow"), (232_000, "unknown"), (385_000, "ok"), (410_000, "suspicious")]
)
def test_a_table_of_many_pairs_is_compared_with_all_ports(rate, state) -> None:
    """aws/aws-parallelcluster pull request 7038: healthy hosts of eight ports may reach 0.58 of them."""
    text = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v7.3\n# [ pairs: 8 ] [ window size: 64 ]\n"
        f"# Size                  MB/s        Messages/s\n4194304 {rate} {rate * 1e6 / 4194304:.2f}\n"
    )
    (file,) = registry.read(text)
    states = [row.verdict.state for row in explain(file, EIGHT).rows if row.quantity == "bandwidth_bytes_per_s"]
    assert states == [state]


@pytest.mark.parametrize(
    ("fields", "variables", "expected"),
    [
        ({}, {}, (1, 2)),  # rendezvous: MAX_RNDV_RAILS 2
        ({"size_bytes": 4096}, {}, (1, 1)),  # eager: MAX_EAGER_RAILS 1
        ({"size_bytes": 4096}, {"UCX_MAX_EAGER_RAILS": "2"}, (1, 2)),
        ({"rails": 1}, {}, (1, 1)),  # RMA: MAX_RMA_RAILS 1
        ({"rails": 1}, {"UCX_MAX_RMA_RAILS": "3"}, (1, 3)),
        ({"one_sided": True}, {}, (1, 4)),  # NIXL sets 2 or 4
        ({"one_sided": True}, {"UCX_MAX_RMA_RAILS": "2"}, (1, 2)),
        ({"one_sided": True}, {"UCX_NET_DEVICES": "mlx5_0:1"}, (1, 1)),
        ({"one_sided": True, "varied": {"mode": "MG"}}, {}, (8, 8)),
        ({"pairs": 3}, {}, (3, 4)),
    ],
)
def test_the_band_runs_from_a_port_a_pair_to_the_librarys_rails(fields, variables, expected) -> None:
    configured = dataclasses.replace(EIGHT, environment=variables)
    workload = Message(**({"size_bytes": 4 * MIB} | fields))
    way = configured.between("memory0:memory0@1")
    assert ports_expected(workload, configured, way) == expected


def test_two_rails_of_nixl_are_inside_the_band() -> None:
    """LMCache pull request 4161: 24.4 GB/s over two ports of 100 Gb/s, 12.2 over one."""
    two = Machine(cluster=build_cluster(expand("pcie-8gpu", {"nics": "2", "nic-rate": "100G"}), 2))
    _, band = expect(Message(size_bytes=64 * MIB, one_sided=True), two)
    assert band.low <= 12.2e9
    assert band.high >= 24.3e9


def test_a_nic_that_shares_its_port_may_have_all_of_it_alone() -> None:
    """Half of a DGX Spark's port of 200 Gb/s reaches 111.6 Gb/s: its slot is PCIe 5.0 x4."""
    machine = Machine(cluster=build_cluster(expand("dgx-spark", {}), 2))
    limit, band = expect(Message(by="verbs", size_bytes=2**20), machine)
    assert isinstance(limit, Limit)
    assert band is not None
    assert band.low < 100e9 / 8 < 111.6e9 / 8 < limit.value < 126e9 / 8
    both, _ = expect(Message(size_bytes=2**20), machine)
    assert isinstance(both, Limit)
    assert both.value == pytest.approx(200e9 / 8 * 0.98, rel=0.01)
