"""Hosts whose network nobody described are searched in pairs, and one that dies is a suspect by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from railwright.diagnosis.localise.cover import RouteCover
from railwright.diagnosis.localise.procedure import Rounds
from railwright.errors import UsageError
from railwright.lab.netns_reach import NetnsReach
from railwright.launch.hosts import Hosts
from railwright.locate.place import Place, place_of_hosts
from railwright.locate.search import search

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


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
            shape = ["tc", "qdisc", "add", "dev", "net1", "root", "tbf", "rate", "100mbit", "burst", "20kb"]
            subprocess.run(["ip", "netns", "exec", name, *shape, "latency", "20ms"], check=True)
        yield place_of_hosts(Hosts(tuple(hosts), 1, NetnsReach(tuple(hosts))))
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
    adaptive = place_of_hosts(Hosts(names, 1, NetnsReach(names)), "adaptive")
    assert adaptive.routing == "adaptive"
    assert any("spreads a flow over many" in one for one in adaptive.cannot_tell)
    with pytest.raises(UsageError, match="no routes between leaves"):
        RouteCover(adaptive.fabric, "pair")
