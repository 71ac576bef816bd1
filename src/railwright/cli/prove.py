"""`railwright prove`: topology, limits, measurements, diagnosis, one report."""

from __future__ import annotations

import click

from railwright.cli.command import command, option
from railwright.cli.hosts_option import CONTAINER, LAB, SSH_CONFIG
from railwright.cli.job_option import JOB
from railwright.cli.kubernetes_option import KUBERNETES
from railwright.cli.measuring_options import ACCEPT, MEASURING, launches_option

COMMAND = command(
    "prove",
    "prove:prove",
    """Measure this machine and hold every path against its limit.

    Needs no GPU and no root. Writes results.jsonl, report.html and metrics.txt.

    With --hosts or --slurm every host measures itself, then all pairs in rounds of disjoint ones, then collectives of
    all; one page holds hosts and pairs against each other. With --kubernetes every node measures itself in a pod.
    With --in-namespaces-of PID --against host a container and its host are measured in turn.

    \b
    railwright prove
    railwright prove --hosts node1,node2,node3,node4
    railwright prove --kubernetes --nodes 4 --gpus-per-node 8
    railwright prove --in-namespaces-of 4711 --against host
    railwright prove --hosts node1,node2,node3,node4 --parts pairs --max-load 0.5
    """,
    *MEASURING,
    ACCEPT,
    launches_option(3),
    option("--directory", metavar="DIR", help="The file system to measure.  [.; of several hosts /tmp]"),
    option("--hosts", metavar="HOST,HOST...", help="Prove each of these hosts, by ssh or in a --lab."),
    LAB,
    SSH_CONFIG,
    option("--interfaces", metavar="NAME,...", help="Network interfaces between the --hosts."),
    option("--parts", metavar="PART,...", help="Of screen (each host), pairs and collectives.  [all three]"),
    option("--benchmarks", metavar="NAME,...", help="Only these, of each host or of all together."),
    option(
        "--max-load",
        type=click.FloatRange(0.0, 1.0, min_open=True),
        default=1.0,
        show_default=True,
        help="The part of the hosts whose ports may be loaded at once, beside other work.",
    ),
    option("--cluster", metavar="FILE", help="What joins the --hosts: a cluster file."),
    option("--resume", is_flag=True, help="Keep what the same command had measured before it was interrupted."),
    option("--slurm", is_flag=True, help="Prove each node of the Slurm job around this command."),
    *JOB,
    *KUBERNETES,
    *CONTAINER,
)
