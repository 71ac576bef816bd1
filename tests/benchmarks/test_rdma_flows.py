"""Flows of RDMA writes between many ranks over the stand-in for libibverbs: several ports, choices, flows that fail."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

from typing import Any

import pytest
from tests.benchmarks.test_rdma import Pair, pair, verbs  # noqa: F401 - fixtures

pytestmark = pytest.mark.machine

WRITE_BYTES = 256 * 1024
RING = [[0, 1], [1, 2], [2, 0]]
BACK = [[1, 0], [2, 1], [0, 2]]


def seen(done: dict[str, Any], end: str) -> dict[tuple[int, str, str], dict[str, Any]]:
    """Return the records of one end by round, source and destination."""
    return {
        (one["settings"]["round"], one["settings"]["source_address"], one["settings"]["destination_address"]): one
        for one in done["flows"]
        if one["settings"]["end"] == end
    }


def test_flows_go_over_the_named_ports_at_once_and_every_byte_is_checked(pair: Pair) -> None:
    names = ["a:fake0+fake0/2", "b:fake0+fake0/2", "c:fake0"]
    (done,) = pair([{"addresses": names, "rounds": [RING, BACK]}])
    assert (done["errors"], done["hung"], done["regions"]) == ([""] * 3, False, 0)
    received = seen(done, "received")
    assert len(received) == len(seen(done, "sent")) == 6
    for (_, source, destination), one in received.items():
        lanes = 1 if "c:fake0" in (source, destination) else 2
        assert (one["checked"], one["wrong"]) == (lanes * WRITE_BYTES, 0)
        assert one["rates"][0] > 0
        assert one["settings"]["mtu_bytes"] == 4096
    assert all(one["settings"]["trouble"] == "" for one in seen(done, "sent").values())


def test_a_port_that_is_down_fails_its_own_flows_with_the_cause(pair: Pair) -> None:
    case = {"addresses": ["a:fake0", "b:fake0", "c:fake0/2"], "rounds": [RING, BACK]}
    (done,) = pair([case | {"set": {"STANDIN_VERBS_DOWN": "fake0:2"}}])
    assert (done["errors"], done["hung"], done["regions"]) == ([""] * 3, False, 0)
    assert {ends[1:] for ends in seen(done, "received")} == {("a:fake0", "b:fake0"), ("b:fake0", "a:fake0")}
    for (_, source, destination), one in seen(done, "sent").items():
        failed = "c:fake0/2" in (source, destination)
        trouble = "c:fake0/2: RDMA port fake0:2 is not active" if failed else ""
        assert (one["settings"]["trouble"], one["settings"]["source_port"]) == (trouble, -1 if failed else 0)
        assert one["settings"].get("reached", True) is not failed


def test_addresses_choose_ports_and_gids_also_with_ipv6_alone(pair: Pair) -> None:
    two = {"rounds": [[[0, 1], [1, 0]]]}
    ipv6 = {"STANDIN_VERBS_GIDS": "0:1/fe80::1 1:2/fe80::1 4:2/fd00::7"}
    cases = [
        two | {"addresses": ["fd00::7", "fd00::7"], "set": ipv6},
        two | {"addresses": ["fe80::1", "fe80::1"], "set": ipv6},
        two | {"addresses": ["10.9.9.9", "10.9.9.9"], "set": ipv6 | {"STANDIN_VERBS_DOWN": "fake0:2"}},
        two | {"addresses": ["10.9.9.9", "10.9.9.9"], "set": ipv6},
    ]
    done = pair(cases)
    for one in done[:3]:
        assert (one["errors"], one["hung"], set(seen(one, "received"))) == (["", ""], False, set(seen(one, "sent"))), (
            one
        )
        assert all(sent["settings"]["trouble"] == "" for sent in seen(one, "sent").values())
    for sent in seen(done[3], "sent").values():
        assert "several RDMA ports are active, and none has the address 10.9.9.9" in sent["settings"]["trouble"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("wc:3:12", "completion with error"),
        ("post_send:6:5", "ibv_post_send"),
        ("lost:3:0", ""),
        ("modify_qp:2:5", "modify_qp"),
        ("reg_mr:1:12", "ibv_reg_mr"),
    ],
)
def test_a_flow_that_breaks_is_told_and_takes_no_other_with_it(pair: Pair, fault: str, told: str) -> None:
    names = ["a:fake0", "b:fake0", "c:fake0", "d:fake0"]
    (done,) = pair([{"addresses": names, "rounds": [[[0, 1], [2, 3]], [[1, 0], [3, 2]]], "fault": fault}])
    assert (done["errors"], done["hung"], done["regions"]) == ([""] * 4, False, 0), done
    sent, received = seen(done, "sent"), seen(done, "received")
    failed = [ends for ends, one in sent.items() if one["settings"]["trouble"]]
    assert len(failed) == 1, sent
    assert told in sent[failed[0]]["settings"]["trouble"]
    assert sent[failed[0]]["settings"]["reached"] is False
    assert set(received) == set(sent) - set(failed)
