"""FRR's configuration as text; test_lab_up_down.py checks that FRR itself accepts it and brings sessions up."""

import re

from railwright.lab.frr import bgpd_text, start_argv, zebra_text
from railwright.lab.plan import PlanOptions, plan
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

LAB = plan(build_cluster(load("hgx-h100 nics=2"), 4), PlanOptions())
IPV6_ONLY = plan(build_cluster(load("hgx-h100 nics=2"), 4), PlanOptions(ipv6_only=True))


def of(name, lab=LAB) -> list[str]:
    return [line.strip() for line in bgpd_text(lab, lab.node(name)).splitlines()]


def test_every_port_is_an_unnumbered_neighbour_of_another_system():
    assert {"neighbor spine0 interface peer-group FABRIC", "neighbor host0r0 interface peer-group FABRIC"} <= set(
        of("leaf0")
    )
    assert "neighbor FABRIC remote-as external" in of("leaf0")
    assert "neighbor FABRIC capability extended-nexthop" in of("leaf0")


def test_a_port_announces_its_own_rail_and_the_loopback_alone():
    text = of("host2")
    assert "network 10.1.0.3/32" in text
    own = [line.split()[-1] for line in text if line.startswith("ip prefix-list RAIL1-OWN")]
    assert own == ["10.1.0.3/32", "10.255.0.3/32"]
    assert text.count("neighbor rail1 route-map RAIL1-OUT out") == 2  # IPv4 and IPv6


def test_the_port_of_a_rail_is_preferred_for_that_rail():
    text = of("host0")
    start = text.index("route-map RAIL1-IN permit 10")
    assert text[start : start + 3] == [
        "route-map RAIL1-IN permit 10", "match ip address prefix-list RAIL1", "set local-preference 200",
    ]  # fmt: skip
    assert "ip prefix-list RAIL1 permit 10.1.0.0/24 ge 32" in text
    assert "ipv6 prefix-list RAIL1 permit fd72:6169:6c00:2::/64 ge 128" in text


def test_no_neighbour_is_without_a_route_map_in_and_out_and_each_is_there():
    for name in ("host0", "leaf0", "spine0"):
        text = of(name)
        ports = [line.split()[1] for line in text if line.endswith("interface peer-group FABRIC")]
        maps = {line.split()[1] for line in text if line.startswith("route-map ")}
        for port in ports:
            used = [line.split() for line in text if line.startswith(f"neighbor {port} route-map")]
            assert sorted(words[4] for words in used) == ["in", "in", "out", "out"]
            assert {words[3] for words in used} <= maps
        lists = {line.split()[2] for line in text if "prefix-list" in line and "permit" in line}
        assert {line.split()[-1] for line in text if line.startswith("match ")} <= lists


def test_ecmp_takes_paths_of_different_systems():
    assert "bgp bestpath as-path multipath-relax" in of("spine0")
    assert of("spine0").count("maximum-paths 64") == 2


def test_ipv6_only_has_no_ipv4_family_and_two_networks_for_each_port():
    text = of("host0", IPV6_ONLY)
    assert "address-family ipv4 unicast" not in text
    assert len([line for line in text if line.startswith("network ")]) == 5
    assert not re.search(r"\b10\.\d", "\n".join(line for line in text if line.startswith("network")))


def test_daemons_take_every_file_from_the_nodes_folder_and_listen_on_no_port():
    argv = start_argv(["/usr/lib/frr/bgpd"], "bgpd", "/run/x", None)
    assert argv[argv.index("-f") + 1] == "/run/x/bgpd.conf"
    assert argv[argv.index("-i") + 1] == "/run/x/bgpd.pid"
    assert argv[argv.index("-P") + 1] == "0"
    assert "-f" not in start_argv(["mgmtd"], "mgmtd", "/run/x", "space")


def test_advertisements_are_frequent_where_the_file_may_say_so():
    assert "ipv6 nd ra-interval 1" in zebra_text(LAB, LAB.node("spine0"))
    ten = plan(build_cluster(load("hgx-h100 nics=1"), 2), PlanOptions(frr="10"))
    assert "interface" not in zebra_text(ten, ten.node("host0"))
