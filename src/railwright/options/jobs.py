"""The options of a job that a run submits (see `workflows.slurm` and `workflows.kubernetes`)."""

from __future__ import annotations

import click

from railwright import __version__
from railwright.options.group import combine

job_options = combine(
    click.option("--nodes", type=click.IntRange(2, 512), help="Number of nodes of the --slurm or --kubernetes job."),
    click.option("--time", "limit", metavar="MIN|H:MM:SS",
                 help="Time limit of the job.  [three times the plan, at least 10 min]"),
    click.option("--gpus-per-node", type=click.IntRange(1, 64), help="GPUs that the job requests on each node."),
    section="Job",
)  # fmt: skip
"""The options that Slurm and Kubernetes share."""

slurm_options = combine(
    click.option("--slurm", is_flag=True,
                 help="Run on the nodes of this Slurm job. Outside of a job, submit one and wait for its report."),
    click.option("--partition", metavar="NAME", help="Partition of the job.  [Slurm's default]"),
    click.option("--account", metavar="NAME", help="Account of the job.  [your default]"),
    click.option("--sbatch", "more", multiple=True, metavar="--OPTION[=VALUE]",
                 help="Pass an option to sbatch, like --sbatch=--qos=high."),
    click.option("--start-by", type=click.Choice(["auto", "srun", "mpirun"]), default="auto", show_default=True,
                 help="The launcher of the job's ranks."),
    click.option("--no-wait", is_flag=True, help="Submit the job and return at once."),
    section="Slurm",
)  # fmt: skip

kubernetes_options = combine(
    click.option("--kubernetes", is_flag=True,
                 help="Run on the pods of a job, one per node, in the cluster of kubectl's context."),
    click.option("--namespace", metavar="NAME", help="Namespace of the job.  [that of the context]"),
    click.option("--image", metavar="REF", default=f"railwright:{__version__}", show_default=True,
                 help="Image of the pods, built by scripts/build-image."),
    click.option("--rdma", multiple=True, metavar="RESOURCE=COUNT", help="A NIC resource that each pod requests."),
    click.option("--network", "networks", multiple=True, metavar="[NAMESPACE/]NAME",
                 help="A NetworkAttachmentDefinition for each pod, attached in this order as net1, net2 ..."),
    click.option("--node-selector", multiple=True, metavar="LABEL=VALUE", help="A label that the nodes must have."),
    click.option("--start-within", type=click.FloatRange(1, 86400), default=300, show_default=True, metavar="SECONDS",
                 help="Remove the job and give up if its pods do not run by then."),
    click.option("--job-kind", type=click.Choice(["auto", "mpijob", "job"]), default="auto", show_default=True,
                 help="An MPIJob of mpi-operator, or an Indexed Job. auto prefers an MPIJob if the cluster serves it."),
    section="Kubernetes",
)  # fmt: skip
