"""The plan of a lab. Pure, so the tests need no root."""

import ipaddress
from collections import Counter

import pytest

from railwright.errors import UsageError
from railwright.lab.links import shape, tbf
from railwright.lab.nodes import LabPlan
from railwright.lab.plan import PREFIX_V4, PREFIX_V6, PlanOptions, plan
from railwright.lab.routes import expected_routes
from railwright.topology.cluster import Cluster, Fabric, Tier, build_cluster
from railwright.topology.sources.load import load


def cluster(hosts: int, nics: int = 2, fabric: Fabric | None = None) -> Cluster:
    return build_cluster(load(f"hgx-h100 nics={nics}"), hosts, fabric)


def planned(hosts: int, nics: int = 2, fabric: Fabric | None = None, **options) -> LabPlan:
    return plan(cluster(hosts, nics, fabric), PlanOptions(**options))


def three_tiers(oversubscription: float = 1.0) -> Fabric:
    return Fabric(
        rail_optimised=True,
        tiers=(
            Tier(name="leaf", hosts=2, oversubscription=oversubscription),
            Tier(name="spine", hosts=4, switches=2),
            Tier(name="core", hosts=8, switches=2),
        ),
    )


def test_hosts_of_a_shape_are_halved_under_two_spines_with_a_leaf_for_each_rail():
    assert planned(4, nics=2).summary() == "4 hosts, 4 leaves, 2 spines, 16 cables"
    assert planned(4, nics=1).summary() == "4 hosts, 2 leaves, 2 spines, 8 cables"
    assert planned(32, leaf_hosts=8, spines=4).summary() == "32 hosts, 8 leaves, 4 spines, 96 cables"


def test_a_rail_optimised_leaf_joins_one_rail_only():
    lab = planned(8, nics=4)
    for leaf in lab.of_kind("leaf"):
        assert len({cable.rail for cable in lab.cables_of(leaf.name)}) == 1
        assert {cable.a_port for cable in lab.cables_of(leaf.name) if cable.b == leaf.name} == {
            f"rail{cable.rail}" for cable in lab.cables_of(leaf.name)
        }


def test_a_plain_fat_tree_has_all_nics_of_a_host_on_one_leaf():
    fabric = Fabric(tiers=(Tier(name="leaf", hosts=2), Tier(name="spine", hosts=4, switches=3)))
    lab = planned(4, nics=2, fabric=fabric)
    assert lab.summary() == "4 hosts, 2 leaves, 3 spines, 14 cables"
    assert len(lab.between("host0", "leaf0")) == 2
    assert lab.between("host0", "leaf1") == ()


def test_oversubscription_and_rate_set_the_rate_of_uplinks():
    lab = planned(8, fabric=three_tiers(oversubscription=4.0), rate_bits_per_s=200e6)
    # Two hosts' ports of 200 Mb/s over 4, on two spines.
    assert {cable.rate_bits_per_s for cable in lab.cables_of("leaf0") if cable.a == "leaf0"} == {50e6}
    # Four leaves of 50 Mb/s each, on two superspines.
    assert {cable.rate_bits_per_s for cable in lab.cables_of("spine0") if cable.a == "spine0"} == {100e6}
    assert {cable.rate_bits_per_s for cable in planned(4, rate_bits_per_s=None).cables} == {None}


@pytest.mark.parametrize("options", [{}, {"ipv6_only": True}])
def test_every_name_and_address_is_given_once_and_lies_in_the_labs_prefixes(options):
    lab = planned(8, nics=4, fabric=three_tiers(), **options)
    addresses = [
        a for node in lab.nodes for a in (*node.loopbacks, *(x for rail in node.rails for x in rail.addresses))
    ]
    assert len(set(addresses)) == len(addresses)
    for address in map(ipaddress.ip_address, addresses):
        assert address in ipaddress.ip_network(PREFIX_V4 if address.version == 4 else PREFIX_V6)
    ports = Counter((node.name, cable.port_of(node.name)) for node in lab.nodes for cable in lab.cables_of(node.name))
    assert max(ports.values()) == 1
    assert max(len(port) for _, port in ports) <= 15  # IFNAMSIZ of Linux, less the zero


def test_ipv6_only_gives_no_ipv4_and_two_global_addresses_on_each_port():
    lab = planned(2, ipv6_only=True)
    assert all(node.loopback_v4 is None for node in lab.nodes)
    assert [(len(rail.addresses_v4), len(rail.addresses_v6)) for rail in lab.node("host1").rails] == [(0, 2), (0, 2)]


