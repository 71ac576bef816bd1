"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

from railwright.cli.command import argument, command, option
from railwright.cli.hosts_option import CONTAINER, HOSTS
from railwright.cli.job_option import JOB
from railwright.cli.kubernetes_option import KUBERNETES
from railwright.cli.measuring_options import MEASURING, launches_option
from railwright.cli.slurm_option import SLURM

COMMAND = command(
    "run",
    "run:run",
    """Run single benchmarks; without a name, list them with their options.

    \b
    railwright run mpi_latency -o transports=shm
    railwright run mpi_all_reduce --hosts node1,node2 --ranks-per-host 4
    railwright run kv_transfer --lab lab --hosts host0,host2
    railwright run mpi_all_reduce --slurm --nodes 4 --partition gpu --time 30
    railwright run mpi_all_reduce --kubernetes --nodes 4 --gpus-per-node 8
    railwright run hpl --screen --hosts node1,node2,node3
    railwright run mpi_bandwidth --in-namespaces-of 4711 --against host --launches 3
    railwright run hpl --grow --hosts node1,node2,node3,node4
    """,
    argument("names", nargs=-1, metavar="NAME..."),
    *MEASURING,
    launches_option(1),
    option("--alone", is_flag=True, help="Leave out the ceilings that the results are held against."),
    option("--screen", is_flag=True, help="Measure each of the --hosts by itself, and rank them."),
    option("--grow", is_flag=True, help="Measure each of the --hosts, then merge them by doubling while that gains."),
    option("--repeat", metavar="RECORD", help="Run a recorded `run` once more, and compare the two."),
    *HOSTS,
    *JOB,
    *SLURM,
    *KUBERNETES,
    *CONTAINER,
)
