"""`railwright prove`: topology, limits, measurements, diagnosis, one report."""

from __future__ import annotations

from railwright.cli.command import command, option
from railwright.cli.measuring_options import MEASURING, launches_option

COMMAND = command(
    "prove",
    "prove:prove",
    """Measure this machine and hold every path against its limit.

    Needs no GPU and no root. Writes results.jsonl, report.html and metrics.txt.
    """,
    *MEASURING,
    launches_option(3),
    option("--directory", default=".", show_default=True, metavar="DIR", help="The file system to measure."),
)
