"""Settings of ports from programs: dcb, mlnx_qos, ethtool."""

import pytest

from railwright.topology.sources.port_settings import (
    ask_port,
    is_representor,
    parse_dcb_dscp,
    parse_dcb_lossless,
    parse_mlnx_qos_dscp,
    parse_mlnx_qos_lossless,
    parse_pause,
    parse_tc_offload,
)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            '{"pfc-cap":8,"macsec-bypass":false,"delay":0,"prio_pfc":[false,false,false,true,false,false,false,false]}',
            (3,),
        ),
        ('[{"prio_pfc":[0,0,1,1,0,0,0,0]}]', (2, 3)),
        ('{"prio_pfc":[false,false]}', ()),
        ('{"prio_pfc":"on"}', None),
        ('{"prio_pfc":[7]}', None),
        ("Attribute read: Operation not supported", None),
        ("[]", None),
    ],
)
def test_dcb_gives_lossless_priorities(output, expected):
    assert parse_dcb_lossless(output) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"default_prio":[0],"dscp_prio":[[46,5],[26,3]]}', ((26, 3), (46, 5))),
        ('[{"dscp_prio":[[26,3]]}]', ((26, 3),)),
        ('{"default_prio":[0]}', ()),
        ("{}", ()),
        ('{"dscp_prio":[[64,3]]}', None),
        ('{"dscp_prio":[[26,8]]}', None),
        ('{"dscp_prio":"26:3"}', None),
        ("Attribute read: Operation not supported", None),
        ("", None),
    ],
)
def test_dcb_gives_the_dscp_table(output, expected):
    assert parse_dcb_dscp(output) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('[{"ifname":"eth2","autonegotiate":false,"rx":true,"tx":false}]', (True, False)),
        (
            '[ {\n "ifname": "eth2",\n "rx": false,\n "tx": false } ]',
            (False, False),
        ),
        ('[{"ifname":"eth2","rx":"on","tx":"off"}]', None),
        ("netlink error: Operation not supported\n[ ]", None),
        ("[ ]", None),
        ("", None),
    ],
)
def test_ethtool_gives_pause_frames(output, expected):
    assert parse_pause(output) == expected


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ('"hw-tc-offload": {"active": true, "fixed": false, "requested": true}', True),
        ('"hw-tc-offload": {"active": false, "fixed": false, "requested": false}', False),
        ('"hw-tc-offload": {"active": false, "fixed": true, "requested": false}', None),
        ('"hw-tc-offload": "on"', None),
        ('"rx-checksumming": {"active": true, "fixed": true, "requested": false}', None),
    ],
)
def test_ethtool_gives_the_offload_of_flows(feature, expected):
    assert parse_tc_offload(f'[{{"ifname": "eth2", {feature}}}]') is expected


def test_representors_are_skipped(tmp_path):
    for name, expected in {"pf0vf3": True, "c1pf0sf8": True, "p0": False}.items():
        (tmp_path / "phys_port_name").write_text(f"{name}\n")
        assert is_representor(tmp_path) is expected
    assert not is_representor(tmp_path / "none")


QOS = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
        prio:0 dscp:07,06,
        prio:3 dscp:26,
PFC configuration:
        priority    0   1   2   3   4   5   6   7
        enabled     0   0   0   1   0   0   0   0
tc: 3 ratelimit: unlimited, tsa: vendor
         priority:  3
"""


def test_mlnx_qos_replaces_a_missing_dcb():
    assert parse_mlnx_qos_lossless(QOS) == (3,)
    assert parse_mlnx_qos_dscp(QOS) == ((6, 0), (7, 0), (26, 3))
    assert parse_mlnx_qos_dscp(QOS.replace("state: dscp", "state: pcp")) == ()


@pytest.mark.parametrize("output", ["", "Interface eth2 not found", QOS.replace("1   0", "2   0") * 2, QOS[:20]])
def test_other_text_than_mlnx_qos_is_ignored(output):
    assert parse_mlnx_qos_lossless(output) is None
    assert parse_mlnx_qos_dscp(output) is None


def test_mlnx_qos_fills_only_the_gaps_of_dcb():
    pfc, app = '{"prio_pfc":[false,true]}', '{"dscp_prio":[[26,3]]}'
    for dcb, qos, expected in (
        ({"pfc": pfc, "app": app}, QOS, ((1,), ((26, 3),))),
        ({"pfc": pfc}, QOS, ((1,), ((6, 0), (7, 0), (26, 3)))),
        ({"pfc": pfc}, None, ((1,), None)),
        ({}, QOS, ((3,), ((6, 0), (7, 0), (26, 3)))),
    ):
        answers = {("dcb", word): output for word, output in dcb.items()} | {("mlnx_qos", "eth2"): qos}
        found = ask_port(lambda program, *words, answers=answers: answers.get((program, words[1])), "eth2")
        assert (found.lossless, found.dscp) == expected
