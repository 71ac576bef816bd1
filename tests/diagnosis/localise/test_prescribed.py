"""A search over an InfiniBand subnet, whose tables prescribe one path between two ports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.flows import class_loads
from railwright.diagnosis.localise.prescribed import (
    PrescribedCover,
    PrescribedScreen,
    fabric_of_subnet,
    find_ports,
    plan_cover,
)
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.localise.simulate import Weather
from railwright.diagnosis.localise.truth import draw, parse_draw
from railwright.errors import UsageError
from railwright.topology.sources.subnet import parse_subnet

SUBNETS = Path(__file__).parents[3] / "testdata/external/subnet"
ROUTINGS = ("ftree", "minhop", "updn", "lmc1")


def text(name: str) -> str:
    return (SUBNETS / f"{name}.txt").read_text(encoding="utf-8")


def fabric(routing: str):
    return fabric_of_subnet(parse_subnet(text(f"{routing}.cables"), text(f"{routing}.tables")))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_pair_of_ports_has_one_way_that_the_tables_lead(routing):
    found = fabric(routing)
    assert (len(found.hosts), found.nics, len(found.switches), found.classes) == (16, 16, 6, 2 * 32)
    assert found.switches[:4] == ("leaf0", "leaf1", "leaf2", "leaf3")
    lengths = Counter()
    for source in range(found.nics):
        for destination in range(found.nics):
            if source != destination:
                path = found.ways(source, destination)
                assert path is not None
                assert (path[0], path[-1]) == (2 * source, 2 * destination + 1)
                lengths[len(path)] += 1
    assert lengths == {2: 16 * 3, 4: 16 * 12}, "below one leaf, or over a spine"


def test_a_way_is_the_one_that_the_tables_name():
    """leaf3 forwards packets for host0 through port 5, which leads to spine0 (both in the recorded text)."""
    found = fabric("ftree")
    source, destination = found.hosts.index("host12"), found.hosts.index("host0")
    path = found.ways(source, destination)
    assert found.ports[path[1] // 2][0] == "5"
    assert found.switches_of(path) == ("leaf3", "spine0", "leaf0")


@pytest.mark.parametrize("routing", ROUTINGS)
def test_rounds_overfill_nothing_and_reach_all_links(routing):
    found, crossed = fabric(routing), set[int]()
    screen = PrescribedScreen(found, Random(1))
    for _ in range(4):
        one = screen.build_round()
        assert len({flow.source for flow in one.flows}) == len(one.flows) == len({f.destination for f in one.flows})
        load = class_loads(found, one.flows)
        assert max(load.values()) <= 1 + 1e-6
        crossed |= load.keys()
        if routing == "ftree":
            assert len(one.flows) == found.nics, "shifts meet on no link"
    assert crossed == set(range(found.classes))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_slow_links_are_named(routing):
    found = fabric(routing)
    right = wrong = missed = 0
    for seed in range(12):
        truth, drawn = draw(found, parse_draw([f"seed={seed}", "rate=0.03"])), seed
        one = trial.run(found, routing, truth, Weather(), seed=drawn, rounds=Rounds())
        right, wrong, missed = right + one.right, wrong + one.wrong, missed + one.missed
    assert right >= 12
    assert wrong <= 0.1 * right
    assert missed <= 0.1 * right


def test_the_cover_is_of_every_pair():
    found = fabric("minhop")
    rounds = list(PrescribedCover(found).rounds(Random(0)))
    pairs = [(flow.source, flow.destination) for one in rounds for flow in one.flows]
    assert len(pairs) == len(set(pairs)) == 16 * 15
    assert all(max(class_loads(found, one.flows).values()) <= 1 + 1e-6 for one in rounds)
    with pytest.raises(UsageError, match="one path for each pair"):
        plan_cover(found, "leaf")


def test_tables_that_lead_nowhere_or_in_a_circle_give_no_way():
    lines = text("ftree.tables").splitlines()
    begin = next(number for number, line in enumerate(lines) if "(leaf3)" in line)
    of_host0 = next(number for number in range(begin, len(lines)) if lines[number].startswith("0x0001 "))
    for port in ("015", "255", "002"):  # an empty port, the port that drops packets, and another host's port
        changed = [*lines[:of_host0], f"0x0001 {port} : (x)", *lines[of_host0 + 1 :]]
        found = fabric_of_subnet(parse_subnet(text("ftree.cables"), "\n".join(changed)))
        source, destination = found.hosts.index("host12"), found.hosts.index("host0")
        assert found.ways(source, destination) is None
        assert found.ways(destination, source) is not None
    up_again = next(number for number, line in enumerate(lines) if "(spine0)" in line)
    of_host0 = next(number for number in range(up_again, len(lines)) if lines[number].startswith("0x0001 "))
    circle = [*lines[:of_host0], "0x0001 007 : (x)", *lines[of_host0 + 1 :]]
    found = fabric_of_subnet(parse_subnet(text("ftree.cables"), "\n".join(circle)))
    assert found.ways(found.hosts.index("host12"), found.hosts.index("host0")) is None


def test_some_hosts_of_a_subnet_are_a_fabric():
    subnet = parse_subnet(text("ftree.cables"), text("ftree.tables"))
    found = fabric_of_subnet(subnet, find_ports(subnet, ["host9", "host0", "host4.example"]))
    assert found.hosts == ("host9", "host0", "host4")
    assert found.switches_of(found.ways(0, 1))[::2] == ("leaf2", "leaf0")
    with pytest.raises(UsageError, match="host99 has no port in the subnet"):
        find_ports(subnet, ["host99"])
    rails = text("ftree.cables").replace('"host1"', '"host0 mlx5_1"').replace('"host0"', '"host0 mlx5_0"')
    with pytest.raises(UsageError, match="host0 has the ports mlx5_0, mlx5_1 in the subnet"):
        find_ports(parse_subnet(rails), ["host0"])
    assert find_ports(parse_subnet(rails), ["host0"], "mlx5_1") == [("host0", "mlx5_1")]


def test_what_is_no_subnet_is_refused():
    cables, tables = text("ftree.cables"), text("ftree.tables")
    for given, said in (
        (("", ""), "the file has no switch"),
        ((cables, "hello"), "the file has no forwarding table"),
        ((cables, tables[: tables.index("Unicast", 10)]), "the file lacks the table of leaf2 and 4 more"),
        ((cables.replace('"leaf2"', '"leaf3"'), ""), "are both called"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_subnet(*given)
    to_spine = next(line for line in cables.splitlines() if line.startswith("[5]") and '"spine0"' in line)
    mesh = cables.replace(to_spine, '[5]\t"S-0000000000200000"[9]\t\t# "leaf0" lid 2 4xSDR')
    with pytest.raises(UsageError, match="the subnet is not a tree"):
        fabric_of_subnet(parse_subnet(mesh))


def test_rates_are_those_of_most_ports():
    faster = text("ftree.cables").replace('"spine0" lid 7 4xSDR', '"spine0" lid 7 4xQDR')
    found = fabric_of_subnet(parse_subnet(faster))
    assert set(found.capacity[: found.nics]) == {1.0}
    assert found.ways is None
    assert 4.0 in found.capacity
