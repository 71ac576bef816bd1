"""All benchmarks of one machine."""

from __future__ import annotations

from typing import Any

from railwright.benchmarks.registry import BENCHMARKS
from railwright.verbs.measuring import measure


def prove(directory: str, options: tuple[str, ...], **asked: Any) -> int:  # noqa: ANN401 - for `measure`
    """Measure, judge and report; the exit status."""
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    return measure(names, options=(f"directory={directory}", *options), **asked)
