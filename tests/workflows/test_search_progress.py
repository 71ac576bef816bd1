"""Each round of a search says the time left, by the pace of those before it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from railwright.diagnosis.localise.procedure import Rounds
from railwright.options.arguments import Arguments
from railwright.workflows.searched import SearchProgress


def test_each_round_says_the_time_left(capsys: pytest.CaptureFixture) -> None:
    tell = SearchProgress(Rounds(screen=2, confirm=1), Arguments(cover=None), SimpleNamespace())
    for text in (
        "round 1: packets",
        "round 1: streams",
        "round 2: streams",
        "without a: silent",
        "round 3 (confirm): streams",
    ):
        tell(text)
    packets, first, second, other, last = capsys.readouterr().err.splitlines()
    assert (packets, other, last) == ("round 1: packets", "without a: silent", "round 3 (confirm): streams")
    assert first.startswith("round 1: streams, about ")
    assert second.startswith("round 2: streams, about ")
    assert second.endswith(" left")
