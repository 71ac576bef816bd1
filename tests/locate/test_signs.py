"""Links that are missing, flap or lose packets are named, and their neighbours are not."""

from collections.abc import Callable
from random import Random

import pytest

from railwright.diagnosis.localise.fabric import Fabric, Path
from railwright.diagnosis.localise.procedure import Outcome, Rounds, locate
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.routes import RouteSuspicion
from railwright.lab.plan import PlanOptions, plan
from railwright.locate.lab_fabric import build_lab_fabric, find_path
from railwright.locate.signs import Crossings, Sign, find_delayed, find_suspects
from railwright.topology.cluster import Fabric as Tiers
from railwright.topology.cluster import Tier, build_cluster
from railwright.topology.expand import expand

WAYS = 12


@pytest.fixture
def fabric() -> Fabric:
    tiers = (Tier(hosts=4), Tier(name="spine", hosts=16, switches=2))
    cluster = build_cluster(expand("hgx-h100", {"nics": "1"}), 16, Tiers(tiers=tiers))
    return build_lab_fabric(plan(cluster, PlanOptions(rate_bits_per_s=100e6)))


def searched(fabric: Fabric, rate: Callable[[Path], float], bad: int | None = None) -> Outcome:
    """Every flow has the rate of its path; those over class `bad` are marked."""
    search = locate(fabric, Random(2), Rounds())
    try:
        while True:
            for one in next(search):
                one.ratio = [rate(flow.path) for flow in one.flows]
                one.marked = {number for number, flow in enumerate(one.flows) if bad in flow.path}
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]


def healthy_outcome(fabric: Fabric, bad: int | None = None, slow: int | None = None) -> Outcome:
    """Every flow has its rate but those over class `slow`; those over class `bad` are marked."""
    return searched(fabric, lambda path: 0.55 if slow in path else 1.0, bad)


def named(
    fabric: Fabric,
    bad: int | None = None,
    gone: tuple[tuple[int, int], ...] = (),
    slow: int | None = None,
    **of_bad: int,
) -> list[Suspect]:
    """The suspects where flows over class `bad` have these signs, and cables are gone: (round or -1 for all, cable)."""
    outcome = healthy_outcome(fabric, bad, slow)
    good = {"sent": 700, "received": 700, "long_lost": 0}
    signs = [
        [Sign(flow, True, **(good | (of_bad if bad in flow.path else {}))) for flow in one.flows]
        for one in outcome.rounds
    ]
    crossings = []
    for number, one in enumerate(outcome.rounds):
        away = {cable for when, cable in gone if when in (number, -1)}
        seen = Crossings({}, [])
        for flow in one.flows:
            source, destination = fabric.leaf_of(flow.source), fabric.leaf_of(flow.destination)
            ways = [(up, *fabric.joining[destination, fabric.upper[up]]) for up in fabric.above[source]]
            ways = [way for way in ways if not away & set(way)]
            seen.asked.append((source, destination, WAYS))
            for up, down in ways:
                for crossed in (2 * up, 2 * down + 1):
                    seen.crossed[crossed] = seen.crossed.get(crossed, 0) + WAYS // len(ways)
        crossings.append(seen)
    return find_suspects(outcome, signs, crossings, {}, {})


def test_a_healthy_lab_has_no_suspect(fabric: Fabric) -> None:
    assert not named(fabric)


