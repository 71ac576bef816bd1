"""The options of a run on the nodes of a Slurm job."""

from __future__ import annotations

import click

from railwright.cli.command import option

SLURM = (
    option("--slurm", is_flag=True,
           help="On the nodes of this Slurm job; outside of one, submit a job and wait for its report."),
    option("--partition", metavar="NAME", help="Its partition.  [Slurm's default]"),
    option("--account", metavar="NAME", help="Its account.  [yours]"),
    option("--sbatch", "more", multiple=True, metavar="--OPTION[=VALUE]",
           help="Any other option of sbatch, like --sbatch=--qos=high."),
    option("--start-by", type=click.Choice(["auto", "srun", "mpirun"]), default="auto", show_default=True,
           help="What starts the ranks of the job."),
    option("--no-wait", is_flag=True, help="Submit the job and leave it to itself."),
)  # fmt: skip
"""For `verbs.slurm`, with those of `cli.job_option`."""
