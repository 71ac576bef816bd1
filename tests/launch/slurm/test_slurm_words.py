"""Requests to Slurm, and the parsing of its answers, without a Slurm."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from railwright import __version__, main
from railwright.errors import CannotJudge, UnreachableHosts, UsageError
from railwright.launch.slurm import job as slurm_job
from railwright.launch.slurm.allocation import SlurmReach, parse_fields, read_allocation
from railwright.launch.slurm.job import NodeGroup, SlurmJob, SlurmRequest, describe_cost, parse_groups, parse_limit
from railwright.process import ChildResult

LINES = [
    "2|gpu|idle|gpu:h100:8(S:0-1),nvme:1|g[1-2]|none",
    "1|gpu|drained|gpu:h100:8(S:0-1)|g3|bad DIMM | slot 2",
    "1|gpu|down*|gpu:h100:8|g4|Not responding",
    "30|cpu*|mixed|(null)|c[1-30]|none",
    "no line of sinfo",
]


def test_time_limits_are_read_as_slurm_does():
    for text, seconds in (("30", 1800), ("2:30", 150), ("1:00:00", 3600), ("1-0", 86400), ("1-2:30", 95400),
                          ("1-02:30:10", 95410)):  # fmt: skip
        assert parse_limit(text) == seconds, text
    for text in ("", "0", "soon", "1:2:3:4", "-5", "1d", "30;scancel"):
        with pytest.raises(UsageError):
            parse_limit(text)


def test_the_limit_follows_from_the_plan_in_whole_minutes():
    assert SlurmRequest(2).choose_limit(20.0) == 600.0
    assert SlurmRequest(2).choose_limit(1000.0) == 3000.0
    assert SlurmRequest(2).choose_limit(1001.0) == 3060.0
    assert SlurmRequest(2, limit_s=61.0).choose_limit(5000.0) == 120.0


def test_words_that_sbatch_could_misread_are_refused():
    for options in ({"partition": "-all"}, {"account": "a b"}, {"more": ("-n4",)}, {"more": ("--array=1-4",)},
                    {"more": ("--wrap=ls",)}, {"more": ("--qos=a\nb",)}):  # fmt: skip
        with pytest.raises(UsageError):
            SlurmRequest(2, **options)
    assert "--qos=high" in SlurmRequest(2, more=("--qos=high",)).sbatch_command(600.0, Path("/out"))


def test_nodes_are_counted_by_what_a_job_may_get():
    groups = parse_groups(LINES, "gpu")
    assert [(group.size, group.gpus, group.is_usable) for group in groups] == [
        (2, 8, True),
        (1, 8, False),
        (1, 8, False),
    ]
    assert groups[1].reason == "bad DIMM | slot 2"
    assert [group.size for group in parse_groups(LINES, "")] == [30]


def test_the_plan_tells_gpu_hours_of_whole_nodes():
    groups = parse_groups(LINES, "gpu")
    said = describe_cost(SlurmRequest(2, partition="gpu"), groups, 1800.0, 600.0)
    assert "at most 8 GPU hours (2 x 8 GPUs), 2.7 by the plan" in said
    assert said.endswith("it can use them only with --gpus-per-node 8")
    asked = describe_cost(SlurmRequest(2, partition="gpu", gpus_per_node=4), groups, 1800.0, 600.0)
    assert asked.endswith("at most 4 GPU hours (2 x 4 GPUs), 1.3 by the plan")
    assert describe_cost(SlurmRequest(2), [NodeGroup(30, "idle", 0, "c", "")], 1800.0, 60.0).endswith(
        "1 node hours, no GPU hours"
    )


def test_the_fields_of_a_job_are_read_from_its_line():
    line = ("JobId=7 JobName=rail wright UserId=root(0) JobState=NODE_FAIL Reason=NodeDown Dependency=(null) "
            "ExitCode=0:1 NodeList=n[1-2] Command=(null) JobState=FAKE")  # fmt: skip
    found = parse_fields(line)
    assert (found["JobState"], found["Reason"], found["NodeList"]) == ("NODE_FAIL", "NodeDown", "n[1-2]")


COMMANDS = """#!{python}
import json, sys
nodes = [f"n{{number:04}}" for number in range(1000)]
match sys.argv[0].rpartition("/")[2]:
    case "scontrol":
        print(*nodes, sep="\\n")
    case "sinfo":
        print(*(f"{{node}}|{{'down' if node == 'n0003' else 'idle'}}|none" for node in nodes), sep="\\n")
    case "srun":
        has = [(f"eth{{number}}", f"2001:db8::{{number:x}}") for number in range(300)]
        for node in nodes:
            if node not in ("n0003", "n0005"):
                print("railwright:" + json.dumps(dict(version="{version}", boot=node, host=node, seen=[], has=has)))
        sys.exit("srun: error: n0005: task 5: Exited with exit code 1")
