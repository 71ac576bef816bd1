"""`railwright compare A B`: two runs side by side, with noise taken into account."""

from __future__ import annotations

from pathlib import Path

import click

from railwright.errors import unknown_name


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--across",
    multiple=True,
    metavar="PARAMETER",
    help="Pair points that differ in this parameter, like `algorithm` or `transport`; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the records that the text is made from, one a line.")
def COMMAND(a: Path, b: Path, across: tuple[str, ...], as_json: bool) -> int:  # noqa: N802 - as every verb
    """Say what became faster or slower from run A to run B, beyond the noise of both.

    A and B are results files, or the directories that hold them. What makes the two incomparable (ranks, methods,
    routing modes, versions) comes first.

    Exit status: 0 nothing is slower, 1 something is slower beyond noise, 2 wrong usage, 3 it cannot be told.
    """
    from railwright.results.compare import compare
    from railwright.results.store import load

    first, second = load(a), load(b)
    known = {key for file in (first, second) for result in file.results for key in result.parameters}
    for name in across:
        if name not in known:
            raise unknown_name("parameter in these runs", name, known)
    comparison = compare(first, second, across)
    if as_json:
        from railwright.report.records import comparison_lines

        for line in comparison_lines(comparison):
            click.echo(line)
    else:
        from railwright.report.comparison_text import render_comparison
        from railwright.report.page import standard_output

        render_comparison(comparison, standard_output())
    return comparison.exit_status
