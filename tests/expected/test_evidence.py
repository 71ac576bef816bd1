"""The number of systems on which the bands of collectives rest."""

from __future__ import annotations

import pytest

from railwright.expected import evidence
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
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
    assert band.systems == len(evidence.SYSTEMS[fabric]) > 0


def test_a_band_without_a_system_says_so_and_only_half_of_it_is_slow(monkeypatch) -> None:
    monkeypatch.delitem(evidence.SYSTEMS, "NVSwitch")
    _, band = expect(ALL_REDUCE, Machine(cluster=build_cluster(expand("hgx-h100", {}), 1)))
    assert band.systems == 0
    assert band.doubtful_to == pytest.approx(band.low / 2)
    assert band.doubt == "no published run on this kind of fabric is known"
