"""The variants of a fault, beside each other in one answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.expected.machine import Machine
from railwright.explain.hypotheses import fit
from railwright.options.machine import resolve_cluster
from railwright.results.readers import registry

EXTERNAL = Path(__file__).parents[2] / "testdata/external"
TABLES = sorted((EXTERNAL / "osu").glob("*bw*"))


@pytest.mark.parametrize("shape", ["dgx-1-v100", "hgx-h100"])
def test_variants_of_a_fault_differ_in_words(shape: str) -> None:
    machine = Machine(cluster=resolve_cluster(shape, 2, None))
    shown = [
        [(one.fault, one.says) for one in fit(table, machine)]
        for file in TABLES
        for table in registry.read(file.read_text(encoding="utf-8"))
    ]
    assert any(len(each) > 2 for each in shown), "tables with several hypotheses"
    assert [each for each in shown if len(set(each)) < len(each)] == []
