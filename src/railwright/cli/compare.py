"""`railwright compare A B`: two runs side by side, with noise taken into account."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command, json_option, option

COMMAND = command(
    "compare",
    "compare:compare_runs",
    """Say what became faster or slower from run A to run B, beyond the noise of both.

    A and B are results files, or the directories that hold them. What makes the two incomparable (ranks, methods,
    routing modes, versions) comes first.

    Exit status: 0 nothing is slower, 1 something is slower beyond noise, 2 wrong usage, 3 it cannot be told.
    """,
    argument("a", type=click.Path()),
    argument("b", type=click.Path()),
    option(
        "--across",
        multiple=True,
        metavar="PARAMETER",
        help="Pair points that differ in this parameter, like `algorithm` or `transport`; may be repeated.",
    ),
    json_option("Print the records that the text is made from, one a line."),
)