def test_systems_are_private_one_for_each_host_and_leaf_and_one_for_each_group_of_spines():
    lab = planned(8, fabric=three_tiers())
    assert all(4_200_000_000 <= node.asn <= 4_294_967_294 for node in lab.nodes)
    for kind, systems in (("host", 8), ("leaf", 8), ("spine", 2), ("superspine", 1)):
        assert len({node.asn for node in lab.of_kind(kind)}) == systems, kind
    assert {node.asn for node in lab.of_kind("spine") if node.group == 0} == {lab.node("spine0").asn}


def test_routes_take_every_shortest_way_and_the_rail_of_their_destination():
    lab = planned(4, nics=2)
    routes = expected_routes(lab)
    far = lab.node("host3").rails[1].addresses_v4[0]
    assert routes["host0"][far] == {"rail1"}
    assert routes["leaf1"][far] == {"spine0", "spine1"}  # rail 1 of the first group
    assert routes["leaf0"][far] == {"spine0", "spine1"}
    assert routes["leaf3"][far] == {"host3r1"}
    assert routes["spine0"][far] == {"leaf3"}
    assert routes["host0"][lab.node("host3").loopback_v6] == {"rail0", "rail1"}
    # Switches of one autonomous system reject paths that lead down and up again.
    assert lab.node("spine1").loopback_v6 not in routes["spine0"]


def test_routes_of_three_tiers_go_up_to_all_superspines_and_down_one_way():
    lab = planned(8, nics=1, fabric=three_tiers())
    routes = expected_routes(lab)
    far = lab.node("host7").rails[0].addresses_v4[0]
    assert routes["leaf0"][far] == {"spine0", "spine1"}
    assert routes["spine0"][far] == {"superspine0", "superspine1"}
    assert routes["superspine0"][far] == {"spine2", "spine3"}
    assert routes["spine2"][far] == {"leaf3"}


def test_a_host_carries_nothing_for_others():
    lab = planned(4, nics=2)
    for node, routes in expected_routes(lab).items():
        if lab.node(node).kind != "host":
            for address, ports in routes.items():
                owner = next(host for host in lab.nodes if address in _addresses(host))
                assert owner.kind != "host" or all(not p.startswith("host") or p.startswith(owner.name) for p in ports)
                assert owner.kind == "host" or not any(port.startswith("host") for port in ports)


def _addresses(node) -> tuple[str, ...]:
    return (*node.loopbacks, *(address for rail in node.rails for address in rail.addresses))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: planned(60), "got 66 (60 of them hosts)"),
        (lambda: planned(300, most_nodes=2000), "at most 250"),
        (lambda: planned(4, name="Lab"), "'Lab' is not a valid name"),
        (lambda: planned(4, name="../x"), "is not a valid name"),
        (lambda: planned(4, name="a" * 17), "is not a valid name"),
        (lambda: planned(4, mtu_bytes=1000), "MTU must be 1280 to 65535 bytes, got 1000"),
        (lambda: planned(4, rate_bits_per_s=1.0), "1 bit/s"),
        (lambda: planned(4, rate_bits_per_s=float("nan")), "nan bit/s"),
        (lambda: planned(4, spines=0), "spines must be at least 1, got 0"),
        (lambda: planned(8, fabric=three_tiers(), leaf_hosts=2), "--leaf-hosts excludes"),
        (lambda: planned(1, nics=0), "NIC ports"),
        (
            lambda: planned(8, fabric=Fabric(tiers=tuple(Tier(hosts=n) for n in (1, 2, 4, 8)))),
            "at most 3 tiers, got 4",
        ),
    ],
)
def test_what_cannot_be_a_lab_is_refused_with_the_value_seen(make, said):
    with pytest.raises(UsageError) as caught:
        make()
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_rate_is_held_with_a_bucket_of_two_packets_at_least():
    lab = planned(4)
    words = tbf(1e6, 9000)
    assert words[:3] == ("tbf", "rate", "1000000bit")
    assert int(words[words.index("burst") + 1]) >= 18000
    assert int(words[words.index("limit") + 1]) > int(words[words.index("burst") + 1])
    assert shape("rail0", lab.cables[0])[:6] == ("qdisc", "replace", "dev", "rail0", "root", "handle")
