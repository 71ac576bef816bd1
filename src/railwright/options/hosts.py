"""The options for hosts (see `workflows.hosts`) and for a container (see `workflows.container`)."""

from __future__ import annotations

import click

from railwright.options.group import combine

lab_option = click.option("--lab", metavar="NAME", help="Use the --hosts of this lab, without ssh.")
ssh_config_option = click.option(
    "--ssh-config", metavar="FILE", help="Use this file for ssh to the --hosts, instead of ~/.ssh/config."
)
hosts_options = combine(
    click.option(
        "--hosts",
        metavar="HOST,HOST...",
        help="Spread the ranks over these hosts, by ssh or in a --lab. netns:NAME is a network namespace of this"
        " machine, such as a pod's.",
    ),
    click.option("--ranks-per-host", type=click.IntRange(1, 512), help="Number of ranks on each of the --hosts.  [1]"),
    lab_option,
    ssh_config_option,
    click.option("--interfaces", metavar="NAME,...", help="Network interfaces for MPI and UCX between the --hosts."),
)
container_options = combine(
    click.option("--in-namespaces-of", type=click.IntRange(1), metavar="PID",
                 help="Measure in the namespaces of this process, such as a container's, with this host's files."),
    click.option("--against", type=click.Choice(("host",)), help="The baseline of --in-namespaces-of."),
)  # fmt: skip
