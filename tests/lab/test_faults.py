"""Each fault is injected into a real lab, affects only the packets that cross it, and is healed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import PATIENCE_S, wait_until

from railwright.errors import UsageError
from railwright.lab import build, remove, state
from railwright.lab.faults import background, cpu
from railwright.lab.faults.applied import apply, heal, read_applied
from railwright.lab.faults.registry import FAULTS, find_fault
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.reach import LabReach
from railwright.lab.state import Lab
from railwright.lab.traffic import route, send_packets, send_stream, source_ports, trace
from railwright.lab.wait import wait_settled
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: a lab needs root")]

# So many that each of two spines has two of them: of 12, one choice of hashes in 300 leaves a spine fewer.
PORTS = source_ports(20)
RATE_BITS_PER_S = 1e8
# A tenth of the rate is what most faults leave. Nothing makes a slow link faster, but a busy machine hides a fast one.
SLOW, FAST = 0.35, 0.5


def running(token: str) -> bool:
    """Report whether a fault's child with that token is running."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if token.encode() in file.read_bytes().split(b"\0"):
                return True
    return False


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """4 hosts, 2 leaves, 2 spines, every link 100 Mb/s."""
    name = f"faults{os.getpid()}"
    made = build.up(
        plan(build_cluster(load("hgx-h100 nics=1"), 4), PlanOptions(name=name, rate_bits_per_s=RATE_BITS_PER_S)),
        settle_within_s=PATIENCE_S,
    )
    yield made
    remove.down(name)


@pytest.fixture(autouse=True)
def _healed_after(lab: Lab) -> Iterator[None]:
    yield
    heal(lab)
    settle(lab)  # of a test that healed its faults itself, too: what is down comes back a little later


def settle(lab: Lab) -> None:
    with ThreadPoolExecutor(2) as executor:
        wait_settled(lab, executor, PATIENCE_S)


def put(lab: Lab, words: str) -> str:
    name, *rest = words.split()
    return apply(lab, find_fault(name), rest).id


def spines(lab: Lab, source: str, destination: str) -> dict[int, str]:
    """Return the spine that the flow of each source port crosses."""
    ways = trace(lab, route(lab.plan, source, destination), PORTS)
    return {port: next((node for node in way if node.startswith("spine")), "none") for port, way in ways.items()}


def ports_over(lab: Lab, source: str, destination: str, spine: str) -> tuple[int, ...]:
    """Return the source ports of at least two flows over a spine; traces again if a busy router did not answer."""
    ports: list[int] = []

    def found() -> bool:
        ports[:] = [port for port, other in spines(lab, source, destination).items() if other == spine]
        return len(ports) >= 2

    wait_until(found, f"two flows from {source} to {destination} over {spine}")
    return tuple(ports)


def rate(lab: Lab, source: str, destination: str, spine: str | None = None) -> float:
    """Return the rate of two TCP flows, over `spine` if given, in bit/s."""
    ports = PORTS if spine is None else ports_over(lab, source, destination, spine)
    seen = send_stream(lab, route(lab.plan, source, destination), ports[:2], duration_s=0.6)
    return 8 * sum(flow.bandwidth_bytes_per_s for flow in seen)


def expect_fast(lab: Lab, source: str, destination: str, spine: str | None = None) -> None:
    """Expect the full rate; measures again because a busy machine can slow a healthy path."""
    wait_until(
        lambda: rate(lab, source, destination, spine) > FAST * RATE_BITS_PER_S,
        f"{FAST} of a link's rate from {source} to {destination} over {spine or 'any spine'}",
    )


def expect_both_spines(lab: Lab) -> None:
    """Expect flows over both spines; traces again if a router of a busy machine did not answer in time."""
    wait_until(lambda: set(spines(lab, "host0", "host2").values()) == {"spine0", "spine1"}, "flows over both spines")


def lost(lab: Lab, source: str, destination: str, spine: str, size_bytes: int = 200, packets: int = 100) -> float:
    """Return the fraction of packets over a spine that does not arrive."""
    ports = ports_over(lab, source, destination, spine)[:3]
    way = route(lab.plan, source, destination)
    seen = send_packets(lab, way, ports, packets=packets, size_bytes=size_bytes, interval_s=0.005)
    assert all(flow.refused == 0 for flow in seen)
    return sum(flow.lost for flow in seen) / sum(flow.sent for flow in seen)


