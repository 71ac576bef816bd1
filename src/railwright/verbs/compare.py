"""`railwright compare A B`: compares two runs, taking noise into account."""

from __future__ import annotations

import click

from railwright.errors import unknown_name
from railwright.options.help import Command
from railwright.options.output import json_option


@click.command(cls=Command)
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option(
    "--across",
    multiple=True,
    metavar="PARAMETER",
    help="Pair points that differ in this parameter, like `algorithm` or `transport`. May be repeated.",
)
@json_option("Print the underlying records, one per line.")
def compare(a: str, b: str, across: tuple[str, ...], as_json: bool) -> int:
    """Report changes from run A to run B that exceed the noise of both.

    A point is within noise only if the launches exclude a change of a tenth. Otherwise more launches must decide, and
    their number is estimated.

    A and B are results files or their directories. Differences that make the runs incomparable (ranks, methods,
    routing modes, versions) come first.

    Exit status: 0 nothing is slower, 1 something is slower beyond noise, 2 wrong usage,
    3 something is undecided or was not compared.
    """
    from pathlib import Path

    from railwright.results.compare import compare as compare_runs
    from railwright.results.store import load
    from railwright.workflows.compared import show

    first, second = load(Path(a)), load(Path(b))
    known = {key for file in (first, second) for result in file.results for key in result.parameters}
    for name in across:
        if name not in known:
            raise unknown_name("parameter in these runs", name, known)
    return show(compare_runs(first, second, across), as_json=as_json)
