"""The leaf of each host by LLDP data from the hosts or from the switches."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.locate.lldp_tree import build_lldp_tree
from railwright.topology.cabling import Cabling, Port


def cabling(*words: str) -> Cabling:
    cables = [tuple(Port(*end.split(":")) for end in one.split("-")) for one in words]
    return Cabling(tuple(cables), frozenset(end.end for one in cables for end in one))


RAILS = cabling(
    "host0:eth0-leafA:1", "host0:eth1-leafB:1", "leafA:2-host1:eth0", "leafA:49-spine0:1", "leafB:2-host1:eth1"
)


def test_each_host_is_below_the_switch_that_it_hears_or_that_hears_it() -> None:
    one = cabling("host0:eth0-leaf0:1", "leaf0:2-host1:eth0", "leaf1:1-host2:eth0", "leaf0:49-spine0:1")
    assert build_lldp_tree(one, ["host0", "host1.cluster.local", "host2"]).leaf_of == {
        "host0": "leaf0", "host1.cluster.local": "leaf0", "host2": "leaf1",
    }  # fmt: skip


def test_a_host_on_several_rails_is_searched_on_one() -> None:
    assert build_lldp_tree(RAILS, ["host0", "host1"], "eth1").leaf_of == {"host0": "leafB", "host1": "leafB"}
    with pytest.raises(
        UsageError, match="host0 has several switches as LLDP neighbours: leafA at eth0, leafB at eth1"
    ) as refused:
        build_lldp_tree(RAILS, ["host0", "host1"])
    assert "--interfaces" in refused.value.hint


def test_two_ports_on_one_switch_are_no_question() -> None:
    bond = cabling("host0:eth0-leaf0:1", "host0:eth1-leaf0:2")
    assert build_lldp_tree(bond, ["host0"]).leaf_of == {"host0": "leaf0"}


@pytest.mark.parametrize(
    ("hosts", "interface", "said"),
    [(["host7"], "", "host7 has no LLDP neighbour"), (["host0"], "ib0", "host0 has no LLDP neighbour at ib0")],
)
def test_who_hears_nobody_is_named(hosts: list[str], interface: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build_lldp_tree(RAILS, hosts, interface)