def state_of_ports(lab: Lab) -> dict[str, list[str]]:
    """Return the queues, flags, MTUs and filters of every node, without counters."""
    found = {}
    for node in lab.plan.nodes:
        asked = [["nft", "list", "ruleset"]]
        for port in (cable.port_of(node.name) for cable in lab.plan.cables_of(node.name)):
            asked += [["tc", kind, "show", "dev", port] for kind in ("qdisc", "class")]
            asked.append(["ip", "-d", "link", "show", "dev", port])
        for argv in asked:
            # Without stderr, where `ip` reports namespaces that other tests are creating or removing.
            inside = ["ip", "netns", "exec", lab.namespace(node.name), *argv]
            answer = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S)
            found[f"{node.name}: {' '.join(argv)}"] = answer.stdout.splitlines()
    return found


def expect_ports(lab: Lab, before: dict[str, list[str]]) -> None:
    """Expect every port as before, and name those that differ. The kernel reports a carrier with a delay."""
    differing: dict[str, tuple[list[str], list[str]]] = {}

    def same() -> bool:
        now = state_of_ports(lab)
        differing.clear()
        differing.update({asked: (answer, now[asked]) for asked, answer in before.items() if now[asked] != answer})
        return not differing

    with contextlib.suppress(pytest.fail.Exception):
        wait_until(same, "every port as it was")
    assert differing == {}, "before and now"


def test_a_slow_link_is_slow_in_one_direction_only(lab: Lab) -> None:
    put(lab, "link_slow leaf0 spine0")
    assert rate(lab, "host0", "host2", "spine0") < SLOW * RATE_BITS_PER_S
    expect_fast(lab, "host0", "host2", "spine1")
    expect_fast(lab, "host2", "host0", "spine0")
    heal(lab)
    expect_fast(lab, "host0", "host2", "spine0")


def test_a_link_that_is_down_is_left_by_all_flows_and_taken_again(lab: Lab) -> None:
    expect_both_spines(lab)
    put(lab, "link_down leaf0 spine0")
    wait_until(lambda: set(spines(lab, "host0", "host2").values()) == {"spine1"}, "a way around")
    assert lost(lab, "host0", "host2", "spine1") == 0
    heal(lab)
    settle(lab)
    expect_both_spines(lab)


def test_a_slow_leaf_slows_all_that_cross_it_and_nobody_else(lab: Lab) -> None:
    put(lab, "leaf_slow leaf1")
    for spine in ("spine0", "spine1"):
        assert rate(lab, "host0", "host2", spine) < SLOW * RATE_BITS_PER_S
    assert rate(lab, "host2", "host3") < SLOW * RATE_BITS_PER_S
    expect_fast(lab, "host0", "host1")
    heal(lab)
    expect_fast(lab, "host0", "host2", "spine0")


def test_a_slow_host_has_slow_nics_and_little_cpu(lab: Lab) -> None:
    put(lab, "host_slow host2 share=10%")
    assert rate(lab, "host0", "host2", "spine0") < SLOW * RATE_BITS_PER_S
    assert rate(lab, "host2", "host0", "spine0") < SLOW * RATE_BITS_PER_S
    expect_fast(lab, "host0", "host3", "spine0")
    group = cpu.cgroup_path(lab, "host2")
    loop = "import time\nwhile time.process_time() < 0.1: pass"

    def held_back() -> bool:
        before = periods_held_back(group)
        assert lab.run("host2", [sys.executable, "-I", "-c", loop]).returncode == 0
        return periods_held_back(group) > before

    # On a machine so busy that each process gets less than a tenth of a CPU, the kernel throttles none.
    wait_until(held_back, "a process that the kernel held back")
    assert not cpu.cgroup_path(lab, "host3").exists()
    heal(lab)
    expect_fast(lab, "host0", "host2", "spine0")
    assert not group.exists()


def test_little_cpu_leaves_the_nics_of_a_host_alone(lab: Lab) -> None:
    put(lab, "cpu_slow host2 share=25%")
    expect_fast(lab, "host0", "host2", "spine0")
    assert cpu.read_quota(lab, "host2") == 0.25
    assert LabReach(("host2", "host3"), lab).host_cpus is None  # host3 has no limit
    put(lab, "cpu_slow host3 share=50%")
    assert LabReach(("host2", "host3"), lab).host_cpus == 0.5
    heal(lab)
    assert cpu.read_quota(lab, "host2") is None


