"""The number of systems on which the bands of collectives rest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected import evidence
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.traffic import ALGORITHMS
from railwright.results.workload import Collective
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

ALL_REDUCE = Collective(operation="all_reduce", size_bytes=2**30, rate="busbw", ranks=None)


@pytest.mark.parametrize(
    ("name", "changes", "hosts", "fabric"),
    [
        ("hgx-h100", {}, 1, "NVSwitch"),
        ("dgx-1-v100", {}, 1, "NVLink between GPUs"),
        ("mi300x", {}, 1, "Infinity Fabric"),
        ("pcie-8gpu", {}, 1, "PCIe"),
        ("hgx-h100", {}, 2, "InfiniBand"),
        ("hgx-h100", {"nic-protocol": "ethernet"}, 2, "RoCE"),
        ("aws-p5", {}, 2, "EFA"),
        ("gcp-a3-mega", {}, 2, "TCP that bypasses the kernel"),
        ("gb200", {}, 2, "NVLink of several hosts"),
    ],
)
def test_each_kind_of_fabric_names_its_systems(name, changes, hosts, fabric) -> None:
    cluster = build_cluster(expand(name, changes), hosts)
    assert evidence.find_fabric(cluster) == fabric
    _, band = expect(ALL_REDUCE, Machine(cluster=cluster))
    assert band.systems == len(evidence.SYSTEMS[fabric]["all_reduce"]) > 0
    assert f"rests on {band.systems} independent system" in band.because


def test_a_band_without_a_system_says_so_and_only_half_of_it_is_slow() -> None:
    """Infinity Fabric has published all_reduce, and no published send_recv."""
    machine = Machine(cluster=build_cluster(expand("mi300x", {}), 1))
    limit, band = expect(replace(ALL_REDUCE, operation="send_recv"), machine)
    assert band is not None
    assert band.systems == 0
    assert band.because.endswith("rests on no published send_recv")
    for share, state in ((0.51, "unknown"), (0.49, "slow")):
        assert judge("ok", "", share * band.low, limit, band, None, must_check=False).state == state


def test_a_collective_by_ring_also_rests_on_other_systems_with_that_ring() -> None:
    for name, changes, collective, own in (
        ("hgx-h100", {}, "broadcast", 0), ("hgx-h100", {"nic-protocol": "ethernet"}, "reduce_scatter", 1),
    ):  # fmt: skip
        cluster = build_cluster(expand(name, changes), 2)
        rings = evidence.list_rings(cluster, collective)
        assert len(evidence.list_systems(cluster, collective)) == own
        assert rings
        _, band = expect(replace(ALL_REDUCE, operation=collective), Machine(cluster=cluster))
        assert band is not None
        assert band.systems == own + len(rings)
        words = f"{len(rings)} with the same ring" if own else f"rests on {len(rings)} systems with the same ring"
        assert words in band.because
    assert not evidence.list_rings(cluster, "all_to_all")


def test_every_collective_with_systems_is_one_that_has_bands() -> None:
    assert {name for found in evidence.SYSTEMS.values() for name in found} <= set(ALGORITHMS)


@pytest.mark.parametrize(("hosts", "rate", "state"), [(2, 17e9, "unknown"), (2, 15e9, "slow"), (16, 14.6e9, "unknown")])
def test_few_channels_to_a_peer_of_another_host_are_no_fault(hosts, rate, state) -> None:
    """Sixteen hosts of 8 B200 reach 14.6 GB/s, because NCCL gives a peer one channel with as many ranks."""
    machine = Machine(cluster=build_cluster(expand("hgx-b200", {}), hosts))
    limit, band = expect(replace(ALL_REDUCE, operation="send_recv"), machine)
    assert band is not None
    assert band.high < 51e9, "the NIC next to the GPU, not those of the other GPUs"
    verdict = judge("ok", "", rate, limit, band, None, must_check=False)
    assert verdict.state == state
    assert "NCCL_NCHANNELS_PER_NET_PEER" in band.doubt
