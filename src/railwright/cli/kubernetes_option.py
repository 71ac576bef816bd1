"""The options of a run on pods of a Kubernetes cluster."""

from __future__ import annotations

import click

from railwright import __version__
from railwright.cli.command import option

KUBERNETES = (
    option("--kubernetes", is_flag=True, help="On pods of a job in the cluster of kubectl's context, one a node."),
    option("--namespace", metavar="NAME", help="Its namespace.  [that of the context]"),
    option("--image", metavar="REF", default=f"railwright:{__version__}", show_default=True,
           help="What its pods run: scripts/build-image makes it."),
    option("--rdma", multiple=True, metavar="RESOURCE=COUNT", help="A resource of NICs that each pod asks for."),
    option("--network", "networks", multiple=True, metavar="[NAMESPACE/]NAME",
           help="A NetworkAttachmentDefinition that each pod gets, in this order: net1, net2 ..."),
    option("--node-selector", multiple=True, metavar="LABEL=VALUE", help="A label that its nodes must have."),
    option("--start-within", type=click.FloatRange(1, 86400), default=300, show_default=True, metavar="SECONDS",
           help="Give the job up, and remove it, if its pods do not run by then."),
    option("--job-kind", type=click.Choice(["auto", "mpijob", "job"]), default="auto", show_default=True,
           help="An MPIJob of mpi-operator, or an Indexed Job; auto: MPIJob where the cluster has it."),
)  # fmt: skip
"""For `verbs.kubernetes`, with those of `cli.job_option`."""
