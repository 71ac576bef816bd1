"""The table of the cost of NCCL's own choice against the best forced combination."""

from __future__ import annotations

import re

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import NoLimit
from railwright.report.nccl_choice import cost_lines
from railwright.results.records import Evidence
from railwright.results.statistics import summarise

KIB, MIB = 1 << 10, 1 << 20


def point(size, seconds, algorithm=None, protocol=None, *, chosen="", quantity="latency_s", state="unknown",
          outcome="measured", **parameters):  # fmt: skip
    forced = {key: value for key, value in (("algorithm", algorithm), ("protocol", protocol)) if value}
    samples = [seconds * 0.99, seconds, seconds * 1.01]
    return Judged(
        benchmark="nccl_all_reduce",
        quantity=quantity,
        path="gpu0>gpu1",
        parameters={"size_bytes": size, "placement": "out of place", **forced, **parameters},
        outcome=outcome,
        value=seconds if outcome == "measured" else None,
        launches=(summarise(samples),) if outcome == "measured" else (),
        limit=NoLimit(quantity=quantity, why="none"),
        verdict=Verdict(state=state, why=""),
        evidence=(Evidence(claim="algorithm", value=chosen, seen="log"),) if chosen else (),
    )


def table(*points):
    """Split each row into cells at two or more blanks."""
    _, _, *rows = cost_lines(points)
    return [re.split(r"\s{2,}", row.strip()) for row in rows]


def test_each_size_has_the_best_choice_and_the_cost_of_nccls_own():
    rows = table(
        point(8, 12e-6, "free", "free", chosen="Ring/LL"),
        point(8, 10e-6, "Tree", "LL"),
        point(8, 15e-6, "Ring", "Simple"),
        point(MIB, 40e-6, "free", "free", chosen="Ring/Simple"),
        point(MIB, 60e-6, "Tree", "LL"),
    )
    assert rows == [
        ["8 B", "Tree/LL", "10.0 us", "Ring/LL", "12.0 us", "1.20"],
        ["1 MiB", "NCCL's own", "40.0 us", "Ring/Simple", "40.0 us", "1.00"],
    ]


def test_a_difference_smaller_than_the_samples_spread_is_called_noise():
    (row,) = table(point(8, 10.1e-6, "free", chosen="Ring/LL"), point(8, 10e-6, "Ring"))
    assert (row[1], row[-1]) == ("Ring", "within noise")


def test_no_table_without_a_free_and_a_forced_point():
    for points in ([point(8, 1e-6)], [point(8, 1e-6, "Tree"), point(8, 2e-6, "Ring")], []):
        assert list(cost_lines(points)) == [], points


def test_failures_points_not_run_and_bandwidths_are_ignored():
    rows = table(
        point(8, 12e-6, "free"),
        point(8, 11e-6, "Ring"),
        point(8, 1e-6, "Tree", state="failed"),
        point(8, 1e-6, "PAT", outcome="waived"),
        point(8, 1e-6, "NVLS", quantity="bandwidth_bytes_per_s"),
    )
    assert [(row[1], row[3]) for row in rows] == [("Ring", "not known")]


def test_each_curve_has_its_own_table():
    points = [
        point(8, 2e-6, algorithm, launched=launched)
        for algorithm in ("free", "Ring")
        for launched in ("plain", "graph")
    ]
    titles = [line for line in cost_lines(points) if not line.startswith(" ")]
    assert len(titles) == 2
    assert all(title.startswith("nccl_all_reduce  gpu0>gpu1  ") for title in titles)


def test_the_text_is_aligned_and_shows_control_characters_escaped():
    points = [point(8, 12e-6, "free", chosen="Ring\x1b[31m/LL"), point(64 * KIB, 13e-6, "free"),
              point(8, 10e-6, "Tree"), point(64 * KIB, 10e-6, "Tree")]  # fmt: skip
    title, head, *rows = cost_lines(points)
    assert title == "nccl_all_reduce  gpu0>gpu1  placement out of place"
    assert head.split() == ["size", "best", "time", "NCCL's", "own", "time", "own", "/", "best"]
    assert "\x1b" not in "".join(rows)
    assert rows[0].rstrip().endswith("1.20")
    assert rows[1].rstrip().endswith("1.30")
    assert len({row.index("Tree") for row in rows}) == 1
