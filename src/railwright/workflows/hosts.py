"""Resolution of `--hosts` and related options to hosts with a reach."""

from __future__ import annotations

import os
from dataclasses import replace

from railwright.diagnosis.fleet.between_hosts import HostNetwork, PairTried
from railwright.errors import UsageError
from railwright.lab import state
from railwright.lab.netns_reach import PREFIX, NetnsReach
from railwright.lab.reach import LabReach
from railwright.launch.hosts import Hosts, PlannedHosts, Reach, parse_hosts, parse_interfaces
from railwright.launch.slurm.allocation import SlurmReach, read_allocation
from railwright.launch.ssh import SshReach
from railwright.limits.limit import Limit
from railwright.run.plan import SortKey
from railwright.topology.devices import Topology
from railwright.units import format_line_rate


def resolve_hosts(
    hosts: str | None,
    *,
    ranks_per_host: int | None = None,
    lab: str | None = None,
    ssh_config: str | None = None,
    interfaces: str | None = None,
    slurm: str | None = None,
    is_asked: bool = True,
) -> Hosts | None:
    """Resolve the options to hosts. None means this host alone. Raises UsageError for invalid or conflicting options.

    `slurm` is the launcher in the surrounding Slurm job. None means that its nodes are not requested. With `is_asked`
    False, hosts by ssh are only planned with: they are not probed.
    """
    others = {
        "--ranks-per-host": ranks_per_host, "--lab": lab, "--ssh-config": ssh_config, "--interfaces": interfaces
    }  # fmt: skip
    if slurm is not None:
        if lab or ssh_config:
            raise UsageError("--slurm excludes --lab and --ssh-config", hint="leave out --lab and --ssh-config")
        job = read_allocation(os.environ)
        names = parse_hosts(hosts or ",".join(job.nodes))
        return Hosts(names, ranks_per_host or 1, SlurmReach(names, job, slurm), parse_interfaces(interfaces or ""))
    if hosts is None:
        given = next((name for name, value in others.items() if value is not None), None)
        if given is not None:
            raise UsageError(f"{given} requires --hosts", hint="write --hosts host0,host1")
        return None
    if lab is not None and ssh_config is not None:
        raise UsageError("--lab and --ssh-config exclude each other", hint="give one of the two")
    chosen = parse_interfaces(interfaces or "")
    namespaces = _parse_namespaces(hosts)
    names = parse_hosts(namespaces or hosts)
    if namespaces:
        return Hosts(names, ranks_per_host or 1, _make_netns_reach(names, chosen, lab, ssh_config), chosen)
    return Hosts(names, ranks_per_host or 1, _make_reach(names, lab, ssh_config, is_asked=is_asked), chosen)


def refuse_no_hosts(hosts: PlannedHosts | None) -> None:
    """Raise UsageError for --screen without hosts."""
    if hosts is None:
        raise UsageError("--screen requires --hosts", hint="write --hosts host0,host1")


def choose_sort_key(hosts: PlannedHosts | None) -> SortKey:
    """Return the sort key of hosts whose groups grow: by leaf in a lab, and by position in --hosts.

    Raises UsageError without hosts.
    """
    if hosts is None:
        raise UsageError("--grow requires --hosts", hint="write --hosts host0,host1 with nearby hosts adjacent")
    names, reach = hosts.names, hosts.reach

    def place(name: str) -> tuple[int, ...]:
        leaf = reach.lab.plan.node(name).group if isinstance(reach, LabReach) else 0
        return leaf, names.index(name)

    return place


def _parse_namespaces(hosts: str) -> str:
    """Return the names of the network namespaces, joined by commas. Empty if the hosts are not namespaces.

    Raises UsageError if only some of the hosts are namespaces.
    """
    parts = [part.strip() for part in hosts.split(",")]
    found = [part.removeprefix(PREFIX) for part in parts if part.startswith(PREFIX)]
    if found and len(found) != len(parts):
        other = next(part for part in parts if not part.startswith(PREFIX))
        raise UsageError(f"hosts must all be {PREFIX}NAME or none, got {other[:60]!r}", hint="give hosts of one kind")
    return ",".join(found)


def _make_netns_reach(
    names: tuple[str, ...], interfaces: tuple[str, ...], lab: str | None, ssh_config: str | None
) -> Reach:
    given = "--lab" if lab is not None else "--ssh-config" if ssh_config is not None else ""
    if given:
        raise UsageError(f"{given} does not apply to network namespaces", hint="leave it out")
    return NetnsReach(names, interfaces)


def assume_ports(hosts: Hosts, machine: Topology) -> Hosts:
    """Return hosts that are not asked with the ports of a machine, if their rate is known; other hosts unchanged."""
    reach = hosts.reach
    if not isinstance(reach, SshReach) or reach.is_asked:
        return hosts
    limit, _ = HostNetwork({"a": machine}, hosts.interfaces).pair_bounds(PairTried("a", "a", ()))
    return replace(hosts, reach=replace(reach, rate_bytes_per_s=limit.value)) if isinstance(limit, Limit) else hosts


def describe_unasked(hosts: PlannedHosts, like: str = "this one") -> str:
    """Describe the assumptions about hosts that are not asked; empty for hosts that are. `like` names a machine."""
    reach = hosts.reach
    if not isinstance(reach, SshReach) or reach.is_asked:
        return ""
    rate = format_line_rate(8 * reach.rate_bytes_per_s)
    return f"--dry-run asks no host: it assumes separate machines like {like}, each with a port of {rate}"


def _make_reach(names: tuple[str, ...], lab: str | None, ssh_config: str | None, *, is_asked: bool) -> Reach:
    if lab is None:
        return SshReach(names, ssh_config, is_asked)
    state.require_root()
    return LabReach(names, state.open_lab(lab))


def refuse_shared_memory(hosts: PlannedHosts | None, options: tuple[str, ...]) -> None:
    """Raise UsageError if shared memory is requested between hosts, which always use TCP."""
    for text in options:
        name, _, value = text.partition("=")
        if hosts is not None and name.rpartition(".")[2] == "transports" and "shm" in value:
            raise UsageError(
                "shared memory does not work between hosts", hint="leave out -o transports: --hosts implies tcp"
            )
