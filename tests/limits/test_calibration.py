"""The model against published measurements, leaving one system out at a time.

The model is fitted to no single system: only shares of planning rates rest on measured machines
(NVLink's band, the all_to_all band of NICs). Each is computed here from the other systems alone.
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from railwright.busbw import busbw_factor
from railwright.expected.collective_rows import collective_row
from railwright.limits import nccl
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.limits.limit import Constant, Source
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

ROWS = list(csv.DictReader(Path("testdata/calibration/published.csv").read_text(encoding="utf-8").splitlines()))
LARGE = 2**30
SHAPES = {"p5.48xlarge": "aws-p5", "8x H200": "hgx-h200", "8x B200": "hgx-b200"}
COLLECTIVES = {"alltoall_perf": "all_to_all", "all_reduce_perf": "all_reduce"}
# The share of NVLink's planning rate by each system alone: busbw of rings over links x planning rate.
RINGS = {"hgx-h200": (0.980, 0.987), "hgx-b200": (0.933, 0.945), "a100": (0.963, 0.979)}
ALL_TO_ALL = {"aws-p5": 0.797}
TOLERANCE = 1.02


def shape_of(row) -> str:
    return next(shape for words, shape in SHAPES.items() if row["hardware"].startswith(words))


def collective_rows(shape=None):
    rows = [row for row in ROWS if row["use"] == "calibration" and row["test"] in COLLECTIVES]
    return [row for row in rows if shape is None or shape_of(row) == shape]


def limit_for(row, known):
    """Return the busbw at the row's size; `known` keeps the rates of the same algorithms at large sizes."""
    algorithm = "ring" if "ring" in row["metric"] else "auto"
    collective = COLLECTIVES[row["test"]]
    key = (shape_of(row), row["gpus_per_node"], row["nodes"], collective, algorithm)
    if key not in known:
        cluster = build_cluster(load(f"{shape_of(row)} gpus={row['gpus_per_node']}"), int(row["nodes"]))
        known[key] = (
            cluster,
            compute_algorithms(Case(cluster=cluster, algorithm=algorithm), collective, explained=False),
        )
    cluster, found = known[key]
    _, rate, _ = choose_at_size(cluster, collective, found, int(row["message_bytes"]))
    return rate.times(float(busbw_factor(collective, cluster.ranks)))


def leave_out(monkeypatch, shape: str) -> None:
    """Set the shares as if that system had never been measured: 3 % beyond the others' extremes."""
    others = [share for name, shares in RINGS.items() if name != shape for share in shares]
    source = Source(title="the other systems")
    band = (
        Constant(value=min(others) * 0.97, unit="", source=source),
        Constant(value=max(others) * 1.03, unit="", source=source),
    )
    monkeypatch.setattr(nccl, "_NVLINK_SHARE", band)
    if shape in ALL_TO_ALL:
        monkeypatch.setattr(nccl, "_ALL_TO_ALL_LOW", nccl._NIC_SHARE[0])


@pytest.mark.parametrize("shape", SHAPES.values())
def test_large_messages_of_a_system_left_out_are_within_7_percent_of_the_middle(shape, monkeypatch):
    leave_out(monkeypatch, shape)
    ratios, known = [], {}
    for row in collective_rows(shape):
        if int(row["message_bytes"]) >= LARGE:
            found = limit_for(row, known)
            ratios.append(float(row["value"]) * 1e9 / ((found.expected_low + found.expected_high) / 2))
    assert len(ratios) >= 10
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.07)


def test_every_measurement_of_a_healthy_machine_is_below_its_limit_and_inside_its_band():
    known = {}
    assert len(collective_rows()) > 50
    for row in collective_rows():
        found, value = limit_for(row, known), float(row["value"]) * 1e9
        assert value <= found.limit * TOLERANCE, row["id"]
        assert found.expected_low <= value <= found.expected_high * TOLERANCE, row["id"]


def test_the_rates_compared_are_those_of_the_answer():
    row = collective_rows()[0]
    cluster = build_cluster(load(f"{shape_of(row)} gpus={row['gpus_per_node']}"), int(row["nodes"]))
    algorithm = "ring" if "ring" in row["metric"] else "auto"
    answer = collective_row(cluster, COLLECTIVES[row["test"]], algorithm, int(row["message_bytes"]))
    assert answer.busbw_bytes_per_s == limit_for(row, {})
