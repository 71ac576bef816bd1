"""`railwright net check --netns` without railwrightd: two namespaces, a veth, and a gateway at its other end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from tests.conftest import COMMAND, PATIENCE_S
from tests.net.fabric import run

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

POD, GATEWAY = f"rw-net-pod-{os.getpid()}", f"rw-net-gateway-{os.getpid()}"


@pytest.fixture
def cable() -> Iterator[None]:
    """A pod with net1, whose gateway answers."""
    for name in (POD, GATEWAY):
        run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", "net1", "netns", POD, "type", "veth", "peer", "name", "net1", "netns", GATEWAY)
        for name, address in ((POD, "10.9.0.2/24"), (GATEWAY, "10.9.0.1/24")):
            run("ip", "-n", name, "link", "set", "net1", "up")
            run("ip", "-n", name, "address", "add", address, "dev", "net1")
        run("ip", "-n", POD, "route", "add", "10.9.0.0/16", "via", "10.9.0.1")
        yield
    finally:
        for name in (POD, GATEWAY):
            run("ip", "netns", "del", name)


def check(*words: str) -> tuple[int, dict[str, dict[str, str]], str]:
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # without railwrightd
    argv = [COMMAND, "net", "check", "--netns", POD, *words]
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {one["check"]: one for one in records if "check" in one}, done.stderr


def test_what_only_the_daemon_knows_is_never_ok(cable: None) -> None:
    status, lines, _ = check("--to", "10.9.0.1")
    states = {name: line["state"] for name, line in lines.items()}
    assert status == 3
    assert [name for name, state in states.items() if state == "ok"] == [
        "interface", "address", "route", "gateway", "reach", "mtu"
    ]  # fmt: skip
    assert set(states.values()) == {"ok", "not looked"}
    for name in ("flows", "bgp", "leaf", "drops", "offload"):
        assert lines[name]["says"] == "railwrightd is not on PATH here"
    assert "railwright net check --pod NAMESPACE/NAME" in lines["flows"]["remedy"]


def test_a_gateway_that_does_not_answer_and_an_mtu_that_is_too_large(cable: None) -> None:
    run("ip", "-n", GATEWAY, "link", "set", "net1", "mtu", "1402")
    status, lines, _ = check("--to", "10.9.0.1")
    assert (status, lines["mtu"]["state"]) == (1, "bad")
    # A veth accepts its MTU plus the four bytes of a VLAN tag (is_skb_forwardable in Linux).
    assert lines["mtu"]["says"] == "net1 sends packets of 1500 bytes, but 10.9.0.1 answers none above 1406"
    run("ip", "-n", GATEWAY, "address", "del", "10.9.0.1/24", "dev", "net1")
    status, lines, _ = check("--to", "10.9.0.1")
    assert status == 1
    assert {name for name, line in lines.items() if line["state"] == "bad"} == {"gateway"}
    assert "10.9.0.1 does not answer ARP" in lines["gateway"]["says"]


def test_a_namespace_without_an_interface_cannot_be_judged() -> None:
    run("ip", "netns", "add", POD)
    try:
        status, lines, err = check()
        assert (status, lines) == (3, {})
        assert "has only the loopback interface" in err
        assert check("--interface", "net9")[0] == 2
    finally:
        run("ip", "netns", "del", POD)