def periods_held_back(group: Path) -> int:
    """Return the number of periods in which the kernel throttled a cgroup, by either version of cgroups."""
    counters = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(counters["nr_throttled"])


def test_a_lossy_link_loses_its_share_of_packets_in_one_direction(lab: Lab) -> None:
    put(lab, "loss leaf0 spine1 fraction=30%")
    assert 0.15 < lost(lab, "host0", "host2", "spine1") < 0.45
    assert lost(lab, "host0", "host2", "spine0") == 0
    assert lost(lab, "host2", "host0", "spine1") == 0
    settle(lab)  # BGP does not see it
    heal(lab)
    assert lost(lab, "host0", "host2", "spine1") == 0


def test_a_loss_can_hit_routing_as_well(lab: Lab) -> None:
    put(lab, "loss leaf0 spine1 fraction=1 routing=hit")
    # Only after BGP's hold time has expired.
    wait_until(lambda: set(spines(lab, "host0", "host2").values()) == {"spine0"}, "a way around")


def test_a_cursed_route_hits_one_pair_over_one_spine_in_one_direction(lab: Lab) -> None:
    put(lab, "cursed_route host0 host2 spine=spine1")
    assert rate(lab, "host0", "host2", "spine1") < SLOW * RATE_BITS_PER_S
    for source, destination, spine in (
        ("host0", "host2", "spine0"),
        ("host1", "host2", "spine1"),
        ("host0", "host3", "spine1"),
        ("host2", "host0", "spine1"),
    ):
        expect_fast(lab, source, destination, spine)
    heal(lab)
    expect_fast(lab, "host0", "host2", "spine1")


def test_a_smaller_mtu_at_one_end_swallows_long_packets_without_a_word(lab: Lab) -> None:
    put(lab, "mtu_mismatch spine0 leaf0 mtu=1500")
    assert lost(lab, "host0", "host2", "spine0", size_bytes=4000) == 1
    assert lost(lab, "host0", "host2", "spine0", size_bytes=1400) == 0
    assert lost(lab, "host0", "host2", "spine1", size_bytes=4000) == 0
    assert rate(lab, "host0", "host2", "spine0") < SLOW * RATE_BITS_PER_S
    heal(lab)
    assert lost(lab, "host0", "host2", "spine0", size_bytes=4000) == 0
    expect_fast(lab, "host0", "host2", "spine0")


def test_a_busy_neighbour_takes_most_of_a_link(lab: Lab) -> None:
    one = put(lab, "busy_neighbour leaf1 host2")
    assert rate(lab, "host0", "host2", "spine0") < FAST * RATE_BITS_PER_S
    expect_fast(lab, "host0", "host3", "spine0")
    expect_fast(lab, "host2", "host0", "spine0")
    heal(lab)
    assert not running(f"railwright-fault:{lab.identity}:{one}")
    expect_fast(lab, "host0", "host2", "spine0")


def test_a_flapping_link_comes_and_goes(lab: Lab) -> None:
    one = put(lab, "flapping leaf0 spine0 down=1 up=4")
    seen: list[bool] = []

    def changed_often() -> bool:
        there = "spine0" in spines(lab, "host0", "host2").values()
        if not seen or seen[-1] != there:
            seen.append(there)
        return len(seen) >= 4

    wait_until(changed_often, "a link that came and went")
    heal(lab)
    assert not running(f"railwright-fault:{lab.identity}:{one}"), "its child process must have ended"
    settle(lab)
    expect_both_spines(lab)


def test_every_fault_healed_leaves_every_port_as_it_was(lab: Lab) -> None:
    before = state_of_ports(lab)
    for words in (
        "link_slow leaf0 spine0",
        "link_down leaf1 spine1",
        "leaf_slow spine0",
        "host_slow host1",
        "cpu_slow host2",
        "loss leaf0 spine0",
        "cursed_route host0 host2 spine=spine0",
        "cursed_route host1 host2 spine=spine0",
        "mtu_mismatch leaf0 spine0",
        "busy_neighbour leaf0 spine0",
        "flapping leaf1 spine0",
    ):
        put(lab, words)
    assert {one.fault for one in read_applied(lab)} == {fault.name for fault in FAULTS}
    assert state_of_ports(lab) != before
    heal(lab)
    assert read_applied(lab) == ()
    expect_ports(lab, before)


