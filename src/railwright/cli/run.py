"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

from railwright.cli.command import argument, command, option
from railwright.cli.hosts_option import HOSTS
from railwright.cli.measuring_options import MEASURING, launches_option

COMMAND = command(
    "run",
    "run:run",
    """Run single benchmarks; without a name, list them with their options.

    \b
    railwright run mpi_latency -o transports=shm
    railwright run mpi_all_reduce --hosts node1,node2 --ranks-per-host 4
    railwright run kv_transfer --lab lab --hosts host0,host2
    """,
    argument("names", nargs=-1, metavar="NAME..."),
    *MEASURING,
    launches_option(1),
    option("--alone", is_flag=True, help="Leave out the ceilings that the results are held against."),
    *HOSTS,
)
