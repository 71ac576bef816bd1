"""`railwright prove`: topology, limits, measurements, diagnosis, one report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from railwright.cli.measuring import measure, measuring_options, settle


@click.command("prove")
@measuring_options
@click.option("--launches", type=click.IntRange(1, 50), default=3, show_default=True,
              help="Fresh processes per benchmark; their spread is the noise.")  # fmt: skip
@click.option("--directory", default=".", show_default=True, metavar="DIR", help="The file system to measure.")
def COMMAND(  # noqa: N802 - every verb's module exports its command by this name
    output: Path,
    options: tuple[str, ...],
    mpirun: str | None,
    silence: float,
    dry_run: bool,
    force: bool,
    as_json: bool,
    launches: int,
    directory: str,
) -> int:
    """Measure this machine and hold every path against its limit.

    Needs no GPU and no root. Writes results.jsonl, report.html and metrics.txt.
    """
    from railwright.benchmarks.registry import BENCHMARKS
    from railwright.launch.proof import Proof
    from railwright.topology.sources.load import load

    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    proof = Proof(
        topology=load(None),
        chosen=settle(names, (f"directory={directory}", *options)),
        launches=launches,
        command=("railwright", *sys.argv[1:]),
        mpirun=mpirun,
        silence_s=silence,
        force=force,
    )
    return measure(proof, output, dry_run=dry_run, as_json=as_json)
