"""The table of training iterations fits the terminal's width and drops the columns that do not fit."""

from __future__ import annotations

import pytest

from railwright.benchmarks.registry import DECLARATIONS
from railwright.report.text.iterations import PARTS, render_iterations
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise

SECONDS = {"iteration": 3e-3, "compute": 2e-3, "exposed": 1e-3, "communication": 1.25e-3}


def step(part: str) -> Result:
    samples = [SECONDS[part] * (1 + 0.01 * number) for number in range(5)]
    return Result(
        benchmark="train_step", quantity="latency_s", path="gpu0>gpu1", ranks=2, samples=tuple(samples),
        parameters={"model": "100K", "dtype": "fp32", "buckets": "100K", "overlap": "yes", "part": part},
        summary=summarise(samples), verification=Verification(method="m", bytes_checked=1, bytes_wrong=0),
    )  # fmt: skip


def lines(width: int) -> list[str]:
    return render_iterations([step(part) for part in PARTS], DECLARATIONS, width).splitlines()


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (120, ["mean", "median", "min", "max", "std"]),
        (92, ["mean", "median", "min", "max", "std"]),
        (91, ["mean", "median", "max", "min"]),
        (62, ["mean", "median"]),
        (30, ["median"]),
    ],
)
def test_the_statistics_that_fit_are_shown(width: int, heads: list[str]) -> None:
    found = lines(width)
    (head,) = [line for line in found if line.split() and set(line.split()) <= {"mean", "median", "min", "max", "std"}]
    assert sorted(head.split()) == sorted(heads)
    rows = [line for line in found if line.strip().partition("  ")[0] in ("compute", "exposed")]
    assert [len(row.split()) - 1 for row in rows] == [2 * len(heads)] * 2, "a number and its unit for each"
    assert len(head) <= max(width, 52)
    assert all(len(row) == len(head) for row in rows)
