"""Ranks on the nodes of a real Slurm, inside an allocation and in a submitted job, and the early end of such jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
from tests.conftest import Driver, wait_until
from tests.launch.slurm.slurm_bed import Bed, lacking, slurm
from tests.stand_ins import environment
from tests.topology.machines import archive

from railwright.launch.blame import summarize_end
from railwright.launch.scratch import sweep
from railwright.launch.slurm.job import SlurmJob, SlurmRequest, submit
from railwright.process import ChildResult
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology

pytestmark = [pytest.mark.machine, pytest.mark.skipif(lacking() != "", reason=f"waived: {lacking()}")]

QUICK = ("run", "mpi_all_reduce", "--slurm", "-o", "sizes=9K", "--force")
# The first result comes at once, and the second size takes minutes.
ENDLESS = ("run", "mpi_bandwidth", "--slurm", "--nodes", "2", "-o", "pages=small", "-o", "sizes=8,64M", "--force")
ON_N2_N3 = ("--sbatch=--nodelist=n2,n3",)
WITHIN_S = 240.0


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """4 nodes, n1 to n4."""
    with slurm(tmp_path_factory.mktemp("slurm"), 4) as found:
        yield found


@pytest.fixture(scope="module")
def limited(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> SlurmJob:
    """A job that exceeds its limit of one minute, the minimum in Slurm. It runs while other tests do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SLURM_CONF", bed.environment["SLURM_CONF"])
        wanted = SlurmRequest(1, limit_s=60.0, more=("--nodelist=n4",))
        return submit(wanted, ["sleep", "600"], tmp_path_factory.mktemp("limited"), 60.0, lambda _line: None)


@pytest.fixture
def in_slurm(bed: Bed, limited: SlurmJob, monkeypatch: pytest.MonkeyPatch) -> Bed:
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    return bed


def expect_nothing_left(bed: Bed, railwright: Driver, limited: SlurmJob) -> None:
    wait_until(lambda: set(bed.jobs()) <= {limited.number}, "the end of the job")
    sweep()  # the folder of a rank that was killed is for the next launch there
    railwright.expect_nothing_left()


def expect_measured(railwright: Driver, nodes: str, started_by: str) -> None:
    """Assert that the result was verified, and that its bytes crossed the bridge between the nodes."""
    result = railwright.results("mpi_all_reduce")[0]
    assert (result.outcome, result.hosts) == ("measured", 2), result.reason
    assert result.verification.bytes_wrong == 0
    settings = result.settings
    assert (settings["hosts"], settings["reached_by"], settings["started_by"]) == (nodes, "slurm", started_by)
    (seen,) = [evidence for evidence in result.evidence if evidence.claim == "transport"]
    both = ", ".join(sorted(nodes.split(",")))
    assert (seen.value, seen.seen.partition(" sent ")[0]) == ("tcp", f"eth0 of {both}"), seen


@pytest.mark.parametrize(("mpi", "by"), [("openmpi", "mpirun"), ("mpich", "srun"), ("mpich", "mpirun")])
def test_ranks_start_inside_an_allocation_in_the_order_of_the_hosts(railwright, in_slurm, limited, mpiruns, mpi, by):
    words = (*QUICK, "--start-by", by, "--mpirun", mpiruns[mpi], "--hosts", "n3,n2")
    done = allocated(railwright, *words)
    assert done.status == 3, done.err  # the limit between the nodes is unknown
    expect_measured(railwright, "n3,n2", by)
    expect_nothing_left(in_slurm, railwright, limited)


def allocated(railwright: Driver, *words: str, environment: dict[str, str] | None = None):
    """Run the command inside salloc."""
    within = ("salloc", "-Q", "--nodes=2", "--nodelist=n2,n3")
    return railwright.finish(railwright.start(*words, around=within, environment=environment), WITHIN_S)


