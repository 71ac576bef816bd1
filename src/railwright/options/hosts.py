"""The options for hosts (see `workflows.hosts`) and for a container (see `workflows.container`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from railwright.errors import UsageError
from railwright.options.group import combine

_MAX_FILE_BYTES = 2**22
_FILE = "railwright.hosts_file"


def hosts_option(text: str) -> Callable[[Any], Any]:
    """Return the options `--hosts` and `--hosts-file`, which set `hosts` to names joined by commas."""
    return combine(
        click.option("--hosts", metavar="HOST,node[01-64]...", callback=_expand_hosts, help=text),
        click.option("--hosts-file", metavar="FILE", is_eager=True, expose_value=False, callback=_keep_file,
                     help="Take the --hosts from this file: names or lists like node[01-64], one a line."),
        section="Hosts",
    )  # fmt: skip


def _keep_file(context: click.Context, _option: click.Parameter, file: str | None) -> None:
    context.meta[_FILE] = file


def _expand_hosts(context: click.Context, _option: click.Parameter, hosts: str | None) -> str | None:
    """Return the names of --hosts or --hosts-file, joined by commas. Raises UsageError."""
    file = context.meta.get(_FILE)
    if file is None:
        return hosts if hosts is None else ",".join(_expand(hosts, "--hosts"))
    if hosts is not None:
        raise UsageError("--hosts and --hosts-file exclude each other", hint="give one of the two")
    return ",".join(_read_hosts(file))


def _read_hosts(file: str) -> tuple[str, ...]:
    """Read the hosts of a file: the first word of each line, as in the hostfiles of MPI and of batch systems.

    A host that is listed once for each of its slots counts once. Raises UsageError if no line has a host.
    """
    from pathlib import Path

    from railwright.reading import read_bounded

    hint = "write a name or a list like node[01-64] on each line"
    try:
        lines = read_bounded(Path(file), _MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        found |= dict.fromkeys(_expand(words[0], f"{file}, line {number}:") if words else ())
    if not found:
        raise UsageError(f"{file} names no host", hint=hint)
    return tuple(found)


def _expand(text: str, place: str) -> tuple[str, ...]:
    """Expand a list in Slurm's notation; a list without brackets is only split."""
    from railwright.results.host_list import parse_host_list

    if "[" not in text and "]" not in text:
        return tuple(text.split(","))
    names = parse_host_list("".join(text.split()))
    if not names:
        hint = "write node[01-64,70],login: numbers and ranges in brackets, at most 100,000 hosts"
        raise UsageError(f"{place} must be a list of hosts, got {text[:80]!r}", hint=hint)
    return names


lab_option = combine(
    click.option("--lab", metavar="NAME", help="Use the --hosts of this lab, without ssh."), section="Hosts"
)
ssh_config_option = combine(
    click.option(
        "--ssh-config", metavar="FILE", help="Use this file for ssh to the --hosts, instead of ~/.ssh/config."
    ),
    section="Hosts",
)
hosts_options = combine(
    hosts_option(
        "Spread the ranks over these hosts, by ssh or in a --lab. netns:NAME is a network namespace of this"
        " machine, such as a pod's."
    ),
    click.option("--ranks-per-host", type=click.IntRange(1, 512), help="Number of ranks on each of the --hosts.  [1]"),
    lab_option,
    ssh_config_option,
    click.option("--interfaces", metavar="NAME,...", help="Network interfaces for MPI and UCX between the --hosts."),
    section="Hosts",
)
container_options = combine(
    click.option("--in-namespaces-of", type=click.IntRange(1), metavar="PID",
                 help="Measure in the namespaces of this process, such as a container's, with this host's files."),
    click.option("--against", type=click.Choice(("host",)), help="The baseline of --in-namespaces-of."),
    section="Containers",
)  # fmt: skip