def test_healing_one_of_two_faults_of_a_port_leaves_the_other(lab: Lab) -> None:
    slow = put(lab, "link_slow leaf0 spine0 rate=30Mb/s")
    with_one = state_of_ports(lab)
    cursed = put(lab, "cursed_route host0 host2 spine=spine0 rate=5Mb/s")
    assert rate(lab, "host0", "host2", "spine0") < 0.1 * RATE_BITS_PER_S
    assert [one.id for one in heal(lab, [cursed])] == [cursed]
    expect_ports(lab, with_one)
    assert [one.id for one in read_applied(lab)] == [slow]


def test_a_fault_that_was_cut_short_is_healed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state_of_ports(lab)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(background, "start", killed)
        patch.setattr("railwright.lab.faults.applied.heal", killed)
        with pytest.raises(KeyboardInterrupt):
            put(lab, "host_slow host1")
    group = cpu.cgroup_path(lab, "host1")
    assert group.exists()
    assert [one.fault for one in read_applied(lab)] == ["host_slow"]
    heal(lab)
    expect_ports(lab, before)
    assert not group.exists()


def test_a_lab_that_ends_with_its_faults_leaves_no_child_and_no_cgroup() -> None:
    name = f"ends{os.getpid()}"
    made = build.up(plan(build_cluster(load("hgx-h100 nics=1"), 2), PlanOptions(name=name)), settle_within_s=PATIENCE_S)
    try:
        ids = [put(made, words) for words in ("host_slow host0", "busy_neighbour leaf0 host0", "flapping leaf0 spine0")]
        tokens, group = [f"railwright-fault:{made.identity}:{one}" for one in ids], cpu.cgroup_path(made, "host0")
        assert all(running(token) for token in tokens)
    finally:
        remove.down(name)
    assert not any(running(token) for token in tokens)
    assert not group.exists()
    assert not (state.LABS / name).exists()


def test_words_that_do_not_fit_the_lab_are_refused_and_change_nothing(lab: Lab) -> None:
    for words, message in (
        ("link_slow leaf0", "needs TO"),
        ("link_slow leaf0 spine9", "no node in lab"),
        ("link_slow leaf0 leaf1", "no cable joins"),
        ("link_slow leaf0 spine0 rate=1Gb/s", "must be below the link's"),
        ("link_slow leaf0 spine0 rate=0.01Mb/s", "must be at least 64 kb/s"),
        ("link_slow leaf0:host0r0 spine0", "0 cables match"),
        ("link_slow leaf0 spine0 speed=1", "does not take"),
        ("link_slow leaf0 spine0 leaf1", "does not take"),
        ("link_slow leaf0 spine0 from=leaf1", "given twice"),
        ("leaf_slow host0", "leaf must be a leaf or spine"),
        ("loss leaf0 spine0 fraction=nan", "must be 1e-06 to 1, got nan"),
        ("loss leaf0 spine0 fraction=x", "must be a number, got x"),
        ("loss leaf0 spine0 routing=maybe", "must be spared or hit, got maybe"),
        ("cursed_route host0 host1", "no spine lies between"),
        ("cursed_route host0 host2 spine=leaf1", "no switch above"),
        ("cursed_route host0 host2 rail=3", "no rail 3"),
        ("mtu_mismatch leaf0 spine0 mtu=9000", "must be below the link's"),
        ("mtu_mismatch leaf0 spine0 mtu=576", "must be 1280 to 65535, got 576"),
        ("slow_link leaf0 spine0", "no fault named"),
    ):
        with pytest.raises(UsageError) as refused:
            put(lab, words)
        assert message in refused.value.message, words
        assert read_applied(lab) == (), words


def test_faults_that_would_undo_each_other_are_refused(lab: Lab) -> None:
    put(lab, "link_down leaf0 spine0")
    with pytest.raises(UsageError, match="already"):
        put(lab, "flapping leaf0 spine0")
    with pytest.raises(UsageError, match="already"):
        put(lab, "link_down leaf0 spine0")
    with pytest.raises(UsageError, match="no fault in lab"):
        heal(lab, ["loss"])
    assert [one.fault for one in read_applied(lab)] == ["link_down"]


def test_each_fault_has_a_row_in_the_manual() -> None:
    page = (Path(__file__).parents[2] / "docs/lab.md").read_text(encoding="utf-8")
    assert all(f"| `{fault.name}` " in page for fault in FAULTS)
