"""A simulated search finds the faults and nothing else."""

from random import Random

import pytest

from railwright.diagnosis.localise.evidence import observe
from railwright.diagnosis.localise.fabric import CableSpec, Fabric, build_fabric
from railwright.diagnosis.localise.fat_tree import parse_fat_tree
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.names import Names, route_name
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.localise.records import Fault
from railwright.diagnosis.localise.simulate import Simulator, Weather, share_out
from railwright.diagnosis.localise.trial import Simulated, run
from railwright.diagnosis.localise.truth import apply_faults, draw, parse_draw
from railwright.errors import UsageError


def search(words: str, faults: str, weather: Weather | None = None, **more: object) -> Simulated:
    fabric = parse_fat_tree(words.split())
    given = parse_draw(faults.split())
    seed = int(given["seed"])
    truth = draw(fabric, given)
    return run(fabric, words, truth, weather or Weather(), seed=seed, rounds=Rounds(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        ("hosts=128 gpus=8", "rate=0.005"),
        ("hosts=90 gpus=4 leaf-down=24", "rate=0.01 hosts=1"),
        ("hosts=100 gpus=8 leaf-down=24 oversubscription=3", "rate=0.01 switches=1"),
        ("hosts=125 gpus=4 tiers=3 leaf-down=8", "rate=0.005 line-cards=1"),
        ("hosts=64 gpus=8 leaf-down=16 rails=own", "rate=0.01"),
    ],
)
def test_nearly_every_fault_is_named_and_nearly_nothing_else(words: str, faults: str) -> None:
    several = [search(words, f"{faults} seed={seed}") for seed in range(3)]
    right, wrong, missed = (sum(getattr(one, name) for one in several) for name in ("right", "wrong", "missed"))
    assert right >= 0.97 * (right + missed)
    assert right >= 0.97 * (right + wrong)
    assert all(one.rounds <= 6 for one in several)


def test_a_map_that_is_wrong_for_some_flows_accuses_nobody_and_hides_little() -> None:
    found = search("hosts=256 gpus=8", "rate=0.005 line-cards=1 seed=4", Weather(wrong_map=0.03))
    assert found.precision >= 0.95
    assert found.recall >= 0.95


@pytest.mark.parametrize(
    ("words", "card"),
    [
        ("hosts=200 gpus=2 leaf-down=24 oversubscription=4 rails=own", "leaf8/card0"),
        ("hosts=128 gpus=2 tiers=3 leaf-down=16 oversubscription=4", "leaf6/card0"),
        ("hosts=128 gpus=4 tiers=3 leaf-down=16", "spine4/card0"),
        ("hosts=128 gpus=4 tiers=3 leaf-down=16", "leaf9/card1"),
        ("hosts=192 gpus=4 leaf-down=32", "spine26/card0"),
    ],
)
def test_a_line_card_accuses_neither_its_switch_nor_what_is_cabled_to_it(words: str, card: str) -> None:
    """This also holds if every flow over the rest of the switch crosses the card."""
    fabric = parse_fat_tree(words.split())
    wrong = missed = right = 0
    for seed in range(3):
        truth = apply_faults(fabric, [Fault(kind="line-card", id=card, capacity=0.55 + 0.1 * seed)])
        found = run(fabric, words, truth, Weather(wrong_map=0.03), seed=seed, rounds=Rounds())
        right, wrong, missed = right + found.right, wrong + found.wrong, missed + found.missed
    assert right >= 0.95 * (right + missed)
    assert right >= 0.9 * (right + wrong)


