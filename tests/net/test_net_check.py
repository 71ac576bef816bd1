"""`railwright net check` on a real fabric: each test breaks a part, and exactly the line for that part turns bad.

Each test restores the fabric, by the remedy of the line if that is a command.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import COMMAND, PATIENCE_S, running, wait_until
from tests.net.fabric import Answer, Fabric, held_fabric, ip_netns, needs_fabric, run
from tests.schemas import fits

from railwright.net.checks.registry import CHECKS
from railwright.net.railwrightd import read_flows, read_list, read_status

pytestmark = [pytest.mark.machine, needs_fabric, pytest.mark.timeout(1500)]

WITHOUT = ("--without", "isolation")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with held_fabric(tmp_path_factory.mktemp("fabric")) as held:
        yield held


def follow(remedy: str) -> None:
    """Run the command at the start of the remedy, as a person would."""
    run(*shlex.split(remedy.partition("; ")[0]))


def expect_all_ok(answer: Answer) -> None:
    assert answer.lines, answer.err
    assert {line["state"] for line in answer.lines} == {"ok"}, answer.words()
    assert answer.status == 0


def expect_all_ok_once_bgp_is(fabric: Fabric) -> None:
    """Assert that all lines become ok. Until then, only net1's BGP and the failures that it explains may be bad."""
    end = time.monotonic() + PATIENCE_S
    answer = fabric.check(*fabric.all_ends)
    while (bad := set(answer.of("net1", "bad"))) and bad <= {"bgp", "leaf", "reach", "mtu"} and time.monotonic() < end:
        assert not answer.of("net2", "bad"), answer.words()
        answer = fabric.check(*fabric.all_ends)
    expect_all_ok(answer)


