"""A launch's report of a lost rank, and the host that it blames."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.benchmarks.sockets import pinned_flows
from railwright.launch.local import LocalLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.topology.devices import Topology

pytestmark = pytest.mark.machine

DIES = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect("\\0" + os.environ["RAILWRIGHT_STREAM"].partition(":")[2])
door.close()
print("b: killed by SIGKILL", flush=True)
sys.exit(1)
"""


ALL_END = """
import json, os, socket, sys
ranks = []
for rank, host in enumerate("abc"):
    ranks.append(socket.socket(socket.AF_UNIX))
    ranks[-1].connect("\\0" + os.environ["RAILWRIGHT_STREAM"].partition(":")[2])
    ranks[-1].sendall(json.dumps({"type": "hello", "rank": rank, "host": host, "pid": 1}).encode() + b"\\n")
for rank in (0, 2, 1):
    if rank != 1:
        ranks[rank].sendall(b'{"type": "asked"}\\n')
    ranks[rank].close()
print("some of them ended", flush=True)
sys.exit(1)
"""


HANGS = """
import json, os, socket, time
ranks = []
for rank, host in enumerate("abc"):
    ranks.append(socket.socket(socket.AF_UNIX))
    ranks[-1].connect("\\0" + os.environ["RAILWRIGHT_STREAM"].partition(":")[2])
    ranks[-1].sendall(json.dumps({"type": "hello", "rank": rank, "host": host, "pid": os.getpid()}).encode() + b"\\n")
for rank in MEET:
    ranks[rank].sendall(b'{"type": "meet"}\\n')
time.sleep(60)
"""


@dataclass
class StandIn(LocalLauncher):
    """A launcher that starts one process for all ranks."""

    script: str
    name = "stand-in"

    def command(self, _ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        return [sys.executable, "-c", self.script]


def three_hosts(script: str, silence_s: float = 20.0) -> Session:
    topology = Topology(name="t", source="live", devices=(), links=())
    machine = Machine(topology=topology, cpus=(0,), hosts=("a", "b", "c"), reached_by="stand-in")
    launch = Launch(case=pinned_flows.Flows(rounds=()), ranks=3)
    job = Job(benchmark=pinned_flows.BENCHMARK.name, options=Options(), launch=launch, machine=machine)
    return Session(
        PlannedLaunch(pinned_flows.BENCHMARK, job, Plan(path="fabric")), StandIn(script), dict(os.environ), silence_s
    )


def test_a_rank_that_dies_before_it_says_its_number_is_blamed_by_its_hosts_name():
    session = three_hosts(DIES)
    (result,) = session.results()
    assert result.outcome == "failed"
    assert "b: killed by SIGKILL" in result.reason
    assert session.blamed == {1}


def test_a_rank_that_was_asked_to_end_is_not_blamed_though_its_socket_closed_first():
    session = three_hosts(ALL_END)
    (result,) = session.results()
    assert result.reason.startswith("rank 1 (host b, ")
    assert "ended without a message" in result.reason
    assert session.blamed == {1}


@pytest.mark.parametrize(("meet", "blamed"), [((0, 1), {2}), ((0,), {1, 2})])
def test_the_cause_of_a_hang_is_open_if_two_hosts_keep_the_others_waiting(meet, blamed):
    session = three_hosts(HANGS.replace("MEET", str(meet)), silence_s=1.0)
    (result,) = session.results()
    assert result.reason.startswith("hung: silent for ")
    assert (session.blamed, session.is_cause_open) == (blamed, len(blamed) > 1)
