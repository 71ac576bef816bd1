"""Progress on a terminal is by the planned time, and what is waived takes none of it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from railwright.benchmarks.benchmark import Plan
from railwright.verbs.measuring import _Display


def launch(seconds: float, waived: str = "") -> SimpleNamespace:
    plan = Plan(path="p", seconds=seconds, memory_bytes=0, waived=waived)
    return SimpleNamespace(plan=plan, title="memory_copy", job=SimpleNamespace(round=0))


def test_a_bar_advances_by_the_planned_seconds_of_what_was_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    proof = SimpleNamespace(seconds=10.0, launches=1)
    display = _Display(proof)
    with display:
        (task,) = display._progress.tasks
        seen = []
        for done in (launch(4.0), launch(4.0, waived="no GPU"), launch(6.0)):
            proof.on_done(done)
            seen.append((task.completed, task.finished))
    assert seen == [(4.0, False), (4.0, False), (10.0, True)]


def test_without_a_terminal_each_launch_is_a_line_that_says_if_it_was_waived(capsys: pytest.CaptureFixture) -> None:
    proof = SimpleNamespace(seconds=10.0, launches=1)
    with _Display(proof):
        proof.on_done(launch(4.0))
        proof.on_done(launch(0.0, waived="no GPU"))
    assert capsys.readouterr().err.splitlines() == [
        "done: launch 1: memory_copy",
        "done: launch 1: memory_copy (waived)",
    ]
