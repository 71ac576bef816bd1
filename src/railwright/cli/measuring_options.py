"""The options that `prove` and `run` have in common."""

from __future__ import annotations

import click

from railwright.cli.command import json_option, option

REQUIRE = option(
    "--require",
    multiple=True,
    metavar="NAME|FILE",
    help="Only these paths decide the exit status: 'BENCHMARK', 'BENCHMARK PATH', or a file of such lines.",
)
"""Which paths must be ok."""

ACCEPT = option(
    "--accept",
    metavar="SPEC",
    help="Hold the run against a specification (TOML) and write acceptance.html, a sheet to sign; it decides the exit "
    "status.",
)
"""What a vendor and a customer agreed on."""

VERBOSE = option("--verbose", "-v", is_flag=True, help="Also print what sets each limit, every name and counters.")
"""How much the report tells."""

MEASURING = (
    option("--output", "-O", type=click.Path(), default="out", show_default=True,
                 help="Folder for results.jsonl, report.html and metrics.txt."),
    option("--option", "-o", "options", multiple=True, metavar="[BENCHMARK.]NAME=VALUE",
                 help="A benchmark's option, like mpi_latency.sizes=8:1M:x2."),
    option("--mpirun", metavar="PATH", help="The mpirun to use; its own MPI library is used with it."),
    option("--silence", type=click.FloatRange(1, 86400), default=60, show_default=True, metavar="SECONDS",
                 help="Ranks silent for this long beyond their plan count as hung."),
    option("--dry-run", is_flag=True, help="Show the plan and stop."),
    option("--force", is_flag=True, help="Measure on a busy host, or beside another run."),
    REQUIRE,
    VERBOSE,
    json_option("Print the judged records instead of the report."),
)  # fmt: skip
"""What `verbs.measuring.measure` takes, but for the number of launches."""


def launches_option(default: int) -> click.Option:
    """How many launches of each benchmark are measured."""
    return option("--launches", type=click.IntRange(1, 1000), default=default, show_default=True,
                        help="Fresh processes per benchmark; their spread is the noise.")  # fmt: skip
