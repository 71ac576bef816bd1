"""A supposed fault slows some curves of a cluster and speeds up none; impossible faults are not supposed."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from railwright.checks.check import Facts
from railwright.errors import RailwrightError
from railwright.faults.fault import Fault, Hypothesis
from railwright.faults.registry import FAULTS
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.devices import (
    EthernetLink,
    InfinibandLink,
    NetworkLink,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
)
from railwright.topology.expand import expand
from railwright.topology.paths import Affinity, Graph
from railwright.topology.shapes import SHAPES

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
WITHOUT_A_CHANGE_ON_EVERY_FABRIC = {"pxn_off", "max_payload_small", "iommu_translates"}
"""With a NIC for each GPU and no spines PXN changes no way; the others are supposed inside one host."""


def case_of(shape: str, hosts: int, changes: dict[str, str] | None = None, fabric: Fabric | None = None) -> Case:
    return Case(cluster=build_cluster(expand(shape, changes or {}), hosts, fabric))


def supposed(name: str, case: Case) -> tuple[Hypothesis, ...]:
    (fault,) = [fault for fault in FAULTS if fault.name == name]
    return fault.suppose(case)


def middle(case: Case, collective: str) -> float | None:
    """Return the expected bytes/s at large sizes; None if the collective does not have the algorithm."""
    try:
        found = compute_algorithms(case, collective, explained=False)
    except RailwrightError:
        return None
    _, rate, _ = choose_at_size(case.cluster, collective, found, None)
    assert rate.expected_low is not None
    assert rate.expected_high is not None
    return (rate.expected_low + rate.expected_high) / 2


@cache
def healthy(hosts: int) -> tuple[Case, dict[str, float | None]]:
    case = case_of("hgx-h100", hosts)
    return case, {name: middle(case, name) for name in COLLECTIVES}


@pytest.mark.parametrize("hosts", [2, 4, 16])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_makes_no_collective_faster_and_at_least_one_slower(fault: Fault, hosts: int) -> None:
    case, before = healthy(hosts)
    ways = fault.suppose(case)
    assert ways or fault.name in WITHOUT_A_CHANGE_ON_EVERY_FABRIC
    for way in ways:
        after = {name: middle(way.case, name) for name in COLLECTIVES}
        pairs = [(after[name], before[name]) for name in COLLECTIVES if after[name] is not None]
        assert all(now <= then * 1.000001 for now, then in pairs), (way.says, before, after)
        assert any(now < then * 0.999 for now, then in pairs), (way.says, before, after)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_is_supposed_is_said_and_can_be_told_apart(fault: Fault) -> None:
    ways = fault.suppose(healthy(2)[0])
    assert len({way.says for way in ways}) == len(ways)
    for way in ways:
        assert way.fault == fault.name
        assert way.says
        assert not way.says.endswith(".")
        assert way.tell_apart


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_breaks_a_supposition_and_one_host_has_no_network(shape: str) -> None:
    host = expand(shape, {})
    connects = any(isinstance(link.protocol, NetworkLink) for link in host.links)
    one, many = (Case(cluster=build_cluster(host, hosts)) for hosts in (1, 3 if connects else 1))
    inside = {"p2p_disabled", "nvlink_below_maximum", "algorithm_forced", "pcie_below_maximum", "acs_redirect",
              "few_channels", "max_payload_small", "iommu_translates"}  # fmt: skip
    for fault in FAULTS:
        found = fault.suppose(one)
        if shape in ("laptop", "gh200"):
            assert found == (), fault.name
        assert not found or fault.name in inside
        for way in fault.suppose(many):
            Graph(way.case.cluster.host)  # rejects links without an end


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_cluster_without_gpus_nics_or_devices_has_nothing_to_suppose(fault: Fault) -> None:
    nothing = Topology(name="nothing", source="saved", devices=(), links=())
    host = expand("hgx-h100", {"nics": "0"})
    for odd in (case_of("laptop", 5), Case(cluster=build_cluster(nothing, 1))):
        assert fault.suppose(odd) == ()
    unjoined = Case(cluster=replace(build_cluster(host, 1), hosts=4))
    assert fault.suppose(unjoined) == ()


def test_gpudirect_is_not_supposed_to_be_off_where_it_is_known_to_be_off() -> None:
    (way,) = supposed("gpudirect_off", healthy(2)[0])
    (host,) = way.case.cluster.host.of_kind("host")
    assert host.facts["gpudirect_rdma"] is False
    assert supposed("gpudirect_off", way.case) == ()
    assert supposed("gpudirect_off", case_of("gcp-a3-mega", 2)) == ()  # no RDMA ports: TCPXO


def test_acs_is_supposed_on_every_port_below_a_switch() -> None:
    (way,) = supposed("acs_redirect", healthy(2)[0])
    host = way.case.cluster.host
    switches = {switch.id for switch in host.of_kind("pcie_switch")}
    below = [link.protocol for link in host.links if link.a in switches and isinstance(link.protocol, PcieLink)]
    assert len(below) == 16
    assert all(isinstance(one, PcieLink) and one.acs_redirect for one in below)
    assert supposed("acs_redirect", way.case) == ()


def test_one_nic_half_of_many_and_halves_of_those_are_supposed_unused() -> None:
    left = [len(way.case.cluster.host.of_kind("nic")) for way in supposed("nic_unused", healthy(2)[0])]
    assert left == [7, 4, 2, 1]
    assert [len(way.case.cluster.host.of_kind("nic")) for way in supposed("nic_unused", case_of("pcie-8gpu", 2))] == [1]
    assert supposed("nic_unused", case_of("gh200", 2)) == ()


def test_one_port_of_each_card_is_unused_where_cards_have_two() -> None:
    _, half, *_ = supposed("nic_unused", case_of("oci-bm-gpu-h100-8", 2))
    host = half.case.cluster.host
    for card in host.of_kind("card"):
        assert len([link for link in host.links if link.a == card.id]) == 1


def test_pcie_links_are_halved_and_lowered_for_gpus_and_for_nics() -> None:
    ways = supposed("pcie_below_maximum", healthy(2)[0])
    seen = []
    for way in ways:
        changed = {
            (link.b, link.protocol.gt_per_s, link.protocol.width)
            for link, old in zip(way.case.cluster.host.links, healthy(2)[0].cluster.host.links, strict=True)
            if link != old and isinstance(link.protocol, PcieLink)
        }
        assert len(changed) == 8
        seen.append(min(changed))
    assert seen == [("gpu0", 32.0, 8), ("gpu0", 16.0, 16), ("nic0", 32.0, 8), ("nic0", 16.0, 16)]


def test_a_link_that_is_already_down_to_that_is_not_supposed_once_more() -> None:
    ways = supposed("pcie_below_maximum", healthy(2)[0])
    for way in ways:
        assert way.says not in {again.says for again in supposed("pcie_below_maximum", way.case)}


def test_nics_that_change_sides_are_reached_across_sockets_only() -> None:
    (way,) = supposed("nic_across_sockets", healthy(2)[0])
    affinity = Affinity(way.case.cluster.host)
    assert {kind.kind for kind in affinity.paths.values() if kind is not None} == {"SYS"}
    # Each GPU's path to its own NIC crosses between sockets once, not twice.
    for number in range(8):
        path = affinity.paths[(f"gpu{number}", f"nic{number}")]
        assert path is not None
        assert sum(isinstance(link.protocol, SmpLink) for link in path.links) == 1


def test_one_socket_has_no_other_socket() -> None:
    assert supposed("nic_across_sockets", case_of("gh200", 2)) == ()


def test_mtus_are_supposed_for_the_kind_of_network_that_there_is() -> None:
    infiniband = supposed("mtu_small", healthy(2)[0])
    roce = supposed("mtu_small", case_of("hgx-h100", 2, {"nic-protocol": "ethernet"}))
    assert [_mtu(way) for way in infiniband] == [1024, 2048]
    assert [_mtu(way) for way in roce] == [1500, 4096]
    assert all("InfiniBand" in way.says for way in infiniband)
    assert all("Ethernet" in way.says for way in roce)
    assert supposed("mtu_small", case_of("aws-p5", 2)) == ()


def _mtu(way: Hypothesis) -> int | None:
    found = {
        link.protocol.mtu_bytes
        for link in way.case.cluster.host.links
        if isinstance(link.protocol, EthernetLink | InfinibandLink)
    }
    assert len(found) == 1
    return found.pop()


def test_sockets_leave_no_rdma_port() -> None:
    for shape in ("hgx-h100", "aws-p5", "pcie-8gpu"):
        ways = supposed("tcp_fallback", case_of(shape, 2))
        assert len(ways) == 2
        assert all(supposed("tcp_fallback", way.case) == () for way in ways)


def test_forced_algorithms_are_those_that_are_not_the_best() -> None:
    assert [way.case.algorithm for way in supposed("algorithm_forced", healthy(2)[0])] == ["ring", "tree"]
    (one_host,) = supposed("algorithm_forced", case_of("hgx-h100", 1))
    assert one_host.case.algorithm == "ring"
    assert "NVLS" in one_host.says
    assert supposed("algorithm_forced", replace(healthy(2)[0], algorithm="ring")) == ()


def test_pxn_is_supposed_off_where_spines_are_few() -> None:
    rails = Fabric(rail_optimised=True, tiers=(Tier(hosts=16, oversubscription=8), Tier(name="spine", hosts=32)))
    case = case_of("hgx-h100", 16, fabric=rails)
    (way,) = supposed("pxn_off", case)
    assert way.case.relay == "none"
    assert supposed("pxn_off", way.case) == ()
    slower, before = middle(way.case, "all_to_all"), middle(case, "all_to_all")
    assert slower is not None
    assert before is not None
    assert slower < 0.99 * before


def test_a_connection_holds_back_only_ports_that_carry_more() -> None:
    (way,) = supposed("connection_ceiling", healthy(2)[0])
    assert way.case.port_cap_bytes_per_s == 13e9
    assert supposed("connection_ceiling", way.case) == ()
    assert supposed("connection_ceiling", case_of("aws-p5", 2)) == ()  # ports of 100 Gb/s


def test_uplinks_are_shared_only_where_traffic_leaves_the_leaf() -> None:
    (no_tiers,) = supposed("uplinks_shared", healthy(4)[0])
    assert no_tiers.case.cluster.fabric.tiers[0].oversubscription == 2
    one_leaf = Fabric(tiers=(Tier(hosts=8),))
    assert supposed("uplinks_shared", case_of("hgx-h100", 4, fabric=one_leaf)) == ()
    two = Fabric(tiers=(Tier(hosts=2, oversubscription=3), Tier(name="spine", hosts=8)))
    (way,) = supposed("uplinks_shared", case_of("hgx-h100", 4, fabric=two))
    assert [tier.oversubscription for tier in way.case.cluster.fabric.tiers] == [6, 1]


def test_a_rack_that_nvlink_joins_is_one_group_below_a_leaf() -> None:
    (way,) = supposed("uplinks_shared", case_of("gb200-nvl72", 36))
    lowest, spine = way.case.cluster.fabric.tiers
    assert (lowest.hosts, spine.hosts) == (18, 36)
    build_cluster(way.case.cluster.host, 36, way.case.cluster.fabric)  # rejects inconsistent tiers


def test_without_peer_to_peer_no_nvlink_and_no_rack_is_left() -> None:
    sockets, way = supposed("p2p_disabled", case_of("gb200-nvl72", 36))
    assert 0 < sockets.case.gpu_cap_bytes_per_s < way.case.gpu_cap_bytes_per_s
    host = way.case.cluster.host
    assert host.of_kind("nvswitch") == ()
    assert "nvlink_domain_hosts" not in host.of_kind("host")[0].facts
    assert supposed("p2p_disabled", way.case) == ()
    assert supposed("p2p_disabled", case_of("pcie-8gpu", 2)) == ()


def test_without_peer_to_peer_gpus_on_pcie_go_through_sockets_or_host_memory() -> None:
    sockets, memory = supposed("p2p_disabled", case_of("a100-pcie-80gb-8gpu", 1))
    assert "sockets" in sockets.says
    (host,) = memory.case.cluster.host.of_kind("host")
    assert host.facts["peer_to_peer"] is False
    assert [way.says for way in supposed("p2p_disabled", memory.case)] == [sockets.says]


def test_inside_a_host_gpus_on_pcie_may_have_small_packets_a_quarter_of_the_lanes_and_an_iommu() -> None:
    case = case_of("a100-pcie-80gb-8gpu", 1)
    ways = [one for name in ("pcie_below_maximum", "max_payload_small", "iommu_translates", "acs_redirect")
            for one in supposed(name, case)]  # fmt: skip
    assert [sum(one.fault == name for one in ways) for name in dict.fromkeys(one.fault for one in ways)] == [4, 1, 1, 1]
    (packets,) = supposed("max_payload_small", case)
    links = [link.protocol for link in packets.case.cluster.host.links if link.b.startswith("gpu")]
    assert {link.max_payload_bytes for link in links if isinstance(link, PcieLink)} == {128}
    joined = case_of("hgx-h100", 1)
    assert supposed("pcie_below_maximum", joined) == ()
    to_memory = supposed("pcie_below_maximum", replace(joined, to_memory=True))
    assert [one.says for one in to_memory] == [one.says for one in supposed("pcie_below_maximum", case)]


def test_half_of_the_nvlinks_of_one_gpu_or_of_all_are_supposed_inactive() -> None:
    way, every = supposed("nvlink_below_maximum", healthy(2)[0])
    halved = [link.protocol.links for link in every.case.cluster.host.links if isinstance(link.protocol, NvlinkLink)]
    assert halved == [9] * 8
    (fault,) = [fault for fault in FAULTS if fault.name == "nvlink_below_maximum"]
    (finding,) = fault.look(Facts(topology=way.case.cluster.host))
    assert "9 of 18" in finding.says
    assert supposed("nvlink_below_maximum", case_of("mi300x", 2)) == ()