def test_what_lies_on_the_same_flows_counts_as_one() -> None:
    """With two pods each core joins two links: traffic up one comes down the other."""
    fabric = parse_fat_tree(["hosts=48", "gpus=4", "tiers=3", "leaf-down=12"])
    names = {fabric.class_name(number): number for number in range(fabric.classes)}
    assert fabric.twin_of(names["spine0 to core0"]) == fabric.twin_of(names["core0 to spine12"])
    assert fabric.twin_of(names["leaf0 to spine0"]) == names["leaf0 to spine0"]
    rails = parse_fat_tree(["hosts=16", "gpus=4", "leaf-down=8", "rails=own"])
    of_rails = {rails.class_name(number): number for number in range(rails.classes)}
    assert rails.twin_of(of_rails["leaf1 to spine0"]) == rails.twin_of(of_rails["spine0 to leaf5"])
    fault = Fault(kind="link", id="spine0-core0", direction="up", capacity=0.5)
    found = run(fabric, "", apply_faults(fabric, [fault]), Weather(), seed=2, rounds=Rounds())
    assert (found.right, found.wrong, found.missed) == (1, 0, 0)
    (suspect,) = found.suspects
    assert {suspect.id, *suspect.alternatives} & {"spine12-core0", "core0 to spine12"}


def test_a_healthy_fabric_has_no_suspect() -> None:
    for seed in range(5):
        assert not search("hosts=64 gpus=8", f"rate=0 seed={seed}", Weather(lost=0.02)).suspects


def test_a_link_that_others_use_is_called_occupied_or_slow() -> None:
    found = search("hosts=128 gpus=8", "rate=0 occupied=5 seed=2")
    assert {one.verdict for one in found.suspects} <= {"slow", "slow or occupied"}
    assert sum(one.verdict == "slow or occupied" for one in found.suspects) >= 3
    assert {one.id for one in found.suspects} == {one.id for one in found.truth}


def test_slow_uplinks_of_a_whole_leaf_do_not_accuse_its_hosts() -> None:
    fabric = parse_fat_tree(["hosts=16", "gpus=4", "leaf-down=8"])
    faults = [
        Fault(kind="link", id=f"leaf3-spine{spine}", direction="up", capacity=0.5)
        for spine in range(len(fabric.above[fabric.leaf_of(24)]))
    ]
    found = run(fabric, "", apply_faults(fabric, faults), Weather(), seed=1, rounds=Rounds())
    assert (found.wrong, found.missed) == (0, 0)


def test_faults_of_routes_are_found_by_the_cover_that_can_see_them() -> None:
    found = search("hosts=16 gpus=2 leaf-down=8", "rate=0.01 routes=1 pairs=1 seed=5", cover="pair")
    assert found.route_recall == 1
    assert found.route_precision == 1
    found = search("hosts=64 gpus=4 leaf-down=16", "rate=0 routes=3 seed=6", cover="leaf")
    assert (found.route_recall, found.route_precision) == (1, 1)


def test_what_no_flow_can_fill_is_not_called_tested() -> None:
    """A host alone on its leaf reaches one of many uplinks in each round."""
    cables = [CableSpec(f"host{n}", "", f"leaf{n // 16}", "", 1.0) for n in range(17)]
    cables += [CableSpec(f"leaf{leaf}", "", f"spine{spine}", "", 1.0) for leaf in range(2) for spine in range(16)]
    switches = ["leaf0", "leaf1", *(f"spine{spine}" for spine in range(16))]
    fabric = build_fabric([(f"host{n}", "", 0) for n in range(17)], switches, cables)
    found = run(fabric, "", apply_faults(fabric, []), Weather(), seed=1, rounds=Rounds())
    assert found.tested.links_filled < found.tested.links
    assert found.tested.links_filled + found.tested.links_partly + found.tested.links_untested == found.tested.links


def test_two_parts_of_one_chain_are_each_others_alternative() -> None:
    """With a single host per leaf and one spine no flow distinguishes a host's port from its leaf's uplink."""
    fabric = parse_fat_tree(["hosts=4", "gpus=2", "leaf-down=2", "oversubscription=2"])
    fault = Fault(kind="link", id="leaf1-spine0", direction="up", capacity=0.5)
    found = run(fabric, "", apply_faults(fabric, [fault]), Weather(), seed=3, rounds=Rounds(screen=8))
    assert [one for one in found.suspects if one.id == "leaf1-spine0" or "leaf1 to spine0" in one.alternatives]