@pytest.mark.parametrize("number", range(0, 48, 3))
def test_loss_and_vanishing_long_packets_name_their_link_and_direction(fabric: Fabric, number: int) -> None:
    for verdict, signs in (("lossy", {"received": 693}), ("stalls", {"long_lost": 6})):
        (one,) = named(fabric, number, **signs)
        assert (one.verdict, one.id) == (verdict, fabric.cable_name(number // 2))
        assert one.direction == ("down" if number % 2 else "up")


def test_a_cable_that_no_path_crosses_is_down_and_one_that_comes_and_goes_flaps(fabric: Fabric) -> None:
    for cable in range(16, 24):
        (one,) = named(fabric, gone=((-1, cable),))
        assert (one.verdict, one.id) == ("down", fabric.cable_name(cable))
        (one,) = named(fabric, gone=((0, cable), (2, cable)))
        assert (one.verdict, one.id) == ("flapping", fabric.cable_name(cable))


def test_what_carries_the_flows_of_a_link_that_flaps_is_not_slow(fabric: Fabric) -> None:
    """Its neighbour at the same leaf carries its flows; a slow link at another leaf is a separate fault."""
    flapping, beside, other = 16, fabric.above[fabric.lower[16]][1], fabric.above[fabric.leaf_of(15)][0]
    for slow, names in ((2 * beside, []), (2 * beside + 1, []), (2 * other, [fabric.cable_name(other)])):
        found = named(fabric, gone=((0, flapping), (2, flapping)), slow=slow)
        assert [one.id for one in found] == [fabric.cable_name(flapping), *names], fabric.class_name(slow)
        assert [one.verdict for one in found] == ["flapping", *["slow"] * len(names)]


def test_a_port_that_nothing_reaches_is_silent(fabric: Fabric) -> None:
    outcome = healthy_outcome(fabric)
    signs = [
        [Sign(flow, 5 not in (flow.source, flow.destination), 0, 0) for flow in one.flows] for one in outcome.rounds
    ]
    (one,) = find_suspects(outcome, signs, [], {}, {})
    assert (one.verdict, one.id) == ("silent", "host5:rail0")


def test_a_route_whose_answers_come_over_an_occupied_link_is_not_named_for_it(fabric: Fabric) -> None:
    (there,) = fabric.joining[fabric.leaf_of(14), fabric.upper[fabric.above[fabric.leaf_of(14)][1]]]
    (back,) = fabric.joining[fabric.leaf_of(9), fabric.upper[there]]
    route = RouteSuspicion((14, 9, (2 * 14, 2 * there, 2 * back + 1, 2 * 9 + 1)), 0.87, 4)
    for number, is_named in ((2 * there + 1, False), (2 * back, False), (2 * there, True), (2 * 9, False)):
        outcome = healthy_outcome(fabric)
        outcome.routes = [route]
        found = find_suspects(outcome, [], [], {number: 0.9}, {})
        assert [one.kind for one in found] == ["route"] * is_named, fabric.class_name(number)


def test_a_port_whose_answers_come_over_a_link_that_others_fill_is_not_slow_for_it(fabric: Fabric) -> None:
    """Flows from host7 have 0.82 of their rate: their ACKs come down its port, which has 0.1 left."""
    up, down = 2 * 7, 2 * 7 + 1

    def found(busy: dict[int, float]) -> list[tuple[str, str]]:
        outcome = searched(fabric, lambda path: 0.1 if down in path else 0.82 if up in path else 1.0)
        return [(one.id, one.direction) for one in find_suspects(outcome, [], [], busy, {})]

    assert found({down: 0.9}) == [("host7:rail0", "down")]


@pytest.mark.parametrize(("slow", "level", "names"), [(0.1, 0.84, 1), (0.1, 0.7, 2), (0.6, 0.84, 2)])
def test_the_other_way_of_a_slow_link_is_not_named_for_its_delayed_answers(
    fabric: Fabric, slow: float, level: float, names: int
) -> None:
    """A link to a spine carries a tenth upwards: flows down it wait for ACKs, unless they are slower than that."""
    up = 2 * fabric.above[fabric.leaf_of(0)][0]
    outcome = searched(fabric, lambda path: slow if up in path else level if up + 1 in path else 1.0)
    delayed = [(one.number, round(one.level, 2)) for one in find_delayed(outcome)]
    assert delayed == [(up + 1, level)] * (names == 1)
    found = [(one.id, one.direction) for one in find_suspects(outcome, [], [], {}, {})]
    assert found[:1] == [(fabric.cable_name(up // 2), "up")] or names == 2
    assert len(found) == names


def test_a_slow_link_elsewhere_is_named_beside_a_slow_link(fabric: Fabric) -> None:
    up, other = 2 * fabric.above[fabric.leaf_of(0)][0], 2 * fabric.above[fabric.leaf_of(15)][1] + 1
    outcome = searched(fabric, lambda path: 0.1 if up in path else 0.84 if other in path else 1.0)
    assert not find_delayed(outcome)
    assert {one.id for one in find_suspects(outcome, [], [], {}, {})} == {
        fabric.cable_name(up // 2),
        fabric.cable_name(other // 2),
    }


def test_a_trace_with_a_gap_or_a_foreign_node_is_no_path(fabric: Fabric) -> None:
    assert find_path(fabric, 0, 4, ("leaf0", "spine1", "leaf1", "host4")) == (0, 2 * 17, 2 * 19 + 1, 9)
    assert find_path(fabric, 0, 1, ("leaf0", "host1")) == (0, 3)
    for nodes in (("leaf0", "?", "leaf1", "host4"), ("leaf0", "spine1", "leaf1"), ("leaf0", "leaf1", "host4"), ()):
        assert find_path(fabric, 0, 4, nodes) is None