@pytest.mark.parametrize(("mpi", "by"), [("openmpi", "mpirun"), ("mpich", "srun")])
def test_gpus_of_two_nodes_share_a_collective(railwright, in_slurm, limited, mpiruns, stand_ins, tmp_path, mpi, by):
    (tmp_path / "machine.json").write_bytes(encode_topology(load(str(archive("2xh200-firecracker-vm")))))
    (tmp_path / "cluster.toml").write_text('hosts = 2\nhost = "machine.json"\n')
    words = (
        "run",
        "nccl_all_reduce",
        "--slurm",
        "--cluster",
        str(tmp_path / "cluster.toml"),
        "-o",
        "sizes=64K",
        "--force",
    )
    done = allocated(
        railwright, *words, "--start-by", by, "--mpirun", mpiruns[mpi], "--hosts", "n3,n2",
        environment=environment(stand_ins, "0000:00:06.0", "0000:00:07.0"),
    )  # fmt: skip
    results = railwright.results("nccl_all_reduce")
    assert [(one.outcome, one.hosts, one.settings.get("started_by")) for one in results] == [("measured", 2, by)] * 6, (
        done.err
    )
    for one in results:
        assert {item.claim: item.value for item in one.evidence}["network"] == "NET/Socket"
        assert one.verification.bytes_wrong == 0
    expect_nothing_left(in_slurm, railwright, limited)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_one_host_is_measured_alone_inside_an_allocation_of_two(railwright, in_slurm, limited, mpiruns, mpi):
    words = ("run", "mpi_latency", "-o", "sizes=8", "-o", "transports=shm", "--mpirun", mpiruns[mpi], "--force")
    done = allocated(railwright, *words)
    (result,) = railwright.results("mpi_latency")
    assert (result.outcome, result.hosts) == ("measured", 1), (result.reason, done.err)
    expect_nothing_left(in_slurm, railwright, limited)


def test_each_node_of_an_allocation_sends_to_each_other_one(railwright, in_slurm, limited):
    """There Slurm numbers every rank 0, because each is a separate step."""
    done = allocated(railwright, "prove", "--slurm", "--parts", "pairs", "--json", "--force")
    found = [msgspec.json.decode(line) for line in done.out.splitlines()]
    pairs = [(one["source"], one["destination"]) for one in found if one["record"] == "pair" and one["value"]]
    assert sorted(pairs) == [("n2", "n3"), ("n3", "n2")], done.out + done.err
    expect_nothing_left(in_slurm, railwright, limited)


def test_a_node_that_is_not_of_the_job_is_refused(railwright, in_slurm):
    done = allocated(railwright, *QUICK, "--hosts", "n1,n2")
    assert done.status == 2
    assert re.match(r"railwright: n1 must be a node of job \d+\nhint: its nodes: n2, n3", done.message())


def test_a_submitted_job_is_followed_and_judged(railwright, in_slurm, limited):
    words = (*QUICK, "--nodes", "2", *ON_N2_N3, "--time", "0:05:00")
    done = railwright(*words, within_s=WITHIN_S)
    assert done.status == 3, done.err
    assert "Slurm: 2 nodes of the default partition for at most 5.0 min: 0.17 node hours, no GPU hours" in done.err
    assert re.search(r"job \d+: running on n\[2-3\]\n", done.err), done.err
    assert "done: mpi_all_reduce (1 launch)" in done.err  # from the job's log
    assert done.out.count("3 paths: 3 unknown;") == 1
    expect_measured(railwright, "n2,n3", "srun")
    expect_nothing_left(in_slurm, railwright, limited)


def test_a_job_goes_on_without_the_shell_that_submitted_it(railwright, in_slurm, limited):
    process = railwright.start(*QUICK, "--nodes", "2", *ON_N2_N3)
    wait_until(lambda: set(in_slurm.jobs()) - {limited.number}, "a job")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: set(in_slurm.jobs()) <= {limited.number}, "the end of the job", WITHIN_S)
    expect_measured(railwright, "n2,n3", "srun")
    assert not railwright.ends()[1].interrupted


@pytest.fixture
def endless(railwright, in_slurm):
    """A submitted run that has its first result, and whose ranks measure the second size."""
    process = railwright.start(*ENDLESS, *ON_N2_N3)
    wait_until(lambda: railwright.results("mpi_bandwidth"), "a first result")
    return process


def test_a_lost_connection_cancels_the_job_and_keeps_what_it_had_measured(railwright, in_slurm, limited, endless):
    (number,) = set(in_slurm.jobs()) - {limited.number}
    endless.send_signal(signal.SIGHUP)
    done = railwright.finish(endless, WITHIN_S)
    assert done.status == 3
    assert f"railwright: job {number} was interrupted by SIGHUP and cancelled" in done.message()
    assert railwright.ends()[1].interrupted == "interrupted by SIGTERM"
    assert railwright.results("mpi_bandwidth")[0].outcome == "measured"
    expect_nothing_left(in_slurm, railwright, limited)


