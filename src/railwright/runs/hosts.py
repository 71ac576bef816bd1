"""The hosts that `--hosts` and its like name, and how each is reached."""

from __future__ import annotations

import os

from railwright.errors import UsageError
from railwright.lab import state
from railwright.lab.netns_reach import PREFIX, NetnsReach
from railwright.lab.reach import LabReach
from railwright.launch.hosts import Hosts, PlannedHosts, Reach, parse_hosts, parse_interfaces
from railwright.launch.slurm.allocation import SlurmReach, allocation
from railwright.launch.ssh import SshReach
from railwright.run.plan import SortKey


def resolve_hosts(
    hosts: str | None,
    *,
    ranks_per_host: int | None = None,
    lab: str | None = None,
    ssh_config: str | None = None,
    interfaces: str | None = None,
    slurm: str | None = None,
) -> Hosts | None:
    """What was given; None for this host alone. Raises UsageError.

    `slurm` is what starts the ranks in the Slurm job that we are in, where its nodes are wanted.
    """
    others = {
        "--ranks-per-host": ranks_per_host, "--lab": lab, "--ssh-config": ssh_config, "--interfaces": interfaces
    }  # fmt: skip
    if slurm is not None:
        if lab or ssh_config:
            raise UsageError("--slurm reaches hosts by Slurm", hint="leave out --lab and --ssh-config")
        job = allocation(os.environ)
        names = parse_hosts(hosts or ",".join(job.nodes))
        return Hosts(names, ranks_per_host or 1, SlurmReach(names, job, slurm), parse_interfaces(interfaces or ""))
    if hosts is None:
        given = next((name for name, value in others.items() if value is not None), None)
        if given is not None:
            raise UsageError(f"{given} says nothing without --hosts", hint="write --hosts host0,host1")
        return None
    if lab is not None and ssh_config is not None:
        raise UsageError("--lab enters its hosts without ssh, so --ssh-config says nothing", hint="give one of the two")
    chosen = parse_interfaces(interfaces or "")
    namespaces = _namespaces(hosts)
    names = parse_hosts(namespaces or hosts)
    if namespaces:
        return Hosts(names, ranks_per_host or 1, _namespaces_reach(names, chosen, lab, ssh_config), chosen)
    return Hosts(names, ranks_per_host or 1, _reach(names, lab, ssh_config), chosen)


def refuse_no_hosts(hosts: PlannedHosts | None) -> None:
    """Raises UsageError where hosts are to be compared and none were given."""
    if hosts is None:
        raise UsageError("--screen compares hosts, and none were given", hint="write --hosts host0,host1")


def choose_sort_key(hosts: PlannedHosts | None) -> SortKey:
    """The order of hosts whose groups grow: near are those below one leaf in a lab, else those beside each other."""
    if hosts is None:
        raise UsageError(
            "--grow merges hosts, and none were given", hint="write --hosts host0,host1, near ones together"
        )
    names, reach = hosts.names, hosts.reach

    def place(name: str) -> tuple[int, ...]:
        leaf = reach.lab.plan.node(name).group if isinstance(reach, LabReach) else 0
        return leaf, names.index(name)

    return place


def _namespaces(hosts: str) -> str:
    """The names of the network namespaces, joined by commas; empty where the hosts are not namespaces.

    Raises UsageError where only some of the hosts are.
    """
    parts = [part.strip() for part in hosts.split(",")]
    found = [part.removeprefix(PREFIX) for part in parts if part.startswith(PREFIX)]
    if found and len(found) != len(parts):
        other = next(part for part in parts if not part.startswith(PREFIX))
        raise UsageError(f"{other[:60]!r} is no {PREFIX}NAME, and another host is", hint="give hosts of one kind")
    return ",".join(found)


def _namespaces_reach(
    names: tuple[str, ...], interfaces: tuple[str, ...], lab: str | None, ssh_config: str | None
) -> Reach:
    given = "--lab" if lab is not None else "--ssh-config" if ssh_config is not None else ""
    if given:
        raise UsageError(f"{given} says nothing of network namespaces", hint="leave it out")
    return NetnsReach(names, interfaces)


def _reach(names: tuple[str, ...], lab: str | None, ssh_config: str | None) -> Reach:
    if lab is None:
        return SshReach(names, ssh_config)
    state.require_root()
    return LabReach(names, state.open_lab(lab))


def refuse_shared_memory(hosts: PlannedHosts | None, options: tuple[str, ...]) -> None:
    """Raises UsageError where shared memory was asked for between hosts, which always use TCP."""
    for text in options:
        name, _, value = text.partition("=")
        if hosts is not None and name.rpartition(".")[2] == "transports" and "shm" in value:
            raise UsageError("shared memory reaches no other host", hint="leave out -o transports: --hosts means tcp")
