"""The options of verbs that measure or judge (see `workflows.measuring` and `workflows.judged`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from railwright.options.group import combine
from railwright.options.output import json_option

require_option = combine(
    click.option(
        "--require",
        multiple=True,
        metavar="NAME|FILE",
        help="Let only these paths decide the exit status: 'BENCHMARK', 'BENCHMARK PATH', or a file of such lines.",
    ),
    section="Verdict",
)
accept_option = combine(
    click.option(
        "--accept",
        metavar="SPEC",
        help="Compare the run with a specification (TOML), which decides the exit status, and write acceptance.html, a "
        "sheet to sign.",
    ),
    section="Verdict",
)
verbose_option = combine(
    click.option("--verbose", "-v", is_flag=True, help="Also print the origin of each limit, all names, and counters."),
    section="Output",
)
records_option = json_option("Print the judged records instead of the report.")

measuring_options = combine(
    combine(click.option("--output", "-O", type=click.Path(), default="out", show_default=True,
                         help="Folder for results.jsonl, report.html and metrics.txt."), section="Output"),
    click.option("--option", "-o", "options", multiple=True, metavar="[BENCHMARK.]NAME=VALUE",
                 help="An option of a benchmark, like mpi_latency.sizes=8:1M:x2."),
    click.option("--mpirun", metavar="PATH", help="The mpirun to use, with the MPI library that belongs to it."),
    click.option("--silence", type=click.FloatRange(1, 86400), default=60, show_default=True, metavar="SECONDS",
                 help="Silence beyond the plan after which ranks count as hung."),
    click.option("--dry-run", is_flag=True, help="Show the plan and stop."),
    click.option("--force", is_flag=True, help="Measure even if the host is busy or another run is active."),
    require_option,
    verbose_option,
    records_option,
    section="Measuring",
)  # fmt: skip


def launches_option(default: int) -> Callable[[Any], Any]:
    """Return the option `--launches`, the number of launches per benchmark."""
    return combine(
        click.option("--launches", type=click.IntRange(1, 1000), default=default, show_default=True,
                     help="Launches of each benchmark in fresh processes. Their spread is the noise."),
        section="Measuring",
    )  # fmt: skip
