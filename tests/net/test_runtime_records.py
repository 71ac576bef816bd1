"""The container runtime's records of attachments, and the check of the chain that they hold."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.net.test_checks import changed

from railwright.errors import CannotJudge
from railwright.net.checks import chain
from railwright.net.runtime import find_records, parse_record
from railwright.net.view import Unseen

OWN_NETNS = "/proc/self/ns/net"
OVS = {"type": "ovs", "bridge": "br-rail0"}


def record(*plugins: dict[str, Any], **changes: Any) -> bytes:
    config = json.dumps({"name": "rail0", "plugins": plugins}).encode()
    kept = {
        "kind": "cniCacheV1",
        "containerId": "c1",
        "config": base64.b64encode(config).decode(),
        "ifName": "net1",
        "networkName": "rail0",
        "netns": OWN_NETNS,
        "cniArgs": [["K8S_POD_NAMESPACE", "a"], ["K8S_POD_NAME", "b"]],
        "result": {
            "interfaces": [{"name": "pf0vf2", "mac": "02:00:00:00:00:09"}, {"name": "net1", "mac": "02:00:00:00:00:05",
                                                                            "sandbox": OWN_NETNS}],
            "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 1}],
        },
    }  # fmt: skip
    return json.dumps(kept | changes).encode()


@pytest.mark.parametrize(
    ("plugin", "state", "says"),
    [
        (OVS, "bad", "every 600 ms"),
        (OVS | {"link_state_check_interval": 10}, "bad", "50 ms to come up"),
        (OVS | {"link_state_check_interval": 10, "link_state_check_retries": 300}, "ok", "ovs + railwright-cni"),
        ({"type": "macvlan"}, "ok", "macvlan + railwright-cni"),
    ],
)
def test_a_chain_that_sleeps_in_each_start_of_a_pod_is_bad(plugin: dict[str, Any], state: str, says: str) -> None:
    recorded = parse_record(record(plugin, {"type": "railwright-cni"}), "/file")
    line = chain.CHECK.look(changed(recorded=recorded))
    assert (line.state, says in line.says) == (state, True), line


def test_a_record_tells_both_ends_and_others_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "rail0-c1-net1").write_bytes(record(OVS))
    (tmp_path / "rail1-c0-net2").write_bytes(record(OVS, ifName="net2", netns="/run/netns/gone"))
    (tmp_path / "nonsense").write_bytes(b"{")
    (tmp_path / "deep").write_bytes(b'{"a":' * 10_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    found = find_records(f"/proc/{os.getpid()}/ns/net", str(tmp_path))
    assert isinstance(found, dict)
    assert list(found) == ["net1"]
    one = found["net1"]
    assert (str(one.pod), one.host_interface, one.mac) == ("a/b", "pf0vf2", "02:00:00:00:00:05")
    assert (list(map(str, one.addresses)), list(map(str, one.gateways))) == (["10.1.0.5"], ["10.1.0.1"])
    empty = find_records(OWN_NETNS, str(tmp_path / "folder"))
    assert isinstance(empty, Unseen)
    assert "--cni-results" in empty.remedy
    assert isinstance(find_records(None), Unseen)


@pytest.mark.parametrize("changes", [{"config": "?"}, {"result": {"ips": [{"address": "x"}]}}, {"ifName": 3}])
def test_a_file_that_is_no_record_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(CannotJudge, match="cannot parse /file"):
        parse_record(record(OVS, **changes), "/file")
