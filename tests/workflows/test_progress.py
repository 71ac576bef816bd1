"""Progress on a terminal follows the planned time, of which waived launches take none."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from railwright.benchmarks.benchmark import Plan
from railwright.verbs.prove.hosts import HostsProgress
from railwright.workflows.measuring import _Display
from railwright.workflows.time_left import TimeLeft


def launch(seconds: float, waived: str = "", name: str = "memory_copy") -> SimpleNamespace:
    plan = Plan(path="p", seconds=seconds, memory_bytes=0, waived=waived)
    return SimpleNamespace(plan=plan, benchmark=SimpleNamespace(name=name), job=SimpleNamespace(round=0))


def test_a_bar_advances_by_the_planned_seconds_of_what_was_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    proof = SimpleNamespace(seconds=10.0, launches=1, plan=())
    display = _Display(proof)
    with display:
        (task,) = display._progress.tasks
        seen = []
        for done in (launch(4.0), launch(4.0, waived="no GPU"), launch(6.0)):
            proof.on_done(done)
            seen.append((task.completed, task.finished))
    assert seen == [(4.0, False), (4.0, False), (10.0, True)]


def test_without_a_terminal_each_benchmark_is_a_line_when_its_last_launch_is_over(
    capsys: pytest.CaptureFixture,
) -> None:
    plan = [launch(4.0), launch(0.0, waived="no GPU"), launch(0.0, waived="no GPU", name="gpu_copy"), launch(4.0)]
    proof = SimpleNamespace(seconds=10.0, launches=1, plan=plan)
    with _Display(proof):
        for one in plan:
            proof.on_done(one)
    assert capsys.readouterr().err.splitlines() == ["not run: gpu_copy", "done: memory_copy (3 launches)"]


def test_a_line_says_the_time_left_while_other_benchmarks_remain(capsys: pytest.CaptureFixture) -> None:
    plan = [launch(4.0), launch(6.0, name="gpu_copy")]
    proof = SimpleNamespace(seconds=10.0, launches=1, plan=plan)
    with _Display(proof):
        for one in plan:
            proof.on_done(one)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("done: memory_copy (1 launch), about ")
    assert first.endswith(" left")
    assert last == "done: gpu_copy (1 launch)"


def test_each_round_but_the_last_is_a_line(capsys: pytest.CaptureFixture) -> None:
    plan = [launch(4.0), launch(4.0)]
    plan[1].job.round = 1
    proof = SimpleNamespace(seconds=8.0, launches=2, plan=plan)
    with _Display(proof):
        for one in plan:
            proof.on_done(one)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("done: round 1 of 2, about ")
    assert last == "done: memory_copy (2 launches)"


def test_hosts_that_measure_at_once_count_as_one_part_of_the_time(capsys: pytest.CaptureFixture) -> None:
    now = [0.0]
    left = TimeLeft(30.0, clock=lambda: now[0])  # two turns of 10 s, and 10 s between the hosts
    tell = HostsProgress(SimpleNamespace(at_once=2), left, 10.0)
    for now[0], host in ((10.0, "a"), (10.0, "b"), (20.0, "c"), (20.0, "d")):
        tell(f"{host}: done")
    said = [f"{host}: done, about {seconds} s left" for host, seconds in (("a", 20), ("b", 20), ("c", 10), ("d", 10))]
    assert capsys.readouterr().err.replace(".0 s", " s").splitlines() == said


def test_time_left_follows_the_pace_so_far_and_never_goes_below_zero() -> None:
    now = [0.0]
    left = TimeLeft(100.0, clock=lambda: now[0])
    assert left.estimate() == 100
    now[0] = 30.0
    assert left.estimate() == 70, "the first launch is under way"
    now[0] = 100.0
    left.advance(50.0)  # twice as slow as planned
    assert left.estimate() == pytest.approx(50 * 110 / 60)
    now[0] = 500.0
    assert left.estimate() == 0
    left.advance(50.0)
    assert left.estimate() == 0
    assert TimeLeft(0.0).estimate() == 0
