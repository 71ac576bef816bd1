"""The options that name the hosts of a run."""

from __future__ import annotations

import click

from railwright.cli.command import option

_HOSTS_HELP = (
    "Spread the ranks over these hosts, by ssh or in a --lab; netns:NAME is a network namespace here, like a pod's."
)
LAB = option("--lab", metavar="NAME", help="The --hosts are those of this lab, entered without ssh.")
SSH_CONFIG = option("--ssh-config", metavar="FILE", help="For ssh to the --hosts, instead of ~/.ssh/config.")
HOSTS = (
    option("--hosts", metavar="HOST,HOST...", help=_HOSTS_HELP),
    option("--ranks-per-host", type=click.IntRange(1, 512), help="Ranks on each of the --hosts.  [1]"),
    LAB,
    SSH_CONFIG,
    option("--interfaces", metavar="NAME,...", help="Network interfaces for MPI and UCX between the --hosts."),
)
"""For `verbs.hosts.the_hosts`."""
CONTAINER = (
    option("--in-namespaces-of", type=click.IntRange(1), metavar="PID",
           help="Measure in the surroundings of this process, like a container's, with the files of this host."),
    option("--against", type=click.Choice(("host",)), help="What the --in-namespaces-of is measured beside."),
)  # fmt: skip
"""For `verbs.container`."""
