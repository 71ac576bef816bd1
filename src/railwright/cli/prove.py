"""`railwright prove`: topology, limits, measurements, diagnosis, one report."""

from __future__ import annotations

from typing import Any

import click

from railwright.cli.measuring import measure, measuring_options


@click.command("prove")
@measuring_options(launches=3)
@click.option("--directory", default=".", show_default=True, metavar="DIR", help="The file system to measure.")
def COMMAND(directory: str, options: tuple[str, ...], **asked: Any) -> int:  # noqa: ANN401, N802 - every verb's module exports its command by this name
    """Measure this machine and hold every path against its limit.

    Needs no GPU and no root. Writes results.jsonl, report.html and metrics.txt.
    """
    from railwright.benchmarks.registry import BENCHMARKS

    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    return measure(names, options=(f"directory={directory}", *options), **asked)
