"""The rank that a launcher's last output names."""

from __future__ import annotations

import pytest

from railwright.launch.blame import Placement, RankState, summarize_end
from railwright.process import ChildResult

PLACED = Placement(4, ("a", "b"))


@pytest.mark.parametrize(
    ("line", "blamed"),
    [
        ("  Remote daemon: [prterun-a-2@0,1] on node b", {2, 3}),
        ("  Remote host:   b", {2, 3}),
        ("=   RUNNING AT b", {2, 3}),
        ("prterun noticed that process rank 2 with PID 41 on node b exited on signal 9 (Killed).", {2}),
        ("  HNP daemon   : [prterun-a-2@0,0] on node a", set()),
        ("  Remote host:   c", set()),
        ("srun: error: Node failure on b", {2, 3}),
        ("   Process name: [prterun-a-616@1,2]", {2}),
        ("  Process name: [[28334,1],3]", {3}),
        ("  Process name: [[28334,1],9]", set()),
        ("srun: error: a: task 1: Segmentation fault (core dumped)", set()),
    ],
)
def test_launchers_name_who_ended_first(line, blamed):
    assert PLACED.find_first_ended(["some words", line, "\0"]) == blamed


def test_srun_names_the_task_that_ended_first():
    output = [
        "srun: error: a: task 1: Segmentation fault (core dumped)",
        "srun: Terminating StepId=7.0",
        "slurmstepd: error: *** STEP 7.0 ON a CANCELLED AT 2026-01-02T03:04:05 ***",
        "srun: error: b: tasks 2-3: Terminated",
    ]
    assert PLACED.find_first_ended(output, are_tasks_ranks=True) == {1}
    assert PLACED.find_first_ended(output) == set()
    assert PLACED.find_first_ended(output[2:], are_tasks_ranks=True) == set()


def test_the_last_words_are_those_that_name_somebody():
    lines = ["-----", "  Remote daemon: [x@0,1] on node b", "We cannot recover from this failure.", "-----", "\0"]
    said = "exit status 1, its output: 'Remote daemon: [x@0,1] on node b'"
    assert summarize_end(ChildResult(returncode=1, output=lines, timed_out=False)) == said
    nobody = ChildResult(returncode=1, output=["no more room", "\0", "-----"], timed_out=False)
    assert summarize_end(nobody) == "exit status 1, its output: 'no more room'"
    silent = ChildResult(returncode=-9, output=[], timed_out=False)
    assert summarize_end(silent).startswith("killed by SIGKILL")


def test_a_host_of_which_nothing_comes_is_blamed_once_the_others_were_asked():
    silent, asked, done = RankState(), RankState(was_asked=True, is_lost=True), RankState(said_bye=True)
    assert PLACED.find_silent({0: asked, 1: done, 2: silent, 3: silent}) == {2, 3}
    assert PLACED.find_silent({0: done, 1: done, 2: silent, 3: silent}) == set()


def test_a_sentence_that_a_launcher_wrapped_is_read_whole():
    output = [
        "---",
        "mpirun noticed that process rank 3 with PID 0 on node b exited on",
        "signal 9 (Killed).",
        "---",
        "\0",
    ]
    assert PLACED.find_first_ended(output) == {3}
    said = summarize_end(ChildResult(returncode=137, output=output))
    assert said.endswith("'mpirun noticed that process rank 3 with PID 0 on node b exited on signal 9 (Killed).'")


@pytest.mark.parametrize("line", ["node1: cannot open", "[node1:31] error", "A further sentence", "", "Local host: a"])
def test_a_further_message_is_not_the_end_of_the_one_before(line):
    assert (
        PLACED.find_first_ended(
            ["mpirun noticed that process rank 1 with PID 41 on node a has", line, "exited on signal 9"]
        )
        == set()
    )
