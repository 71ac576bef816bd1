"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

from typing import Any

import click

from railwright.cli.measuring import measure, measuring_options


@click.command("run")
@click.argument("names", nargs=-1, metavar="NAME...")
@measuring_options(launches=1)
def COMMAND(names: tuple[str, ...], **asked: Any) -> int:  # noqa: ANN401, N802 - see cli/prove.py
    """Run single benchmarks; without a name, list them with their options."""
    if names:
        return measure(names, **asked)
    from railwright.benchmarks.registry import BENCHMARKS, EVERY

    for benchmark in EVERY:
        alone = "" if benchmark in BENCHMARKS else " (not part of prove)"
        click.echo(f"{benchmark.name:18} {benchmark.summary}{alone}")
        click.echo(f"{'':18} method: {benchmark.method}")
        for option in benchmark.options:
            click.echo(f"{'':18} -o {benchmark.name}.{option.name}={option.default}    {option.help}")
    return 0
