"""Published tables of healthy machines that were not used for calibration: testdata/holdout."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from railwright.busbw import busbw_factor
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

LARGE = 64 * 2**20


@cache
def machine(name: str, hosts: int, collective: str):
    cluster = build_cluster(load(name), hosts)
    return cluster, compute_algorithms(Case(cluster=cluster), collective, explained=False)


def count_inside(path):
    """Return (inside, total) of the rows of a file, for sizes from 64 MiB up and below. No row may exceed its limit."""
    inside, total = {True: 0, False: 0}, {True: 0, False: 0}
    text = Path(path).read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        cluster, found = machine(row["machine"], int(row["hosts"]), row["collective"])
        size, busbw = int(row["size_bytes"]), float(row["busbw_gb_per_s"]) * 1e9
        algbw = busbw / float(busbw_factor(row["collective"], cluster.ranks))
        _, rate, _ = choose_at_size(cluster, row["collective"], found, size)
        assert algbw <= 1.02 * rate.limit, row
        inside[size >= LARGE] += rate.expected_low < algbw < rate.expected_high
        total[size >= LARGE] += 1
    return inside, total


def test_healthy_machines_are_inside_their_bands_and_none_is_above_its_limit():
    inside, total = count_inside("testdata/holdout/nccl_tests.csv")
    assert total[True] > 140
    assert total[False] > 60
    assert inside[True] / total[True] >= 0.95
    assert inside[False] / total[False] >= 0.95


def test_large_sizes_of_tables_that_were_looked_at_once_are_inside():
    inside, total = count_inside("testdata/holdout/unseen.csv")
    assert total[True] > 20
    assert inside[True] / total[True] >= 0.9


def test_tables_that_the_model_was_mended_by_are_inside():
    inside, total = count_inside("testdata/calibration/public.csv")
    assert total[True] > 90
    assert inside[True] / total[True] >= 0.9
    assert inside[False] / total[False] >= 0.85
