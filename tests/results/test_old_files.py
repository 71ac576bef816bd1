"""Results files of earlier schema versions, written by the code of their time, are read, judged and compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from railwright.results.records import READ_VERSIONS, SCHEMA_VERSION
from railwright.results.store import load

OLD = Path(__file__).parents[2] / "testdata/results"
VERSIONS = tuple(version for version in READ_VERSIONS if version != SCHEMA_VERSION)


def test_every_version_that_is_promised_has_a_file():
    assert {path.name for path in OLD.glob("*.jsonl")} == {f"version-{version}.jsonl" for version in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_file_keeps_its_measurements(version):
    file = load(OLD / f"version-{version}.jsonl")
    assert file.run.schema_version == version
    assert {result.benchmark for result in file.results} == {"core_latency", "memory_copy", "mpi_latency"}
    assert len(file.results) == 8
    for result in file.results:
        assert result.outcome == "failed" or (result.samples and result.summary)
    assert file.end is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_file_is_judged_and_compared(version, answer, tmp_path):
    old = shutil.copy(OLD / f"version-{version}.jsonl", tmp_path)  # the report is written next to it
    judged = answer("judge", old)
    assert judged.status in (0, 1, 3), judged.err
    assert all(name in judged.out for name in ("core_latency", "memory_copy", "mpi_latency"))
    compared = answer("compare", str(OLD / "version-1.jsonl"), old)
    assert compared.status in (0, 1, 3), compared.err
