"""The options of a job that is made for a run, for `runs.slurm` and `runs.kubernetes`."""

from __future__ import annotations

import click

from railwright import __version__
from railwright.options.group import combine

job_options = combine(
    click.option("--nodes", type=click.IntRange(2, 512), help="Nodes of the job of --slurm or --kubernetes."),
    click.option("--time", "limit", metavar="MIN|H:MM:SS",
                 help="Its time limit.  [three times the plan, at least 10 min]"),
    click.option("--gpus-per-node", type=click.IntRange(1, 64), help="GPUs that it asks for on each node."),
)  # fmt: skip
"""Those of both."""

slurm_options = combine(
    click.option("--slurm", is_flag=True,
                 help="On the nodes of this Slurm job; outside of one, submit a job and wait for its report."),
    click.option("--partition", metavar="NAME", help="Its partition.  [Slurm's default]"),
    click.option("--account", metavar="NAME", help="Its account.  [yours]"),
    click.option("--sbatch", "more", multiple=True, metavar="--OPTION[=VALUE]",
                 help="Any other option of sbatch, like --sbatch=--qos=high."),
    click.option("--start-by", type=click.Choice(["auto", "srun", "mpirun"]), default="auto", show_default=True,
                 help="What starts the ranks of the job."),
    click.option("--no-wait", is_flag=True, help="Submit the job and leave it to itself."),
)  # fmt: skip

kubernetes_options = combine(
    click.option("--kubernetes", is_flag=True,
                 help="On pods of a job in the cluster of kubectl's context, one a node."),
    click.option("--namespace", metavar="NAME", help="Its namespace.  [that of the context]"),
    click.option("--image", metavar="REF", default=f"railwright:{__version__}", show_default=True,
                 help="What its pods run: scripts/build-image makes it."),
    click.option("--rdma", multiple=True, metavar="RESOURCE=COUNT", help="A resource of NICs that each pod asks for."),
    click.option("--network", "networks", multiple=True, metavar="[NAMESPACE/]NAME",
                 help="A NetworkAttachmentDefinition that each pod gets, in this order: net1, net2 ..."),
    click.option("--node-selector", multiple=True, metavar="LABEL=VALUE", help="A label that its nodes must have."),
    click.option("--start-within", type=click.FloatRange(1, 86400), default=300, show_default=True, metavar="SECONDS",
                 help="Give the job up, and remove it, if its pods do not run by then."),
    click.option("--job-kind", type=click.Choice(["auto", "mpijob", "job"]), default="auto", show_default=True,
                 help="An MPIJob of mpi-operator, or an Indexed Job; auto: MPIJob where the cluster has it."),
)  # fmt: skip
