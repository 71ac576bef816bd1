"""Observed cables are compared with the plan: each difference is reported once, and healthy fabrics have none."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from railwright.diagnosis.localise.cabling import check_cabling, fabric_of_cables
from railwright.errors import UsageError
from railwright.topology.cabling import Cable, Cabling, Port, parse_cables
from railwright.topology.sources.ibnetdiscover import parse_cabling

RECORDED = Path(__file__).parents[3] / "testdata/external/ibnetdiscover"
ROWS = [
    *((f"host{host}", "1", f"leaf{host // 2}", f"{host % 2 + 1}") for host in range(8)),
    *((f"leaf{leaf}", f"{spine + 3}", f"spine{spine}", f"{leaf + 1}") for leaf in range(4) for spine in range(2)),
]
PLAN = parse_cables(ROWS)
ALL = frozenset(port.end for cable in PLAN for port in cable)


def recorded(name: str) -> Cabling:
    return parse_cabling((RECORDED / name).read_text())


def test_a_fabric_that_is_cabled_as_planned_has_no_finding() -> None:
    found = check_cabling(PLAN, recorded("leaf-spine.txt"))
    assert (found.planned, found.right, found.findings, found.not_looked_at) == (16, 16, (), ())


def test_exchanged_moved_and_missing_cables_are_named_with_what_to_do() -> None:
    found = check_cabling(PLAN, recorded("leaf-spine-miscabled.txt"))
    assert {one.kind: one.action for one in found.findings} == {
        "exchanged": "exchange the plugs at spine1 port 2 and spine0 port 2",
        "elsewhere": "move the plug from leaf2 port 7 to leaf2 port 1",
        "missing": "plug in the cable leaf3 port 4 ↔ spine1 port 4; "
        "if it is plugged in, check whether both ports are up",
    }
    assert (len(found.findings), found.right) == (3, 12)


def test_random_exchanges_are_found_each_once() -> None:
    for seed in range(60):
        random = Random(seed)
        cables = list(PLAN)
        first, second = random.sample(range(16), 2)
        (a, b), (c, d) = cables[first], cables[second]
        cables[first], cables[second] = (a, d), (c, b)
        found = check_cabling(PLAN, Cabling(tuple(random.sample(cables, 16)), ALL))
        assert [one.kind for one in found.findings] == ["exchanged"], seed
        assert found.right == 14


def test_what_nobody_looked_at_is_neither_right_nor_missing() -> None:
    seen = Cabling(tuple(cable for cable in PLAN if "leaf3" not in {port.end for port in cable}), ALL - {"leaf3"})
    found = check_cabling(PLAN, seen)
    assert (found.findings, found.not_looked_at, found.right) == ((), ("leaf3",), 12)
    extra: Cable = (Port("leaf0", "8"), Port("leaf1", "8"))
    found = check_cabling(PLAN, Cabling((*PLAN, extra), ALL))
    assert [(one.kind, one.ports) for one in found.findings] == [("not planned", ("leaf0 port 8", "leaf1 port 8"))]


def test_planned_cables_make_the_fabric_that_is_searched() -> None:
    fabric = fabric_of_cables(PLAN)
    assert fabric.hosts == tuple(f"host{n}" for n in range(8))
    assert fabric.switches == ("leaf0", "leaf1", "leaf2", "leaf3", "spine0", "spine1")
    assert [fabric.cable_name(n) for n in (0, 8)] == ["host0:1", "leaf0-spine0"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", "1", "b", "1"), ("a", "1", "c", "1")], "both end at a port 1"),
        ([("a", "", "b", "1")], "empty or invalid name"),
        ([("a", "1", "b", "1"), ("b", "2", "a", "2")], "form a cycle"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(rows: list[tuple[str, str, str, str]], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        fabric_of_cables(parse_cables(rows))


def test_names_of_nodes_and_text_of_something_else() -> None:
    text = (
        'Switch 40 "S-1" # "MF0;leaf7:MQM8700/U1" enhanced port 0\n[1] "H-1"[1](a) # "host5 mlx5_3" lid 9 4xHDR\n\n'
        'Ca 1 "H-1" # "host5 mlx5_3"\n[1](a) "S-1"[1] # lid 9 lmc 0 "MF0;leaf7:MQM8700/U1" lid 2 4xHDR\n'
    )
    assert parse_cabling(text).cables == ((Port("leaf7", "1"), Port("host5", "mlx5_3")),)
    for bad, says in (("hello\n", "no switch"), (text + "\n" + text.replace('"S-1"', '"S-2"'), "are both called")):
        with pytest.raises(UsageError, match=says):
            parse_cabling(bad)
    assert parse_cabling(text.replace("host5", "\x1b[31m")).cables[0][1].end.isprintable()