def test_a_node_that_fails_in_the_middle_is_named(railwright, in_slurm, limited, endless):
    in_slurm.kill_node("n3")
    try:
        done = railwright.finish(endless, WITHIN_S)
        assert done.status == 3, done.err
        kept, failed = railwright.results("mpi_bandwidth")
        assert (kept.outcome, failed.outcome) == ("measured", "failed")
        assert re.match(r"rank 1 \(host n3, pid \d+\) at step 'mpi_bandwidth 64 MiB", failed.reason), failed.reason
        wait_until(lambda: set(in_slurm.jobs()) <= {limited.number}, "the end of the job")
    finally:
        in_slurm.start_node("n3")
        wait_until(lambda: in_slurm.state_of("n3") == "idle", "the node is back")
    sweep()  # the folder of a rank that was killed is for the next launch there
    railwright.expect_nothing_left()


def test_too_few_nodes_are_refused_with_the_reason_of_each_that_is_lost(answer, in_slurm):
    in_slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=bad DIMM")
    try:
        done = answer(*QUICK, "--nodes", "4", "--dry-run")
    finally:
        in_slurm.ask("scontrol", "update", "nodename=n3", "state=resume")
        wait_until(lambda: in_slurm.state_of("n3") == "idle", "the node is back")
    assert done.status == 3
    assert (
        "--nodes must be at most 3, the usable nodes of the default partition, got 4: n3 drained (bad DIMM)"
        in done.message()
    )


def test_a_partition_that_is_not_there_is_refused(answer, in_slurm):
    done = answer(*QUICK, "--nodes", "2", "--partition", "fast", "--dry-run")
    assert done.status == 2
    assert done.message() == "railwright: there is no partition 'fast'\nhint: give --partition with one of: all, gpu"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--partition", "none", "true"], "Slurm refuses the partition, the account or the QOS"),
        (["--nodelist", "n9", "true"], "Slurm knows no such node, or none with the feature"),
        (["--jobid", "99999", "true"], "Slurm's job is over"),
        (["--mpi", "none_such", "true"], "the launcher and the MPI library have no common PMI or PMIx"),
        (["/no/such/rank"], "the program to start is missing on a host"),
        (["/etc/passwd"], "the program to start may not be executed on a host"),
        (["sh", "-c", "kill -ILL $$"], "a program uses instructions that the CPU lacks"),
    ],
)
def test_the_cause_of_a_failure_of_srun_is_named(in_slurm, words, cause):
    done = subprocess.run(
        ["srun", "--ntasks=1", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WITHIN_S
    )
    said = summarize_end(ChildResult(returncode=done.returncode, output=done.stdout.splitlines()))
    assert f"probably because {cause}, its output:" in said, done.stdout


def test_a_job_that_would_wait_for_ever_is_cancelled(in_slurm, tmp_path):
    wanted = SlurmRequest(1, more=("--begin=now+1hour",))
    job = submit(wanted, ["true"], tmp_path, 60.0, lambda _line: None)
    in_slurm.ask("scontrol", "hold", job.number)
    with pytest.raises(Exception, match=rf"job {job.number} would never start \(JobHeldAdmin\) and was cancelled"):
        job.follow()
    assert job.number not in in_slurm.jobs()


def test_a_job_at_its_time_limit_says_so(in_slurm, limited):
    limited.follow()
    ending = limited.explain_end()
    assert ending is not None
    assert ending.message == f"job {limited.number} ended at its time limit of 60.0 s"
    assert "--time" in ending.hint


def test_a_job_is_watched_on_all_of_its_nodes(answer, in_slurm, limited):
    job = in_slurm.ask("sbatch", "--parsable", "--nodes=2", "--nodelist=n2,n3", "--output=/dev/null", "--wrap",
                       "srun --ntasks-per-node=1 sleep 300").strip()  # fmt: skip
    try:
        there = lambda: "sleep" in in_slurm.ask("squeue", "--noheader", "--steps", "--jobs", job, "--format=%j")  # noqa: E731
        wait_until(there, "its step")
        done = answer("watch", "--job", job, "--slurm", "--seconds", "2", "--json")
        found = json.loads(done.out)
        told = {one["host"]: one["trouble"] or one["watched"]["scope"].partition(",")[0] for one in found["hosts"]}
        assert told == {"n2": f"job {job}", "n3": f"job {job}"}, done.err
        assert answer("watch", "--job", job, "--seconds", "1").out.startswith(f"job {job}, ")
    finally:
        in_slurm.ask("scancel", job)
    wait_until(lambda: set(in_slurm.jobs()) <= {limited.number}, "the end of the job")
    assert "must be running, got state" in answer("watch", "--job", job, "--slurm", "--seconds", "1").err
    assert "has no process here" in answer("watch", "--job", job, "--seconds", "1").err
