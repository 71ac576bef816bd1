"""The options of the verbs that measure or judge, for `runs.measuring` and `runs.judged`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from railwright.options.group import combine
from railwright.options.output import json_option

require_option = click.option(
    "--require",
    multiple=True,
    metavar="NAME|FILE",
    help="Only these paths decide the exit status: 'BENCHMARK', 'BENCHMARK PATH', or a file of such lines.",
)
accept_option = click.option(
    "--accept",
    metavar="SPEC",
    help="Hold the run against a specification (TOML) and write acceptance.html, a sheet to sign; it decides the exit "
    "status.",
)
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Also print what sets each limit, every name and counters."
)
records_option = json_option("Print the judged records instead of the report.")

measuring_options = combine(
    click.option("--output", "-O", type=click.Path(), default="out", show_default=True,
                 help="Folder for results.jsonl, report.html and metrics.txt."),
    click.option("--option", "-o", "options", multiple=True, metavar="[BENCHMARK.]NAME=VALUE",
                 help="A benchmark's option, like mpi_latency.sizes=8:1M:x2."),
    click.option("--mpirun", metavar="PATH", help="The mpirun to use; its own MPI library is used with it."),
    click.option("--silence", type=click.FloatRange(1, 86400), default=60, show_default=True, metavar="SECONDS",
                 help="Ranks silent for this long beyond their plan count as hung."),
    click.option("--dry-run", is_flag=True, help="Show the plan and stop."),
    click.option("--force", is_flag=True, help="Measure on a busy host, or beside another run."),
    require_option,
    verbose_option,
    records_option,
)  # fmt: skip


def launches_option(default: int) -> Callable[[Any], Any]:
    """How many launches of each benchmark are measured."""
    return click.option("--launches", type=click.IntRange(1, 1000), default=default, show_default=True,
                        help="Fresh processes per benchmark; their spread is the noise.")  # fmt: skip
