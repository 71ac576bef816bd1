"""The options that name the hosts of a run, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from railwright.errors import UsageError

if TYPE_CHECKING:
    from railwright.launch.hosts import Hosts, Reach

Command = TypeVar("Command", bound=Callable[..., Any])

_HOSTS_HELP = (
    "Spread the ranks over these hosts, by ssh or in a --lab; netns:NAME is a network namespace here, like a pod's."
)
_OPTIONS = (
    click.option("--hosts", metavar="HOST,HOST...", help=_HOSTS_HELP),
    click.option("--ranks-per-host", type=click.IntRange(1, 512), help="Ranks on each of the --hosts.  [1]"),
    click.option("--lab", metavar="NAME", help="The --hosts are those of this lab, entered without ssh."),
    click.option("--ssh-config", metavar="FILE", help="For ssh to the --hosts, instead of ~/.ssh/config."),
    click.option("--interfaces", metavar="NAME,...", help="Network interfaces for MPI and UCX between the --hosts."),
)


def hosts_options(command: Command) -> Command:
    """`--hosts` and its like, for `the_hosts`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def the_hosts(
    hosts: str | None,
    ranks_per_host: int | None,
    lab: str | None,
    ssh_config: str | None,
    interfaces: str | None,
) -> Hosts | None:
    """What was given; None for this host alone. Raises UsageError."""
    others = {
        "--ranks-per-host": ranks_per_host, "--lab": lab, "--ssh-config": ssh_config, "--interfaces": interfaces
    }  # fmt: skip
    if hosts is None:
        given = next((name for name, value in others.items() if value is not None), None)
        if given is not None:
            raise UsageError(f"{given} says nothing without --hosts", hint="write --hosts host0,host1")
        return None
    if lab is not None and ssh_config is not None:
        raise UsageError("--lab enters its hosts without ssh, so --ssh-config says nothing", hint="give one of the two")
    from railwright.launch.hosts import Hosts, parse_hosts, parse_interfaces

    chosen = parse_interfaces(interfaces or "")
    namespaces = _namespaces(hosts)
    names = parse_hosts(namespaces or hosts)
    reach = _reach_namespaces(names, chosen, lab, ssh_config) if namespaces else _reach(names, lab, ssh_config)
    return Hosts(names, ranks_per_host or 1, reach, chosen)


def _namespaces(hosts: str) -> str:
    """The hosts without `netns:`, empty where it is before none. Raises UsageError where it is before some."""
    from railwright.lab.netns_reach import PREFIX

    parts = [part.strip() for part in hosts.split(",")]
    found = [part.removeprefix(PREFIX) for part in parts if part.startswith(PREFIX)]
    if found and len(found) != len(parts):
        other = next(part for part in parts if not part.startswith(PREFIX))
        raise UsageError(f"{other[:60]!r} is no {PREFIX}NAME, and another host is", hint="give hosts of one kind")
    return ",".join(found)


def _reach_namespaces(
    names: tuple[str, ...], interfaces: tuple[str, ...], lab: str | None, ssh_config: str | None
) -> Reach:
    given = "--lab" if lab is not None else "--ssh-config" if ssh_config is not None else ""
    if given:
        raise UsageError(f"{given} says nothing of network namespaces", hint="leave it out")
    from railwright.lab.netns_reach import NetnsReach

    return NetnsReach(names, interfaces)


def _reach(names: tuple[str, ...], lab: str | None, ssh_config: str | None) -> Reach:
    if lab is None:
        from railwright.launch.ssh import SshReach

        return SshReach(names, ssh_config)
    from railwright.lab import state
    from railwright.lab.reach import LabReach

    state.require_root()
    return LabReach(state.open_lab(lab), names)


def refuse_shared_memory(hosts: Hosts | None, options: tuple[str, ...]) -> None:
    """Raises UsageError where shared memory was asked for between hosts, which always use TCP."""
    for text in options:
        name, _, value = text.partition("=")
        if hosts is not None and name.rpartition(".")[2] == "transports" and "shm" in value:
            raise UsageError("shared memory reaches no other host", hint="leave out -o transports: --hosts means tcp")
