"""Progress on a terminal follows the planned time, of which waived launches take none."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from railwright.benchmarks.benchmark import Plan
from railwright.workflows.measuring import _Display


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
