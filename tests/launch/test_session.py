"""What a launch says of a rank that is lost, and which host it blames."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.benchmarks.sockets import pinned_flows
from railwright.launch.doors import LocalDoor
from railwright.launch.session import Planned, Session
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


class StandIn:
    """Starts one rank, which knocks and dies before it says its number, as where its host loses its power then."""

    name, runs_on = "stand-in", ""

    def check(self) -> None:
        """It can be reached."""

    def door(self, _scratch: Path, _job: bytes) -> LocalDoor:
        return LocalDoor()

    def command(self, _ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        return [sys.executable, "-c", DIES]

    def environment(self, _scratch: Path) -> dict[str, str]:
        return {}

    def clean_up(self, _started: float) -> None:
        """Nothing is left."""


def test_a_rank_that_dies_before_it_says_its_number_is_blamed_by_its_hosts_name():
    topology = Topology(name="t", source="live", devices=(), links=())
    machine = Machine(topology=topology, cpus=(0,), hosts=("a", "b", "c"), reached_by="stand-in")
    launch = Launch(case=pinned_flows.Flows(rounds=()), ranks=3)
    job = Job(benchmark=pinned_flows.BENCHMARK.name, options=Options(), launch=launch, machine=machine)
    session = Session(Planned(pinned_flows.BENCHMARK, job, Plan(path="fabric")), StandIn(), dict(os.environ), 20.0)
    (result,) = session.results()
    assert result.outcome == "failed"
    assert "b: killed by SIGKILL" in result.reason
    assert session.blamed == {1}
