"""Real labs on this machine, with FRR, Open vSwitch and the kernel, leave nothing behind."""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest
from tests.conftest import COMMAND, PATIENCE_S, ROOT, wait_until

pytestmark = pytest.mark.machine

FRR10 = ROOT / ".cache/frr10"
NAMES = ("tone",)
HAS_FRR10 = (FRR10 / "usr/lib/frr/bgpd").exists()
HAS_OVS = shutil.which("ovs-vsctl") is not None
SHAPE = ("hgx-h100", "nics=1")

needs_lab = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/lib/frr/bgpd").exists(), reason="waived: a lab needs root and FRR"
)


def lab(*words: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RAILWRIGHT_FRR10": str(FRR10)}
    done = subprocess.run([COMMAND, "lab", *words], capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert status is None or done.returncode == status, done.stderr + done.stdout
    return done


def left() -> list[str]:
    """Return the remains of these tests' labs."""
    found = [str(path) for path in Path("/run/netns").glob("rw-t*")] if Path("/run/netns").is_dir() else []
    found += [str(path) for path in Path("/run/frr").glob("rw-t*")] if Path("/run/frr").is_dir() else []
    found += [str(Path("/run/railwright/labs") / name) for name in NAMES]
    found = [path for path in found if Path(path).exists()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
                if any(f"/run/railwright/labs/{name}/" in words for name in NAMES):
                    found.append(words)
    return found


def made_of(name: str) -> int:
    """Count the namespaces of a lab."""
    return len(list(Path("/run/netns").glob(f"rw-{name}*")))


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    for name in NAMES:
        if Path(f"/run/railwright/labs/{name}").exists():
            lab("down", "--name", name)
    wait_until(lambda: not left(), "the end of all that labs made")


def up(name: str, *more: str, count: int = 2) -> None:
    lab("up", *SHAPE, "--count", str(count), "--name", name, *more)


@pytest.fixture(scope="module")
def shared():
    """A lab that no test breaks: 4 hosts, links of 50 Mb/s, Open vSwitch if installed. Yields its name."""
    name = "shared"
    lab("down", "--name", name, status=None)
    up(name, "--rate", "50Mb/s", "--mtu", "4200", *(["--ovs"] if HAS_OVS else []), count=4)
    yield name
    lab("down", "--name", name)


def inside(name: str, node: str, *argv: str) -> str:
    return lab("exec", "--name", name, node, "--", *argv).stdout


@needs_lab
def test_hosts_reach_each_other_by_ipv4_and_ipv6_over_leaf_spine_leaf(shared):
    for address in ("10.0.0.4", "fd72:6169:6c00:1::4", "10.255.0.4"):
        said = inside(shared, "host0", "ping", "-n", "-c", "2", "-i", "0.2", "-W", "2", address)
        assert " 0% packet loss" in said
        # 64 nodes minus three switches.
        assert "ttl=61" in said
    routes = json.loads(inside(shared, "leaf0", "ip", "-j", "route", "show", "10.0.0.4"))
    assert {hop["dev"] for hop in routes[0]["nexthops"]} == {"spine0", "spine1"}


@needs_lab
def test_links_have_the_rate_and_mtu_of_the_plan(shared):
    shown = json.loads(inside(shared, "host0", "ip", "-j", "-d", "link", "show", "dev", "rail0"))[0]
    assert (shown["mtu"], shown["qdisc"]) == (4200, "tbf")
    queue = json.loads(inside(shared, "host0", "tc", "-j", "qdisc", "show", "dev", "rail0"))[0]
    assert queue["options"]["rate"] * 8 == 50e6
    size = str(4200 - 28)
    inside(shared, "host0", "ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", size, "10.0.0.2")
    # Its MTU is known on the way out already.
    too_long = ("ping", "-c", "1", "-W", "1", "-M", "do", "-s", "4173", "10.0.0.2")
    lab("exec", "--name", shared, "host0", "--", *too_long, status=1)


@needs_lab
def test_ipv6_only_has_two_global_addresses_and_no_ipv4_and_a_missing_bgpd_is_told():
    up("tone", "--ipv6-only")
    addresses = json.loads(inside("tone", "host0", "ip", "-j", "address", "show", "dev", "rail0"))[0]["addr_info"]
    assert [entry["family"] for entry in addresses if entry["scope"] == "global"] == ["inet6", "inet6"]
    for address in ("fd72:6169:6c00:1::2", "fd72:6169:6c00:101::2"):
        assert " 0% packet loss" in inside("tone", "host0", "ping", "-n", "-c", "1", "-W", "2", address)
    assert inside("tone", "leaf0", "ip", "-4", "route") == ""
    pid = int(inside("tone", "spine0", "cat", "/run/railwright/labs/tone/nodes/spine0/bgpd.pid"))
    os.kill(pid, signal.SIGKILL)
    seen = []

    def is_missing() -> bool:
        seen.append(lab("status", "--name", "tone", status=None))
        return seen[-1].returncode == 1

    wait_until(is_missing, "a status that misses routes")
    assert "missing through spine0" in seen[-1].stdout


@needs_lab
@pytest.mark.parametrize("frr", ["10"] if HAS_FRR10 else ["8"])
def test_two_labs_do_not_see_each_other_and_one_ends_without_the_other(shared, frr):
    """The two labs run different releases of FRR if both are installed."""
    up("tone", *(["--frr", "10"] if frr == "10" else []))
    assert " 0% packet loss" in inside("tone", "host0", "ping", "-n", "-c", "1", "-W", "2", "10.0.0.2")
    assert inside("tone", "host0", "grep", f"zebra {frr}", "/run/railwright/labs/tone/nodes/host0/zebra.log")
    lab("exec", "--name", shared, "host0", "--", "ip", "address", "add", "10.77.0.1/32", "dev", "lo")
    # Both labs have the same addresses, except this one.
    lab("exec", "--name", "tone", "host1", "--", "ping", "-c", "1", "-W", "1", "10.77.0.1", status=2)
    lab("down", "--name", "tone")
    seen = json.loads(lab("status", "--name", shared, "--json").stdout)
    jsonschema.validate(seen, json.loads((ROOT / "schema/lab.schema.json").read_text()))
    assert (seen["type"], seen["state"]) == ("lab", "up")
    for node in seen["nodes"]:
        assert node["processes"] == (4 if HAS_OVS and node["name"].startswith("host") else 2), node


@needs_lab
def test_traffic_has_no_way_out_of_a_lab(shared):
    for node in ("host0", "leaf0", "spine0"):
        routes = inside(shared, node, "ip", "route") + inside(shared, node, "ip", "-6", "route")
        assert "default" not in routes
    lab("exec", "--name", shared, "host0", "--", "ping", "-c", "1", "-W", "1", "192.0.2.1", status=2)


@needs_lab
@pytest.mark.parametrize("namespaces", [0, 1, 4, 6])
def test_up_that_is_killed_at_any_moment_leaves_nothing_after_down(namespaces):
    """The kills fall between the creation of its folder, of its six namespaces, and the wait for routes."""
    child = subprocess.Popen(
        [COMMAND, "lab", "up", *SHAPE, "--count", "2", "--name", "tone"], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: Path("/run/railwright/labs/tone").exists() and made_of("tone") >= namespaces, "its namespaces")
    time.sleep(random.Random(namespaces).uniform(0.0, 0.3))
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = lab("down", "--name", "tone", status=None)
    assert done.returncode == 0 or "there is no lab" in done.stderr, done.stderr
    assert not Path("/run/railwright/labs/tone").exists()


@needs_lab
def test_up_that_is_interrupted_removes_what_it_made_itself():
    child = subprocess.Popen(
        [COMMAND, "lab", "up", *SHAPE, "--count", "2", "--name", "tone"], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: made_of("tone") >= 2, "its first namespaces")
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE_S) == 2
    assert not Path("/run/railwright/labs/tone").exists()


@needs_lab
def test_a_lab_is_refused_a_second_time_and_while_another_works_on_it(shared):
    assert "already" in lab("up", *SHAPE, "--count", "2", "--name", shared, status=2).stderr
    with Path(f"/run/railwright/labs/{shared}/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"lab {shared} is locked" in lab("down", "--name", shared, status=2).stderr


@needs_lab
@pytest.mark.skipif(not HAS_OVS, reason="waived: Open vSwitch is not installed")
def test_hosts_can_have_an_open_vswitch_of_their_own(shared):
    for host in ("host0", "host1"):
        database = f"--db=unix:/run/railwright/labs/{shared}/nodes/{host}/ovs/db.sock"
        bridge = ("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        inside(shared, host, "ovs-vsctl", database, *bridge)
        assert inside(shared, host, "ovs-vsctl", database, "list-br") == "br0\n"
    assert not Path(f"/run/railwright/labs/{shared}/nodes/leaf0/ovs").exists()


def test_a_dry_run_prints_the_plan_and_makes_nothing():
    plan = json.loads(lab("up", *SHAPE, "--count", "2", "--name", "tone", "--dry-run").stdout)
    assert [node["name"] for node in plan["nodes"]] == ["host0", "host1", "leaf0", "leaf1", "spine0", "spine1"]
    assert not Path("/run/railwright/labs/tone").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up", "hgx-h100"), "a shape requires --count"),
        (("up", "hgx-h100", "--count", "2", "--rate", "fast"), "not a rate"),
        (("up", "hgx-h100", "--count", "2", "--name", "a/b", "--dry-run"), "is not a valid name"),
        (("exec", "--name", "nosuch", "host0", "--", "true"), "no lab"),
        (("down", "--name", "nosuch"), "no lab"),
        (("down", "--all", "--name", "x"), "--all"),
        (("upp",), "did you mean up"),
    ],
)
def test_what_cannot_be_done_ends_with_status_2_and_a_next_step(answer, words, said):
    done = answer("lab", *words)
    assert done.status == 2
    assert said in done.err
    assert "hint:" in done.err
