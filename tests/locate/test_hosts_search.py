"""Hosts of an unknown network are searched in pairs, and a host that dies is named as a suspect."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.diagnosis.localise.cover import RouteCover
from railwright.diagnosis.localise.procedure import Rounds
from railwright.errors import UsageError
from railwright.lab.netns_reach import NetnsReach
from railwright.launch.hosts import Hosts
from railwright.locate.place import Place, make_hosts_place
from railwright.locate.search import search
from railwright.locate.switch_tree import SwitchTree
from railwright.locate.ways import mpi_probes, nccl_probes

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def shape(namespace: str, interface: str, rate: str, how: str = "add") -> None:
    """Limit the rate at which a port sends."""
    words = ["tc", "qdisc", how, "dev", interface, "root", "tbf", "rate", rate, "burst", "20kb", "latency", "20ms"]
    subprocess.run(["ip", "netns", "exec", namespace, *words], check=True)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Four namespaces on one bridge, each at 100 Mbit/s."""
    names = [f"rwt-loc-{os.getpid()}-{number}" for number in range(5)]
    bridge, *hosts = names
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", bridge, "link", "add", "br0", "up", "type", "bridge")
        for number, name in enumerate(hosts, 1):
            ip("link", "add", "net1", "netns", name, "type", "veth", "peer", "name", f"p{number}", "netns", bridge)
            ip("-n", bridge, "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"192.0.2.{number}/24", "dev", "net1")
            ip("-n", name, "link", "set", "net1", "up")
            shape(name, "net1", "100mbit")
        yield make_hosts_place(Hosts(tuple(hosts), 1, NetnsReach(tuple(hosts))))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def kill_rank_in(name: str) -> None:
    """Kill the rank that runs in a namespace."""
    namespace = Path(f"/run/netns/{name}").stat().st_ino
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_rank = b"railwright.launch.rank" in (process / "cmdline").read_bytes()
            if is_rank and (process / "ns/net").stat().st_ino == namespace:
                os.kill(int(process.name), signal.SIGKILL)


def test_a_host_whose_rank_dies_is_named_and_the_others_are_searched_without_it(place: Place, tmp_path: Path) -> None:
    dead, journal, told = place.fabric.hosts[2], str(tmp_path / "journal"), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if told.count("round 1: packets") == 1 and text == "round 1: packets":
            kill_rank_in(dead)

    found = search(place, Rounds(screen=2, confirm=0), seed=1, cover=None, tell=tell, journal=journal)
    assert [(one.kind, one.id, one.verdict) for one in found.suspects] == [("host", dead, "silent")]
    assert list(found.set_aside) == [dead]
    ran = {pair.source.partition(":")[0] for pair in found.pairs if pair.ratio is not None}
    assert ran
    assert dead not in ran
    assert any("links between switches" in one for one in found.cannot_tell)
    again = search(place, Rounds(screen=2, confirm=0), seed=1, cover=None, tell=told.append, journal=journal)
    assert (again.resumed_phases, again.pairs, again.suspects) == (1, found.pairs, found.suspects)


def test_under_adaptive_routing_no_way_is_called_covered(place: Place) -> None:
    names = place.fabric.hosts
    adaptive = make_hosts_place(Hosts(names, 1, NetnsReach(names)), "adaptive")
    assert adaptive.routing == "adaptive"
    assert any("spreads a flow over many" in one for one in adaptive.cannot_tell)
    with pytest.raises(UsageError, match="a route cover needs at least two leaves, got one"):
        RouteCover(adaptive.fabric, "pair")


def test_mpi_names_a_port_that_sends_slowly(place: Place) -> None:
    """The port sends at a third of the others' rate, in messages over a path of MPI's choice."""
    names = place.fabric.hosts
    slow, hosts = names[1], Hosts(names, 1, NetnsReach(names))
    shape(slow, "net1", "33mbit", "change")
    try:
        found = search(place, Rounds(screen=4, confirm=2), seed=1, cover=None, way=mpi_probes(hosts, None), tell=print)
    finally:
        shape(slow, "net1", "100mbit", "change")
    assert [(one.id, one.direction, one.verdict) for one in found.suspects] == [(f"{slow}:net1", "up", "slow")]
    assert found.probe == "mpi"
    assert found.not_measured == 0
    assert all(pair.sent == 0 for pair in found.pairs)
    with pytest.raises(UsageError, match="must name a program"):
        mpi_probes(hosts, "/nowhere/mpirun")


@pytest.fixture
def narrow() -> Iterator[Place]:
    """Two leaves of two hosts at 100 Mbit/s, with an undeclared limit of 100 Mbit/s between the leaves."""
    names = [f"rwt-narrow-{os.getpid()}-{number}" for number in range(6)]
    hosts, leaves = names[:4], names[4:]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for leaf in leaves:
            ip("-n", leaf, "link", "add", "br0", "up", "type", "bridge")
        ip("link", "add", "above", "netns", leaves[0], "type", "veth", "peer", "name", "above", "netns", leaves[1])
        for leaf in leaves:
            ip("-n", leaf, "link", "set", "above", "master", "br0", "up")
            shape(leaf, "above", "100mbit")
        for number, name in enumerate(hosts):
            ip(
                "link",
                "add",
                "net1",
                "netns",
                name,
                "type",
                "veth",
                "peer",
                "name",
                f"p{number}",
                "netns",
                leaves[number // 2],
            )
            ip("-n", leaves[number // 2], "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"192.0.2.{number + 1}/24", "dev", "net1")
            ip("-n", name, "link", "set", "net1", "up")
            shape(name, "net1", "100mbit")
        tree = SwitchTree({name: leaves[number // 2] for number, name in enumerate(hosts)}, ())
        yield make_hosts_place(Hosts(tuple(hosts), 1, NetnsReach(tuple(hosts))), tree=tree)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def test_too_little_room_between_leaves_is_the_loads_and_no_fault(narrow: Place) -> None:
    found = search(narrow, Rounds(screen=2, confirm=1, load_test=True), seed=1, cover=None, tell=print)
    assert found.suspects == ()
    assert any("the network cannot carry all of them" in text for text in found.unjudged), found
    between = found.load[-1]
    assert between.is_congested
    assert between.quarter > 1.5 * between.full
    assert (found.load_rounds, between.slow_alone) == (5, 0)


def test_nccl_searches_the_gpus_of_every_host(place: Place, stand_ins, tmp_path, monkeypatch) -> None:
    """Each namespace has two emulated GPUs, whose rates are those of this machine's memory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name, value in environment(stand_ins, "0000:01:00.0", "0000:02:00.0").items():
        monkeypatch.setenv(name, value)
    names = place.fabric.hosts
    hosts = Hosts(names, 2, NetnsReach(names))
    gpus = make_hosts_place(hosts, gpus=2)
    found = search(gpus, Rounds(screen=2, confirm=0), seed=1, cover=None, way=nccl_probes(hosts, None, 2), tell=print)
    assert (found.probe, found.not_measured) == ("nccl", 0)
    assert {pair.source for pair in found.pairs} == {f"{name}:gpu{number}" for name in names for number in (0, 1)}
    assert all(pair.source[-4:] == pair.destination[-4:] for pair in found.pairs)
    assert all(pair.ratio for pair in found.pairs)
