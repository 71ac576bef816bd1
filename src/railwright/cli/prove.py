"""`railwright prove`: topology, limits, measurements, diagnosis, one report."""

from __future__ import annotations

from railwright.cli.command import command, option
from railwright.cli.hosts_option import CONTAINER, LAB, SSH_CONFIG
from railwright.cli.job_option import JOB
from railwright.cli.kubernetes_option import KUBERNETES
from railwright.cli.measuring_options import MEASURING, launches_option

COMMAND = command(
    "prove",
    "prove:prove",
    """Measure this machine and hold every path against its limit.

    Needs no GPU and no root. Writes results.jsonl, report.html and metrics.txt.

    With --hosts, --slurm or --kubernetes every host measures itself, and one page holds them against each other.
    With --in-namespaces-of PID --against host a container and its host are measured in turn.

    \b
    railwright prove
    railwright prove --hosts node1,node2,node3,node4
    railwright prove --kubernetes --nodes 4 --gpus-per-node 8
    railwright prove --in-namespaces-of 4711 --against host
    """,
    *MEASURING,
    launches_option(3),
    option("--directory", metavar="DIR", help="The file system to measure.  [.; of several hosts /tmp]"),
    option("--hosts", metavar="HOST,HOST...", help="Prove each of these hosts, by ssh or in a --lab."),
    LAB,
    SSH_CONFIG,
    option("--slurm", is_flag=True, help="Prove each node of the Slurm job around this command."),
    *JOB,
    *KUBERNETES,
    *CONTAINER,
)