def expect_bad(answer: Answer, wanted: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Assert that exactly the wanted check of each interface is bad, and return these lines by interface."""
    found = {name: answer.of(name, "bad") for name in wanted}
    assert {name: list(bad) for name, bad in found.items()} == {name: [one] for name, one in wanted.items()}, (
        answer.words()
    )
    assert answer.status == 1
    return {name: found[name][one] for name, one in wanted.items()}


def test_a_healthy_pod_is_ok_in_everything(fabric: Fabric) -> None:
    answer = fabric.check(*fabric.all_ends)
    expect_all_ok(answer)
    assert [line["interface"] for line in answer.lines] == ["net1"] * len(CHECKS) + ["net2"] * len(CHECKS)
    for line in answer.lines:
        fits(line, "net-check")
        assert line["evidence"], line
    of_net1 = answer.of("net1", "ok")
    assert of_net1["isolation"]["says"].startswith("0 of 80 packets arrived")
    assert "10.1.1.2 via 192.0.2.3 (bgp)" in of_net1["leaf"]["says"]
    assert {"claim": "10.1.1.2/32", "value": "sent to 192.0.2.2", "seen": "vtysh"} in of_net1["bgp"]["evidence"]
    # A pod without peers of its tenant, and a leaf that cannot be asked: a check that could not look is never ok.
    alone = fabric.check(pod=f"{fabric.stranger['namespace']}/{fabric.stranger['name']}")
    assert alone.status == 3
    assert set(alone.of("net1", "not looked")) == {"leaf", "reach", "mtu", "offload"}


def test_packets_are_sent_again_if_the_datapath_has_forgotten_their_flows(fabric: Fabric, tmp_path: Path) -> None:
    """A flow is gone 10 s after its last packet. On a busy machine it may take that long until the flows are read."""
    forgot, program = tmp_path / "forgot", tmp_path / "railwrightd"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = flows ] && ! [ -e {forgot} ]; then touch {forgot}; echo "[]"; exit; fi\n'
        f'exec {fabric.told["railwrightd"]} "$@"\n'
    )
    program.chmod(0o755)
    answer = fabric.check(*fabric.all_ends, *WITHOUT, f"--railwrightd={program}")
    assert forgot.exists()
    expect_all_ok(answer)
    assert answer.of("net1", "ok")["offload"]["says"].startswith("0 of ")


def test_what_the_daemon_prints_fits_its_schemas_and_is_read(fabric: Fabric) -> None:
    for verb, read in (("list", read_list), ("status", read_status), ("flows", read_flows)):
        said = ip_netns(fabric.node["netns"], *fabric.asks(verb))
        fits(json.loads(said), f"railwrightd-{verb}")
        assert read(said), verb


def test_what_a_pod_has_lost_is_named_and_the_remedy_brings_it_back(fabric: Fabric) -> None:
    """Break something on each rail at once: the rails are independent."""
    gateway, pod = "10.1.1.1", fabric.pod["netns"]
    macs = {one["name"]: one["mac"] for one in fabric.pod["interfaces"]}
    breaks = [
        ({"net1": "route", "net2": "mtu"}, "ip route del 10.1.0.0/16 dev net1", "ip link set net2 mtu 1500"),
        ({"net1": "gateway", "net2": "address"},
         f"ip neighbour replace {gateway} lladdr 02:00:00:00:09:09 dev net1 nud permanent",
         "ip -6 address del fd00:2:1::2/64 dev net2"),
        ({"net1": "address", "net2": "interface"}, "ip address add 10.1.1.77/24 dev net1",
         "ip link set net2 address 02:00:00:00:09:09"),
    ]  # fmt: skip
    for wanted, *commands in breaks:
        for command in commands:
            ip_netns(pod, *command.split())
        for line in expect_bad(fabric.check(*fabric.all_ends, *WITHOUT), wanted).values():
            follow(line["remedy"])
    expect_all_ok(fabric.check(*fabric.all_ends))
    assert {one["name"]: one["mac"] for one in fabric.pod["interfaces"]} == macs


def test_an_interface_that_is_down_is_mended_remedy_by_remedy(fabric: Fabric) -> None:
    """The kernel removes routes and IPv6 addresses as well, so each run names the next thing to fix."""
    other = fabric.pods[1]
    name = f"{other['namespace']}/{other['name']}"
    words = (*fabric.all_ends, *WITHOUT, "--interface", "net1")
    fabric.inside(other, "ip", "link", "set", "net1", "down")
    mended = []
    for _ in range(6):
        answer = fabric.check(*words, pod=name)
        if answer.status == 0:
            break
        (line,) = answer.of("net1", "bad").values()
        mended.append(line["check"])
        follow(line["remedy"])
    assert mended == ["interface", "address", "route", "route"]
    expect_all_ok(answer)


def test_a_path_that_is_narrower_than_the_pod_is_measured(fabric: Fabric) -> None:
    rail = fabric.told["nodes"][1]["rails"][0]
    port = ("ip", "-n", rail["leaf_netns"], "link", "set", rail["leaf_port"], "mtu")
    try:
        run(*port, "1331")
        peer = ("--peer-netns", fabric.remote["netns"], "--without", "leaf")
        answer = fabric.check(*peer, *WITHOUT, "--interface", "net1")
        line = expect_bad(answer, {"net1": "mtu"})["net1"]
        assert "sends packets of 1400 bytes" in line["says"]
        assert line["says"].endswith("answers none above 1331"), line
    finally:
        run(*port, "1500")


def test_a_session_that_is_down_and_a_leaf_that_does_not_forward(fabric: Fabric) -> None:
    """On rail 0 the node's BGP session is shut down. On rail 1 the leaf prefers another route to that of BGP."""
    session = [f"router bgp {asn_of(fabric)}", f"neighbor {fabric.node['rails'][0]['leaf_address']} shutdown"]
    route = ("unreachable", "10.2.1.2/32", "metric", "1")
    in_leaf = ("ip", "-n", fabric.leaf["rail1"]["netns"], "route")
    run(*in_leaf, "add", *route)
    try:
        fabric.vtysh("configure terminal", *session)
        answer = fabric.check(*fabric.all_ends, *WITHOUT)
        lines = expect_bad(answer, {"net1": "bgp", "net2": "leaf"})
        assert "session of rail0 with its leaf is down" in lines["net1"]["says"]
        assert "does not forward to 10.2.1.2" in lines["net2"]["says"]
        # Its consequences are not reported as further faults.
        explained = answer.of("net1", "not looked")
        assert set(explained) == {"leaf", "reach", "mtu"}
        assert all("the failed check bgp would explain it" in line["says"] for line in explained.values())
    finally:
        fabric.vtysh("configure terminal", session[0], f"no {session[1]}")
        run(*in_leaf, "del", *route)
    leaf = fabric.leaf["rail0"]["netns"]
    wait_until(lambda: "via" in run("ip", "-n", leaf, "route", "show", "10.1.1.2"), "the leaf has the route again")
    wait_until(fabric.settled, "the session is back")


def asn_of(fabric: Fabric) -> str:
    config = Path(fabric.node["config"]).read_text()
    return config.partition("asn: ")[2].split("}")[0].split()[0].rstrip(",")


def test_a_port_that_left_the_bridge_has_no_flows(fabric: Fabric) -> None:
    database = f"--db=unix:{fabric.node['openvswitch']['database']}"
    port, bridge = fabric.pod["interfaces"][0]["port"], fabric.node["rails"][0]["bridge"]
    told = json.loads(run("ovs-vsctl", database, "--format=json", "--columns=external_ids", "list", "port", port))
    ids = [f"external_ids:{key}={json.dumps(value)}" for key, value in told["data"][0][0][1]]
    run("ovs-vsctl", database, "del-port", bridge, port)
    try:
        wait_until(lambda: wanted_flows(fabric) == 0, "the daemon has seen that the port is gone")
        answer = fabric.check(*fabric.all_ends)
        assert port in expect_bad(answer, {"net1": "flows"})["net1"]["says"]
        # That nothing arrived at the other tenant's pod proves nothing now.
        assert "which proves nothing" in answer.of("net1", "not looked")["isolation"]["says"]
        assert not answer.of("net2", "bad"), answer.words()
    finally:
        run("ovs-vsctl", database, "add-port", bridge, port, "--", "set", "port", port, *ids)
    wait_until(lambda: wanted_flows(fabric), "the daemon has seen that the port is back")


def test_a_flow_that_lets_another_tenant_in_is_seen_by_packets(fabric: Fabric) -> None:
    """The flow that drops packets between tenants is changed. The number of flows is not, so no count reveals it."""
    passes = next(one for one in fabric.ofctl(1, "dump-flows", _PAIRS).split() if one.startswith("actions=goto_table"))
    for _ in range(3):
        fabric.ofctl(1, "mod-flows", f"{_PAIRS},priority=0,{passes}")
        answer = fabric.check(*fabric.all_ends, "--interface", "net2")
        if f"priority=0 {passes}" in fabric.ofctl(1, "dump-flows", _PAIRS):
            break  # otherwise railwrightd has repaired it, as it does each minute
    fabric.ofctl(1, "mod-flows", f"{_PAIRS},priority=0,actions=drop")
    says = expect_bad(answer, {"net2": "isolation"})["net2"]["says"]
    assert says.startswith("40 of 40 packets of red-1/"), says


_PAIRS = "table=30"  # the pairs that may communicate: node/docs/network.md


def wanted_flows(fabric: Fabric) -> int:
    mine = fabric.pod["interfaces"][0]["port"]
    return next(one["flows_wanted"] for one in fabric.attached() if one["host_interface"] == mine)


def test_inside_a_pod_it_says_what_it_cannot_see(fabric: Fabric) -> None:
    """Inside the pod, without the daemon and the peer's namespace, packets are still sent."""
    to = fabric.remote["interfaces"][0]["ipv4"]
    argv = ["nsenter", f"--net=/run/netns/{fabric.pod['netns']}", COMMAND, "net", "check", "--to", to]
    # readline of Python sets COLUMNS for children that do not get this environment.
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, env=dict(os.environ))
    assert done.returncode == 3, done.stdout + done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("  ok")]
    assert {words[1] for words in told} >= {"interface", "address", "route", "gateway", "reach", "mtu"}
    assert "on the pod's node, as root: railwright net check --pod NAMESPACE/NAME" in done.stdout
    assert "Exit status 3: something could not be checked" in done.stdout


