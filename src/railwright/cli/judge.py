"""`railwright judge FILE`: a results file judged again, with today's limits, on any machine."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.measuring_options import ACCEPT, REQUIRE, VERBOSE

COMMAND = command(
    "judge",
    "judge:judge",
    "Judge RESULTS (a results.jsonl or its folder) again and write its reports, beside it if no folder is given.",
    argument("results", type=click.Path()),
    option("--output", "-O", type=click.Path(), help="Folder for the reports."),
    REQUIRE,
    ACCEPT,
    VERBOSE,
    json_option("Print the judged records instead of the report."),
)
