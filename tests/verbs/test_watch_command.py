"""`railwright watch` from the command line."""

from __future__ import annotations

import json

import pytest
from tests.schemas import fits

from railwright.main import run_command

WORDS = "period=0.3 compute=0.6 communication=0.5 exposed=0.4 noise=0.1 drift=0.01 missing=0.02 seconds=10 seed=7"


def test_a_simulation_prints_truth_and_estimate(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["watch", "--simulate", WORDS, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    fits(found, "watch")
    for name in ("period_s", "compute", "communication", "exposed", "best_gain"):
        assert found["estimate"][name] == pytest.approx(found["truth"][name], abs=0.05), name
    assert run_command(["watch", "--simulate", WORDS]) == 0
    text = capfd.readouterr().out
    assert "times as fast with a perfect interconnect" in text
    assert run_command(["watch", "--simulate", "noise=5 seconds=5"]) == 0
    assert "no period here" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("perod=1", "perod"),
        ("period=-1", "period=-1 is out of range"),
        ("period=x", "period=x is out of range"),
        ("seed=0.5", "seed=0.5 is out of range"),
        ("exposed=0.6", "exposed=0.6 is above communication=0.5"),
        ("compute=0.9", "more than the whole period"),
        ("compute=0.1 communication=0.9", "is above compute=0.1"),
        ("rate=10000 seconds=1000", "at most 400000 samples, got 10000000"),
    ],
)
def test_a_job_that_cannot_be_is_refused(words: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["watch", "--simulate", words]) == 2
    assert says in capfd.readouterr().err
