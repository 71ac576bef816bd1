"""The options of a job that is made for a run, by Slurm or by Kubernetes."""

from __future__ import annotations

import click

from railwright.cli.command import option

JOB = (
    option("--nodes", type=click.IntRange(2, 512), help="Nodes of the job of --slurm or --kubernetes."),
    option("--time", "limit", metavar="MIN|H:MM:SS", help="Its time limit.  [three times the plan, at least 10 min]"),
    option("--gpus-per-node", type=click.IntRange(1, 64), help="GPUs that it asks for on each node."),
)
"""For `verbs.slurm` and `verbs.kubernetes`."""
