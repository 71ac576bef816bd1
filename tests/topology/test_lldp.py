"""Cables from the output of lldpd."""

import json
from pathlib import Path

import pytest

from railwright.diagnosis.localise.cabling import check_cabling
from railwright.errors import UsageError
from railwright.topology.cabling import Port, parse_cables
from railwright.topology.sources.lldp import parse_lldp_cabling

RECORDED = Path(__file__).parents[2] / "testdata/lldpctl"
TEXTS = {file.stem: file.read_text() for file in RECORDED.glob("*.json")}


def test_both_ends_of_a_cable_are_one_cable() -> None:
    found = parse_lldp_cabling(TEXTS)
    assert [set(cable) for cable in found.cables] == [{Port("host0", "eth0"), Port("leaf0", "swp1")}]
    assert parse_lldp_cabling({"host0": TEXTS["host0"]}).cables == ((Port("host0", "eth0"), Port("leaf0", "swp1")),)


def test_exchanged_cables_are_one_finding() -> None:
    def heard(port: str) -> dict[str, object]:
        return {"via": "LLDP", "chassis": {"leaf0": {}}, "port": {"id": {"type": "ifname", "value": port}}}

    planned = parse_cables([("host0", "eth0", "leaf0", "swp1"), ("host0", "eth1", "leaf0", "swp2")])
    several = {"lldp": {"interface": [{"eth0": heard("swp2")}, {"eth1": heard("swp1")}]}}
    (finding,) = check_cabling(planned, parse_lldp_cabling({"host0": json.dumps(several)})).findings
    assert finding.kind == "exchanged"
    assert not check_cabling(planned[:1], parse_lldp_cabling(TEXTS)).findings


def test_a_node_known_only_from_others_is_not_in_looked_at() -> None:
    planned = parse_cables([("host0", "eth0", "leaf0", "swp1"), ("leaf0", "swp9", "spine0", "1")])
    found = check_cabling(planned, parse_lldp_cabling({"host0": TEXTS["host0"]}))
    assert (found.right, found.findings, found.not_looked_at) == (1, (), ("leaf0", "spine0"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lldp": 3}', '{"lldp": []}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="host0: not the output of lldpctl"):
        parse_lldp_cabling({"host0": text})


@pytest.mark.parametrize("interface", ["3", "[1, null]", '{"eth0": 3}', '{"eth0": {"chassis": [], "port": 1}}'])
def test_empty_interfaces_give_no_cable(interface: str) -> None:
    assert parse_lldp_cabling({"host0": f'{{"lldp": {{"interface": {interface}}}}}'}).cables == ()
