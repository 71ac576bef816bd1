"""Clusters: machines of one kind and the fabric between them (cluster file: `schema/cluster.schema.json`).

The fabric is a list of tiers, the lowest first. A tier joins groups of `hosts` machines. Traffic between groups goes
through the uplinks: their rate is the rate of the links from below divided by `oversubscription`. In a rail-optimised
fabric the lowest tier has one leaf for each rail (NIC number 0, 1, ... of every machine). Without tiers the fabric is
taken to be non-blocking.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from railwright.errors import UsageError, unknown_name
from railwright.topology.devices import Device, Link, NetworkLink, Record, Topology
from railwright.units import format_count

MOST_HOSTS = 1_000_000
MOST_TIERS = 4
_OVERSUBSCRIPTION = (0.1, 1000.0)


class Tier(Record, frozen=True, kw_only=True):
    """A level of switches: groups of `hosts` machines, each joined by `switches` switches."""

    name: str = "leaf"
    hosts: int
    """The number of machines in a group."""
    oversubscription: float = 1.0
    """The rate of the links from below divided by that of the uplinks: 1 is non-blocking, 3 lets a third leave."""
    switches: int | None = None
    """Switches in each group, to count cables and to build a lab; None is as many as a bill or a lab needs."""


class Fabric(Record, frozen=True, kw_only=True):
    """The network between the machines' NICs."""

    rail_optimised: bool = False
    tiers: tuple[Tier, ...] = ()
    cables: tuple[tuple[str, str, str, str], ...] = ()
    """(end, port, end, port) of each cable, the lower end first. Searches use them, limits do not."""
    in_network_reduction: bool = False
    """True if the switches reduce (SHARP) and NCCL's CollNet plugin is loaded."""


class Storage(Record, frozen=True, kw_only=True):
    """Machines that serve files to the cluster over its fabric."""

    servers: int
    host: str
    """The shape of a server, like `laptop drives=12`."""


class ClusterFile(Record, frozen=True, kw_only=True):
    """The cluster file, in TOML or JSON."""

    name: str = ""
    hosts: int
    host: str
    """A shape with changes, like `hgx-h100 nics=4`, or the path of a saved topology beside this file."""
    fabric: Fabric = Fabric()
    storage: Storage | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`hosts` machines that are all like `host`, joined by `fabric`."""

    name: str
    host: Topology
    hosts: int
    fabric: Fabric = Fabric()
    storage: tuple[int, Topology] | None = None
    """The number of storage servers, and a server that stands for all."""

    @cached_property
    def gpus_per_host(self) -> int:
        """The number of GPUs in a machine."""
        return len(self.host.of_kind("gpu"))

    @cached_property
    def ranks(self) -> int:
        """The number of ranks, one for each GPU."""
        return self.gpus_per_host * self.hosts


def build_cluster(
    host: Topology,
    hosts: int,
    fabric: Fabric | None = None,
    storage: tuple[int, Topology] | None = None,
    name: str = "",
) -> Cluster:
    """Return a checked cluster. Raises UsageError for an invalid count, tier or machine."""
    if not 1 <= hosts <= MOST_HOSTS:
        raise UsageError(f"hosts must be 1 to {MOST_HOSTS}, got {hosts}", hint="correct the number of hosts")
    checked = fabric or Fabric()
    _check_tiers(checked, hosts)
    if hosts > 1 and not any(isinstance(link.protocol, NetworkLink) for link in host.links):
        message = f"{host.name} has no NIC port, so its {hosts} hosts cannot be connected"
        raise UsageError(message, hint="give it NICs, like nics=8")
    return Cluster(name=name or host.name, host=host, hosts=hosts, fabric=checked, storage=storage)


def _check_tiers(fabric: Fabric, hosts: int) -> None:
    if len(fabric.tiers) > MOST_TIERS:
        raise UsageError(f"a fabric must have at most {MOST_TIERS} tiers, got {len(fabric.tiers)}", hint="remove tiers")
    below = 1
    low, high = _OVERSUBSCRIPTION
    for number, tier in enumerate(fabric.tiers):
        where = f"tier {number} ({tier.name[:40]})"
        if tier.hosts < below or (number and tier.hosts % below) or tier.hosts > MOST_HOSTS:
            hint = f"each tier joins whole groups of the tier below: give a multiple of {below}"
            raise UsageError(f"{where} joins {tier.hosts} hosts", hint=hint)
        if not low <= tier.oversubscription <= high:
            hint = f"give {low:g} to {high:g}; 1 is non-blocking"
            raise UsageError(f"{where} has an oversubscription of {tier.oversubscription}", hint=hint)
        if tier.switches is not None and not 1 <= tier.switches <= MOST_HOSTS:
            raise UsageError(f"{where} has {tier.switches} switches", hint="give 1 or more, or leave it out")
        below = tier.hosts
    if fabric.tiers and fabric.tiers[-1].hosts < hosts:
        top = fabric.tiers[-1]
        message = f"the highest tier, {top.name[:40]}, joins {top.hosts} of {hosts} hosts: the rest are disconnected"
        raise UsageError(message, hint="add a tier above it, or raise its hosts")


def count_hosts(host: Topology, gpus: int) -> int:
    """Return the number of hosts that have `gpus` GPUs together. Raises UsageError if they do not fill whole hosts."""
    each = len(host.of_kind("gpu"))
    if not each:
        raise UsageError(f"--gpus {gpus}: {host.name} has no GPUs", hint="give --count for the number of hosts")
    if gpus < 1 or gpus % each:
        below = max(gpus // each, 0) * each
        fitting = " or ".join(f"--gpus {number}" for number in (below, below + each) if number > 0)
        raise UsageError(f"--gpus {gpus} does not fill hosts of {each} GPUs ({host.name})", hint=f"give {fitting}")
    return gpus // each


def describe_gpus(cluster: Cluster) -> str:
    """Format the GPUs, and the racks of hosts that share NVSwitches: `128 GPUs` or `72 GPUs (1 rack)`."""
    if not cluster.ranks:
        return "no GPUs"
    gpus, rack = format_count(cluster.ranks, "GPU"), cluster.host.rack_hosts
    if rack < 2:
        return gpus
    whole, rest = divmod(cluster.hosts, rack)
    if not whole:
        return f"{gpus} of a rack of {rack * cluster.gpus_per_host} (--gpus {rack * cluster.gpus_per_host})"
    last = f", the last with {format_count(rest, 'host')}" if rest else ""
    return f"{gpus} ({format_count(whole + (rest > 0), 'rack')}{last})"


def ports(host: Topology) -> tuple[tuple[Device, Link], ...]:
    """Return the NIC ports that lead out of a machine, in the order of their rails."""
    return host.ports_out  # cached there: each size, algorithm and fault needs them


def split_id(text: str, cluster: Cluster) -> tuple[str, int]:
    """Split `gpu3@17` into device id and host number; without @ it is host 0. Raises UsageError."""
    name, at, number = text.partition("@")
    if at and not (number.isascii() and number.isdigit() and len(number) <= 7 and int(number) < cluster.hosts):
        hint = f"hosts are numbered 0 to {cluster.hosts - 1}"
        raise UsageError(f"there is no host {number[:20]!r} in {cluster.name[:80]}", hint=hint)
    if cluster.host.device(name) is None:
        raise unknown_name(f"device in {cluster.host.name}", name, (device.id for device in cluster.host.devices))
    return name, int(number) if at else 0
