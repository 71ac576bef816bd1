"""The folder of recorded outputs, and the queries that tests of readers share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result

EXTERNAL = Path(__file__).parents[3] / "testdata" / "external"
THREADS = EXTERNAL / "threads"


def text(name: str) -> str:
    return (EXTERNAL / name).read_text(encoding="utf-8")


def value(result: Result) -> float:
    assert result.summary is not None
    assert result.samples[0] == result.summary.median
    return result.samples[0]


def of(file: ForeignFile, quantity: str = "bandwidth_bytes_per_s") -> list[Result]:
    return [result for result in file.results if result.quantity == quantity]


def sizes(results: Iterable[Result]) -> list[object]:
    return [result.parameters["size_bytes"] for result in results]
