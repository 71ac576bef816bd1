"""A job whose log is lost, cut off or abandoned, with a stand-in for kubectl, since real clusters do this rarely."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Done, Driver, wait_until

from railwright.diagnosis.fleet.between_hosts import BetweenHosts, RailTried
from railwright.launch.frames import FrameWriter
from railwright.results.records import Result
from railwright.verbs.prove.kept import KeptBetween, KeptCluster, read_kept

pytestmark = pytest.mark.machine

STAND_IN = Path(__file__).parents[2] / "stand_ins"
WORDS = ("run", "mpi_latency", "--kubernetes", "--nodes", "2", "--namespace", "team-a", "--job-kind", "job")
INDEX = "batch.kubernetes.io/job-completion-index"


class Cluster:
    """The answers of the stand-in."""

    def __init__(self, driver: Driver, lines: list[str]) -> None:
        self.driver, self.lines = driver, lines
        self.folder = driver.folder / "cluster"
        self.folder.mkdir()
        self.pods()

    def pods(self, phase: str = "Running", **terminated: object) -> None:
        """Set the states of both pods. The first pod may have ended."""
        states = [{"terminated": terminated} if terminated else {"running": {}}, {"running": {}}]
        items = [{"metadata": {"name": f"job-{i}-x", "annotations": {INDEX: str(i)}}, "spec": {"nodeName": f"node{i}"},
                  "status": {"phase": phase if i == 0 else "Running", "containerStatuses": [{"state": states[i]}]}}
                 for i in range(2)]  # fmt: skip
        new = self.folder / "pods.new"
        new.write_text(json.dumps({"items": items}))
        new.replace(self.folder / "pods.json")

    def log(self, number: int, lines: list[str], *, hold: bool = False) -> None:
        """Set the content of the log at the read with this number."""
        if hold:
            (self.folder / f"hold.{number}").touch()
        (self.folder / f"log.{number}").write_text("".join(f"{line}\n" for line in lines))

    def asked(self) -> list[str]:
        """The arguments that kubectl received."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def settings(self) -> dict[str, str]:
        return {"KUBECTL_STAND_IN": str(self.folder), "PATH": f"{STAND_IN}:{os.environ['PATH']}"}

    def run(self) -> Done:
        return self.driver(*WORDS, environment=self.settings)


@pytest.fixture(scope="module")
def measured(driver_of_module: Driver) -> bytes:
    """The records of a run that was measured here."""
    driver_of_module("run", "mpi_latency", "-o", "sizes=8", "-o", "transports=shm", "--force")
    return (driver_of_module.output / "results.jsonl").read_bytes()


@pytest.fixture
def cluster(railwright: Driver, measured: bytes) -> Cluster:
    """A job of two pods whose log contains these records."""
    writer = FrameWriter()
    lines = ["plan: told in the pod"]
    for record in measured.splitlines():
        lines += writer.lines("results.jsonl", record)
    return Cluster(railwright, [*lines, *writer.end(0)])


def test_a_connection_that_is_lost_loses_no_record(cluster, railwright, measured):
    lines = cluster.lines
    cluster.log(0, lines[: len(lines) // 2])
    cluster.log(1, lines[len(lines) // 2 - 1 :])  # the file was rotated meanwhile, and its beginning is gone
    done = cluster.run()
    run, end = railwright.ends()
    assert end.interrupted == "", done.err
    assert run.command[:4] == ("railwright", "run", "mpi_latency", "--kubernetes")
    assert (railwright.output / "results.jsonl").read_bytes().splitlines()[1:] == measured.splitlines()[1:]
    assert "plan: told in the pod" in done.err
    assert any(line.startswith("delete jobs.batch railwright-") for line in cluster.asked())
    railwright.expect_nothing_left()


def test_what_rotation_took_is_named_and_the_rest_is_kept_and_marked(cluster, railwright):
    lines = cluster.lines
    first = next(i for i, line in enumerate(lines) if ":end:" in line) - 2  # the last result is lost
    cluster.log(0, lines[:first] + lines[first + 1 :])
    cluster.pods("Succeeded", exitCode=0, reason="Completed")
    done = cluster.run()
    assert done.status == 3
    assert f"its records are incomplete: 1 of {len(lines) - 1} lines were lost" in done.message()
    _, end = railwright.ends()
    assert "1 of" in end.interrupted


def test_a_pod_that_dies_is_named_and_what_came_is_kept(cluster, railwright):
    upto = next(i for i, line in enumerate(cluster.lines) if ":end:" in line) - 1
    cluster.log(0, cluster.lines[:upto])
    cluster.pods("Failed", exitCode=137, reason="OOMKilled")
    done = cluster.run()
    assert done.status == 3
    assert "the end is missing; job-0-x on node0: OOMKilled, exit status 137" in done.message()
    _, end = railwright.ends()
    assert "OOMKilled" in end.interrupted
    assert any(isinstance(record, Result) for record in railwright.records())


def test_a_lost_connection_keeps_what_came_and_removes_the_job(cluster, railwright):
    upto = next(i for i, line in enumerate(cluster.lines) if ":end:" in line) - 1
    cluster.log(0, cluster.lines[:upto], hold=True)
    process = railwright.start(*WORDS, environment=cluster.settings)
    wait_until(lambda: len(railwright.records()) > 1, "a record")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)  # from the terminal, and from its shell
    done = railwright.finish(process)
    assert done.status == 3
    assert "interrupted by SIGHUP" in done.message()
    assert "interrupted by SIGHUP" in railwright.ends()[1].interrupted
    assert any(line.startswith("delete jobs.batch railwright-") for line in cluster.asked())
    railwright.expect_nothing_left()


@pytest.fixture
def kept() -> KeptCluster:
    """The record of a proof of two pods, which were connected by three GPUs' flows."""
    said = BetweenHosts(described="2 hosts", hosts=("node0", "node1"), rounds=5)
    between = KeptBetween(said=said, rails=(RailTried("node0:gpu0", "node1:gpu0", 1e8),))
    return KeptCluster(hosts={"node0": "", "node1": ""}, launches=1, shares_cpus=True, between=between)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_proof_shows_what_its_pods_measured_between_them(railwright, measured, kept, is_whole):
    writer, lines = FrameWriter(), list[str]()
    for name in ("node0", "node1"):
        for record in measured.splitlines():
            lines += writer.lines(f"hosts/{name}/results.jsonl", record)
    lines += writer.lines("cluster.json", msgspec.json.encode(kept)) if is_whole else ()
    cluster = Cluster(railwright, [*lines, *writer.end(3)])
    cluster.log(0, cluster.lines)
    cluster.pods("Succeeded", exitCode=0, reason="Completed")
    earlier = railwright.output / "between/results.jsonl"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(measured)
    words = ("--nodes", "2", "--namespace", "team-a", "--job-kind", "job", "--json", "--launches", "1")
    done = railwright("prove", "--kubernetes", *words, environment=cluster.settings)
    records = [json.loads(line) for line in done.out.splitlines()]
    (said,) = [one for one in records if one["record"] == "between"]
    assert {one["name"] for one in records if one["record"] == "host"} == {"node0", "node1"}, done.err
    assert "path" not in {one["record"] for one in records}, "an earlier job's records must not count"
    if is_whole:
        assert said["rounds"] == 5
        assert "rails" in {one["benchmark"] for one in records if one["record"] == "column"}
    else:
        assert set(said["not_measured"]) == {"pairs", "rdma", "rails", "collectives", "kv"}
    assert read_kept(railwright.output).between.said.rounds == (5 if is_whole else 0)