def test_packets_that_are_not_the_pods_own_are_told(fabric: Fabric) -> None:
    """A program in the pod sends frames from another MAC address during the check."""
    program = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('net1', 0x88b5))\n"
        "while True: s.send(b'\\xff' * 6 + b'\\x02' * 6 + b'\\x88\\xb5' + bytes(60)); time.sleep(0.01)\n"
    )
    argv = ["ip", "netns", "exec", fabric.pod["netns"], sys.executable, "-c", program]
    with running(argv):
        answer = fabric.check(*fabric.all_ends, *WITHOUT)
    assert "as spoofed" in expect_bad(answer, {"net1": "drops"})["net1"]["says"]
    assert not answer.of("net2", "bad")


def test_one_that_is_killed_leaves_nothing_behind(fabric: Fabric) -> None:
    mark = f"RAILWRIGHT_NET_TEST={os.getpid()}"
    argv = fabric.argv("--pod", f"{fabric.pod['namespace']}/{fabric.pod['name']}", *fabric.daemon, *fabric.all_ends)
    name, _, value = mark.partition("=")
    started = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, name: value}
    )
    wait_until(lambda: any("hear" in words for words in marked(mark)), "somebody listens at the other tenant's pod")
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    wait_until(lambda: not marked(mark), "its children have ended", 10.0)


def marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_misuse_is_told_with_the_next_step(fabric: Fabric) -> None:
    for words, message in [
        (("--pod", "red-1/nobody"), "there is no pod on this node named 'red-1/nobody'"),
        (("--pod", "a/b", "--netns", "x"), "--pod and --netns exclude each other"),
        ((), "on a node the pod must be named"),
        (("--netns", "/etc/passwd"), "/etc/passwd is not a network namespace"),
        (("--netns", fabric.pod["netns"], "--to", "fe80::1"), "--to must be a pod's address, got fe80::1"),
        (("--netns", fabric.pod["netns"], "--without", "mtus"), "there is no check named 'mtus'"),
        (("--netns", fabric.pod["netns"], "--stranger-netns", fabric.pods[1]["netns"]), "may be reached"),
    ]:
        done = fabric.check(*words, pod="")
        assert (done.status, done.lines) == (2, ()), (words, done)
        assert message in done.err
        assert "hint: " in done.err


def test_without_the_daemon_only_what_was_looked_at_is_ok(fabric: Fabric) -> None:
    """The daemon is killed and the flows are deleted. Packets show it, and checks that need the daemon cannot look."""
    netns = f"/run/netns/{fabric.pod['netns']}"
    with fabric.without_daemon():
        asked = fabric.check()
        # The container runtime's records name the pod's namespace too.
        assert asked.status == 3
        assert set(asked.of("net1", "ok")) >= {"interface", "chain", "address", "gateway"}, asked.words()
        assert "no railwrightd answers at" in asked.of("net1", "not looked")["flows"]["says"]
        fabric.ofctl(0, "del-flows")
        answer = fabric.check("--netns", netns, *fabric.all_ends, pod="")
    assert answer.status == 1
    assert set(answer.of("net1", "bad")) == {"gateway"}, answer.words()
    assert not answer.of("net2", "bad"), answer.words()
    for name in ("net1", "net2"):
        assert {"flows", "leaf", "drops", "offload", "isolation"} <= set(answer.of(name, "not looked"))
    assert answer.of("net2", "ok")["bgp"]["says"].startswith("FRR has sent the addresses to 192.0.2.")
    # Without flows, the leaf may have ended its session after 9 s. It then comes back by itself.
    expect_all_ok_once_bgp_is(fabric)
