"""The options that name hosts, for `runs.hosts`, and a container, for `runs.container`."""

from __future__ import annotations

import click

from railwright.options.group import combine

lab_option = click.option("--lab", metavar="NAME", help="The --hosts are those of this lab, entered without ssh.")
ssh_config_option = click.option(
    "--ssh-config", metavar="FILE", help="For ssh to the --hosts, instead of ~/.ssh/config."
)
hosts_options = combine(
    click.option(
        "--hosts",
        metavar="HOST,HOST...",
        help="Spread the ranks over these hosts, by ssh or in a --lab; netns:NAME is a network namespace here, like a"
        " pod's.",
    ),
    click.option("--ranks-per-host", type=click.IntRange(1, 512), help="Ranks on each of the --hosts.  [1]"),
    lab_option,
    ssh_config_option,
    click.option("--interfaces", metavar="NAME,...", help="Network interfaces for MPI and UCX between the --hosts."),
)
container_options = combine(
    click.option("--in-namespaces-of", type=click.IntRange(1), metavar="PID",
                 help="Measure in the surroundings of this process, like a container's, with the files of this host."),
    click.option("--against", type=click.Choice(("host",)), help="What the --in-namespaces-of is measured beside."),
)  # fmt: skip