"""


@pytest.mark.machine
def test_a_job_of_a_thousand_nodes_keeps_them_all(tmp_path: Path, monkeypatch) -> None:
    for name in ("scontrol", "sinfo", "srun"):
        (tmp_path / name).write_text(COMMANDS.format(python=sys.executable, version=__version__))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    allocation = read_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0000-0999]"})
    assert allocation.nodes == tuple(f"n{number:04}" for number in range(1000))
    with pytest.raises(UnreachableHosts) as raised:
        SlurmReach(allocation.nodes, allocation=allocation).check()
    assert raised.value.troubles == {
        "n0003": "n0003: Slurm reports it as down",
        "n0005": "n0005: srun: error: n0005: task 5: Exited with exit code 1",
    }


def test_each_way_to_end_early_has_words_and_a_next_step(tmp_path):
    said = {}
    for state in ("TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "COMPLETED", "FAILED", ""):
        ending = SlurmJob("7", tmp_path / "slurm-7.log", 600.0, print, state).explain_end()
        said[state] = "" if ending is None else ending.message
        assert ending is None or ending.hint
    assert [state for state, words in said.items() if not words] == ["COMPLETED", "FAILED", ""]
    assert said["TIMEOUT"].startswith("job 7 ended at its time limit of ")
    assert len(set(said.values())) == 6


class Controller:
    """Stands in for Slurm's commands: a job that a signal to us finds submitted, pending or running."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, during: str) -> None:
        self.during, self.asked = during, list[str]()
        self.state = "PENDING"
        monkeypatch.setattr(slurm_job, "ask_slurm", self.answer)
        monkeypatch.setattr(slurm_job, "read_job_fields", self.read)
        monkeypatch.setattr(slurm_job.time, "sleep", lambda _seconds: None)

    def answer(self, *words: str, given: bytes = b"") -> ChildResult:
        self.asked.append(words[0])
        match words[0]:
            case "sinfo":
                return ChildResult(0, LINES)
            case "sbatch":
                assert b"RAILWRIGHT_SUBMITTED=1 exec " in given
                self.signal("sbatch")
                return ChildResult(0, ["7"])
        assert words == ("scancel", "7")
        if self.asked.count("scancel") == 1 and self.during == "a controller that is restarted":
            raise CannotJudge("scancel: Unable to contact slurm controller")
        self.state = "COMPLETING"
        return ChildResult(0, [])

    def read(self, number: str) -> dict[str, str]:
        self.asked.append("scontrol")
        before = self.state
        if before == "COMPLETING":
            self.signal("the end")
            self.state = "CANCELLED"
        if self.asked.count("scontrol") == 2 and self.during != "sbatch":
            raise KeyboardInterrupt("SIGHUP")
        return {"JobId": number, "JobState": before}

    def signal(self, at: str) -> None:
        if self.during == at:
            signal.raise_signal(signal.SIGQUIT)


@pytest.mark.parametrize("during", ["waiting", "sbatch", "the end", "a controller that is restarted"])
def test_a_signal_cancels_the_submitted_job_once(answer, monkeypatch, during):
    for name in ("SLURM_JOB_ID", "RAILWRIGHT_SUBMITTED"):
        monkeypatch.delenv(name, raising=False)
    ending = main._ENDING
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ending}  # a shell's jobs ignore SIGQUIT
    controller = Controller(monkeypatch, during=during)
    try:
        main._end_on_signals()
        done = answer("run", "mpi_all_reduce", "--slurm", "--nodes", "2", "--alone", "-O", "out")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert controller.state == "CANCELLED", done.err
    assert controller.asked.count("scancel") == 1 + (during == "a controller that is restarted")
    if during == "sbatch":
        assert (done.status, done.message()) == (2, "railwright: interrupted by SIGQUIT")
    else:
        assert done.status == 3
        assert done.message().startswith("railwright: job 7 was interrupted by SIGHUP and cancelled\nhint: see its log")


def test_jobs_that_are_not_measured_as_a_whole_are_refused_by_name():
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    for more, words in (
        ({"SLURM_HET_SIZE": "2"}, "job 7 is heterogeneous"),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "5"}, "job 7 is task 3 of array 5"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "srun has started it 4 times"),
    ):
        with pytest.raises(UsageError, match=words):
            read_allocation(inside | more)


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (("--nodes", "4"), {}, "--nodes requires --slurm"),
        (("--slurm",), {}, "--slurm outside of a job requires --nodes"),
        (("--slurm", "--nodes", "2", "--hosts", "a,b"), {}, "--hosts with --slurm requires a surrounding job"),
        (("--slurm", "--nodes", "2"), {"SLURM_JOB_ID": "7"}, "--nodes applies only to a new job"),
        (("--slurm", "--lab", "lab"), {"SLURM_JOB_ID": "7"}, "--slurm excludes --lab and --ssh-config"),
        (("--slurm", "--nodes", "2", "--time", "soon"), {}, "--time must be a time limit, got 'soon'"),
    ],
)
def test_words_that_make_no_job_are_refused(answer, monkeypatch, words, environment, message):
    for name in ("SLURM_JOB_ID", "RAILWRIGHT_SUBMITTED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = answer("run", "mpi_all_reduce", *words)
    assert done.status == 2
    assert message in done.message()
