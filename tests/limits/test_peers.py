"""The ways between GPUs that are joined directly: what one message can take, and what it cannot."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Limit
from railwright.limits.peers import disable_relay, find_peer_ways
from railwright.results.workload import Collective
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load
from railwright.units import GIB


def limit_of(shape: str, operation: str, environment: dict[str, str] | None = None) -> float:
    """Return the limit of a large operation over all GPUs of a host, in GB/s."""
    cluster = build_cluster(load(shape), 1)
    machine = Machine(cluster=cluster, environment=environment or {})
    limit, _ = expect(Collective(operation=operation, ranks=cluster.ranks, size_bytes=GIB), machine)
    assert isinstance(limit, Limit)
    return limit.value / 1e9


@pytest.mark.parametrize(
    ("shape", "link"), [("mi300x", 64), ("mi355x", 76.8), ("quad-gh200", 150), ("mi300a", 128), ("dgx-1-v100", 25)]
)
def test_a_message_takes_the_link_between_its_ends_and_no_other(shape: str, link: float) -> None:
    assert limit_of(shape, "send_recv") == pytest.approx(link)


def test_all_to_all_in_a_full_mesh_fills_every_link() -> None:
    assert limit_of("mi300x", "all_to_all") == pytest.approx(64 * 8)


def test_nccl_passes_through_one_gpu_unless_told_not_to() -> None:
    host = load("dgx-1-v100")
    (way,) = {len(way.hops) for way in find_peer_ways(host)["gpu0", "gpu5"]}
    assert way == 2
    assert ("gpu0", "gpu5") not in find_peer_ways(disable_relay(host))
    assert ("gpu0", "gpu1") in find_peer_ways(disable_relay(host))


def test_without_relays_all_to_all_falls_back_to_pcie() -> None:
    relayed = limit_of("dgx-1-v100", "all_to_all")
    assert limit_of("dgx-1-v100", "all_to_all", {"NCCL_NVB_DISABLE": "1"}) < 0.6 * relayed
    assert limit_of("dgx-1-v100", "all_to_all", {"NCCL_NVB_DISABLE": "0"}) == relayed


def test_infinity_fabric_routes_in_hardware_at_its_narrowest_link() -> None:
    host = load("mi250x")
    ways = find_peer_ways(host)
    gpus = [gpu.id for gpu in host.of_kind("gpu")]
    assert all((source, target) in ways for source in gpus for target in gpus if source != target)
    assert {way.bytes_per_s for way in ways["gpu1", "gpu2"]} == {50e9}
    assert limit_of("mi250x", "send_recv") == pytest.approx(50)


def test_a_missing_link_leaves_its_pair_to_the_others() -> None:
    host = load("mi300x")
    lost = replace(host, links=tuple(link for link in host.links if {link.a, link.b} != {"gpu0", "gpu1"}))
    ways = find_peer_ways(lost)
    assert len(ways["gpu0", "gpu1"]) == 6
    assert len(ways["gpu0", "gpu2"]) == 1


def test_switches_join_any_two_gpus() -> None:
    assert find_peer_ways(load("hgx-h100")) == {}