def test_max_min_sharing_gives_the_rest_to_who_can_use_it() -> None:
    fabric = parse_fat_tree(["hosts=4", "gpus=1", "tiers=1"])
    # Two flows leave port 0, and one of them arrives at a port with a fifth of its capacity.
    rates = share_out(fabric, [1.0, 1.0], [(0, 3), (0, 5)], {3: 0.2})
    assert rates == pytest.approx([0.2, 0.8])


def test_names_of_every_kind_are_read_back(names_fabric: Fabric) -> None:
    names = Names(names_fabric)
    random = Random(1)
    for fault in draw(
        names_fabric, parse_draw(["rate=0.1", "hosts=1", "switches=2", "line-cards=2", "occupied=1"])
    ).faults:
        assert names.classes_of(fault)
    for pair in (False, True):
        for _ in range(20):
            text = draw(names_fabric, parse_draw([f"{'pairs' if pair else 'routes'}=1", "rate=0",
                                                  f"seed={random.randrange(1000)}"])).faults[0].id  # fmt: skip
            assert route_name(names_fabric, names.route(text)) == text


@pytest.fixture
def names_fabric() -> Fabric:
    return parse_fat_tree(["hosts=24", "gpus=2", "tiers=3", "leaf-down=4"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="link", id="leaf0-spine99"),
        Fault(kind="switch", id="leaf0", direction="up"),
        Fault(kind="line-card", id="leaf0/card9"),
        Fault(kind="route", id="leaf0>leaf1"),
        Fault(kind="host", id="host0", capacity=1.5),
    ],
)
def test_faults_that_cannot_be_are_refused(fault: Fault, names_fabric: Fabric) -> None:
    with pytest.raises(UsageError):
        apply_faults(names_fabric, [fault])


def test_a_wrong_map_sends_flows_over_other_links_than_believed() -> None:
    fabric = parse_fat_tree(["hosts=16", "gpus=4"])
    truth = apply_faults(fabric, [])
    found = run(fabric, "", truth, Weather(noise=0, interference=0, wrong_map=0.1), seed=1, rounds=Rounds())
    assert found.background > 0.02
    assert Simulator(fabric, truth, Weather(), 1).bytes_per_rate == 0


@pytest.mark.parametrize(("below", "leaves"), [(8, 4), (4, 4), (2, 4)])
def test_a_slow_uplink_that_several_share_accuses_nobody_below_it(below: int, leaves: int) -> None:
    """With one spine all traffic of a leaf shares one link; if both directions are slow, half of all flows are."""
    hosts = [f"host{number}" for number in range(below * leaves)]
    cables = [CableSpec(host, "", f"leaf{number // below}", "", 1.0) for number, host in enumerate(hosts)]
    cables += [CableSpec(f"leaf{leaf}", "", "spine0", "", below) for leaf in range(leaves)]
    fabric = build_fabric(
        [(host, "", 0) for host in hosts], [*(f"leaf{leaf}" for leaf in range(leaves)), "spine0"], cables
    )
    for seed, capacity in enumerate((0.5, 0.5, 0.82, 0.3, 0.7, 0.6)):
        truth = apply_faults(fabric, [Fault(kind="link", id="leaf0-spine0", direction="both", capacity=capacity)])
        found = run(fabric, "", truth, Weather(), seed=seed, rounds=Rounds())
        assert (found.right, found.wrong, found.missed) == (2, 0, 0), (seed, found.suspects)


def test_rounds_in_which_nothing_arrived_have_suspects_and_no_error() -> None:
    fabric = parse_fat_tree(["hosts=4", "gpus=1", "leaf-down=2"])
    evidence = observe(fabric, [Round([Flow(0, 1, (0,), 1.0)], [0.0])])
    assert evidence.slow_flows() == [0]
