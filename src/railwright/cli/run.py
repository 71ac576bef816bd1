"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from railwright.cli.measuring import measure, measuring_options, settle


@click.command("run")
@click.argument("names", nargs=-1, metavar="NAME...")
@measuring_options
@click.option("--launches", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Fresh processes per benchmark; their spread is the noise.")  # fmt: skip
def COMMAND(  # noqa: N802 - every verb's module exports its command by this name
    names: tuple[str, ...],
    output: Path,
    options: tuple[str, ...],
    mpirun: str | None,
    silence: float,
    dry_run: bool,
    force: bool,
    as_json: bool,
    launches: int,
) -> int:
    """Run single benchmarks; without a name, list them with their options."""
    if not names:
        _list()
        return 0
    from railwright.launch.proof import Proof
    from railwright.topology.sources.load import load

    proof = Proof(
        topology=load(None),
        chosen=settle(names, options),
        launches=launches,
        command=("railwright", *sys.argv[1:]),
        mpirun=mpirun,
        silence_s=silence,
        force=force,
    )
    return measure(proof, output, dry_run=dry_run, as_json=as_json)


def _list() -> None:
    from railwright.benchmarks.registry import BENCHMARKS

    for benchmark in BENCHMARKS:
        click.echo(f"{benchmark.name:16} {benchmark.summary}")
        click.echo(f"{'':16} method: {benchmark.method}")
        for option in benchmark.options:
            click.echo(f"{'':16} -o {benchmark.name}.{option.name}={option.default}    {option.help}")
