"""The rates that a lab's cables give to ranks on its hosts. Pure, so the tests need no root."""

from __future__ import annotations

import pytest
from tests.lab.test_plan import planned, three_tiers

from railwright.lab.fabric import build_fabric


def fabric(plan, hosts, rails=None):
    ports = plan.node(hosts[0]).rails
    return build_fabric(plan, hosts, ports if rails is None else [ports[rail] for rail in rails])


def test_one_connection_has_the_narrowest_cable_and_all_ports_are_summed():
    # Each leaf has one host of 200 Mb/s below and two spines above.
    found = fabric(planned(2), ("host0", "host1"))
    assert (found.flow_bytes_per_s, found.ports_bytes_per_s) == (12.5e6, 50e6)
    assert "leaf0" in found.narrowest
    assert "0.1 Gb/s" in found.narrowest


def test_hosts_of_one_leaf_have_the_rate_of_their_ports_whatever_is_above():
    found = fabric(planned(4), ("host0", "host1"))
    assert (found.flow_bytes_per_s, found.ports_bytes_per_s) == (25e6, 50e6)
    assert fabric(planned(4), ("host0", "host1"), rails=[1]).ports_bytes_per_s == 25e6


def test_the_host_that_is_reached_worst_decides():
    assert fabric(planned(4, spines=4), ("host0", "host1", "host2")).flow_bytes_per_s == 12.5e6


@pytest.mark.parametrize(("oversubscription", "expected"), [(1.0, 25e6), (4.0, 6.25e6)])
def test_oversubscribed_uplinks_narrow_the_way_between_groups_alone(oversubscription, expected):
    plan = planned(8, fabric=three_tiers(oversubscription))
    assert fabric(plan, ("host0", "host2")).flow_bytes_per_s == expected
    assert fabric(plan, ("host0", "host1")).flow_bytes_per_s == 25e6


def test_ports_without_a_rate_or_without_a_name_have_no_limit():
    assert fabric(planned(2, rate_bits_per_s=None), ("host0", "host1")) is None
    assert fabric(planned(2), ("host0", "host1"), rails=[]) is None
