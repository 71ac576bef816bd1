"""Plans the nodes and cables of a lab from the cluster file, or from a shape and a count.

Tiers are planned from the lowest up. A group of the lowest tier has the number of leaves that the file gives, else a
leaf for each rail if the fabric is rail-optimised, else one leaf. NIC r of every host in the group is cabled to leaf r
modulo that number. Every switch of a group has one cable to every switch of the group above it.

Rates: a NIC's port has the requested rate. The uplink capacity of a switch is the sum of the rates from below, divided
by the oversubscription of its tier and shared evenly by its uplinks.

AS numbers are private four-byte numbers (RFC 6996: 4200000000 to 4294967294): one for each host and each leaf, and one
shared by all switches of a group above. RFC 7938 (section 5.2.1) assigns them so in a Clos, and thereby prevents paths
that lead down and up again.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from math import ceil

import msgspec

from railwright.errors import UsageError
from railwright.lab.nodes import Cable, FrrVersion, Kind, LabPlan, Node, RailPort
from railwright.topology.cluster import Cluster, Fabric, Tier, ports

MAX_RAILS = 16
MAX_CABLES = 2048
MAX_NODES_OF_A_KIND = 250  # the last byte of an address
_RATE_BITS_PER_S = (1e6, 100e9)
_MTU_BYTES = (1280, 65535)  # IPv6's minimum (RFC 8200) and a veth's maximum
_LEVELS: tuple[Kind, ...] = ("leaf", "spine", "superspine")
_FIRST_ASN = {"host": 4_200_000_000, "leaf": 4_210_000_000, "spine": 4_220_000_000, "superspine": 4_230_000_000}
_NUMBER_OF_KIND = {"host": 0, "leaf": 1, "spine": 2, "superspine": 3}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")

PREFIX_V4 = "10.0.0.0/8"
_START_V6 = "fd72:6169:6c00:"
PREFIX_V6 = f"{_START_V6}:/48"
"""A prefix of unique local addresses (RFC 4193); the hexadecimal digits after fd spell `rail`."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a lab that its cluster does not determine."""

    name: str = "lab"
    frr: FrrVersion = "8"
    ovs: bool = False
    ssh: bool = False
    ipv6_only: bool = False
    rate_bits_per_s: float | None = 200e6
    """The rate of a NIC's port. Veths on two cores carry a few Gb/s in all; a lab needs ratios, not absolute rates."""
    mtu_bytes: int = 9000
    leaf_hosts: int | None = None
    """Hosts below the same leaves, if the cluster has no tiers. None selects half of the hosts."""
    spines: int | None = None
    """Spines in a group, if the cluster does not give their number. None selects 2 without tiers, else 1."""
    most_nodes: int = 64
    """The limit on namespaces; more of them need more than two cores."""


def plan(cluster: Cluster, options: PlanOptions) -> LabPlan:
    """Plan the lab of a cluster. Raises UsageError for a lab that one machine cannot hold."""
    _check_options(options)
    rails = len(ports(cluster.host))
    if not 1 <= rails <= MAX_RAILS:
        reason = f"a lab's host must have 1 to {MAX_RAILS} NIC ports, {cluster.host.name[:80]} has {rails}"
        raise UsageError(reason, hint="set the NICs, for example nics=2")
    fabric = _fabric(cluster, rails, options)
    counts = _switches(fabric, cluster.hosts, rails, options)
    _check_size(cluster.hosts, counts, options)
    hosts = [_host(number, number // fabric.tiers[0].hosts, rails, options) for number in range(cluster.hosts)]
    tiers = [
        [_node(kind, number, number // each, options) for number in range(groups * each)]
        for kind, groups, each in counts
    ]
    cables = _cables(hosts, tiers, fabric, options)
    if len(cables) > MAX_CABLES:
        raise UsageError(
            f"a lab must have at most {MAX_CABLES} cables, got {len(cables)}", hint="give fewer hosts or NICs"
        )
    nodes = (*hosts, *(node for tier in tiers for node in tier))
    return LabPlan(name=options.name, nodes=nodes, cables=tuple(cables), ipv6_only=options.ipv6_only, ssh=options.ssh)


def check_name(name: str) -> str:
    """Return the name of a lab, which is part of the names of namespaces and folders. Raises UsageError."""
    if not _NAME.fullmatch(name):
        hint = "use up to 16 of a-z, 0-9 and -, starting with a letter, for example lab2"
        raise UsageError(f"{name[:40]!r} is not a valid name of a lab", hint=hint)
    return name


def _check_options(options: PlanOptions) -> None:
    check_name(options.name)
    low, high = _RATE_BITS_PER_S
    if options.rate_bits_per_s is not None and not low <= options.rate_bits_per_s <= high:
        raise UsageError(
            f"rate must be 1Mb/s to 100Gb/s, got {options.rate_bits_per_s:g} bit/s",
            hint="give --rate in that range, or --rate none",
        )
    minimum, maximum = _MTU_BYTES
    if not minimum <= options.mtu_bytes <= maximum:
        raise UsageError(
            f"MTU must be {minimum} to {maximum} bytes, got {options.mtu_bytes}", hint="give --mtu in that range"
        )
    for name, value in (("leaf hosts", options.leaf_hosts), ("spines", options.spines)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}", hint="give 1 or more")


def _fabric(cluster: Cluster, rails: int, options: PlanOptions) -> Fabric:
    """Return the cluster's fabric; if it has no tiers, groups of hosts under spines."""
    given = cluster.fabric
    if given.tiers:
        if len(given.tiers) > len(_LEVELS):
            raise UsageError(
                f"a lab must have at most {len(_LEVELS)} tiers, got {len(given.tiers)}", hint="give a smaller fabric"
            )
        if options.leaf_hosts is not None:
            raise UsageError(
                "--leaf-hosts excludes a cluster file with tiers of switches", hint="leave out --leaf-hosts"
            )
        return given
    together = min(options.leaf_hosts or ceil(cluster.hosts / 2), cluster.hosts)
    groups = ceil(cluster.hosts / together)
    leaf, spine = Tier(hosts=together), Tier(name="spine", hosts=together * groups, switches=options.spines or 2)
    return Fabric(rail_optimised=given.rail_optimised or rails > 1, tiers=(leaf, spine))


def _switches(fabric: Fabric, hosts: int, rails: int, options: PlanOptions) -> list[tuple[Kind, int, int]]:
    """Return the kind of each tier, its number of groups, and the switches in each group."""
    default = (rails if fabric.rail_optimised else 1, options.spines or 1, 1)
    found = []
    for level, tier in enumerate(fabric.tiers):
        each = default[level] if tier.switches is None else tier.switches
        if level == 0:
            each = min(each, rails)  # more leaves than NICs would have no cable
        found.append((_LEVELS[level], ceil(hosts / tier.hosts), each))
    return found


def _check_size(hosts: int, counts: list[tuple[Kind, int, int]], options: PlanOptions) -> None:
    nodes = hosts + sum(groups * each for _, groups, each in counts)
    if nodes > options.most_nodes:
        hint = "give a smaller --count, or a larger --most-nodes on many cores"
        reason = f"a lab must have at most {options.most_nodes} nodes, got {nodes} ({hosts} of them hosts)"
        raise UsageError(reason, hint=hint)
    largest = max(hosts, *(groups * each for _, groups, each in counts))
    if largest > MAX_NODES_OF_A_KIND:
        raise UsageError(
            f"a lab must have at most {MAX_NODES_OF_A_KIND} nodes of a kind, got {largest}", hint="give fewer hosts"
        )


def _host(number: int, group: int, rails: int, options: PlanOptions) -> Node:
    sides = (0, 0x100) if options.ipv6_only else (0,)
    rail_ports = tuple(
        RailPort(
            port=f"rail{rail}",
            rail=rail,
            addresses_v4=() if options.ipv6_only else (f"10.{rail}.0.{number + 1}",),
            addresses_v6=tuple(f"{_START_V6}{side + rail + 1:x}::{number + 1:x}" for side in sides),
        )
        for rail in range(rails)
    )
    return _node("host", number, group, options, rail_ports)


def _node(kind: Kind, number: int, group: int, options: PlanOptions, rails: tuple[RailPort, ...] = ()) -> Node:
    identity = f"10.255.{_NUMBER_OF_KIND[kind]}.{number + 1}"
    return Node(
        name=f"{kind}{number}",
        kind=kind,
        group=group,
        asn=_FIRST_ASN[kind] + 1 + (number if kind in ("host", "leaf") else group),
        router_id=identity,
        loopback_v4=None if options.ipv6_only else identity,
        loopback_v6=f"{_START_V6}{0xFF00 + _NUMBER_OF_KIND[kind]:x}::{number + 1:x}",
        frr=options.frr,
        ovs=options.ovs and kind == "host",
        rails=rails,
    )


def _cables(hosts: list[Node], tiers: list[list[Node]], fabric: Fabric, options: PlanOptions) -> list[Cable]:
    rails = len(hosts[0].rails)
    found: list[Cable] = []
    below: dict[str, float] = defaultdict(float)

    def join(lower: Node, port: str, upper: Node, upper_port: str, rate: float, rail: int | None) -> None:
        cable = Cable(
            a=lower.name,
            a_port=port,
            b=upper.name,
            b_port=upper_port,
            rate_bits_per_s=rate or None,
            mtu_bytes=options.mtu_bytes,
            rail=rail,
        )
        found.append(cable)
        below[upper.name] += rate

    leaves = _group_switches(tiers[0])
    for host in hosts:
        group_leaves = leaves[host.group]
        for rail in host.rails:
            leaf = group_leaves[rail.rail % len(group_leaves)]
            join(host, rail.port, leaf, f"{host.name}r{rail.rail}", options.rate_bits_per_s or 0.0, rail.rail)
    for level, (lower, upper) in enumerate(itertools.pairwise(tiers)):
        above = _group_switches(upper)
        ratio = fabric.tiers[level + 1].hosts // fabric.tiers[level].hosts
        one_rail = level == 0 and len(_group_switches(lower)[0]) == rails
        for number, switch in enumerate(lower):
            peers = above[switch.group // ratio]
            rate = below[switch.name] / fabric.tiers[level].oversubscription / len(peers)
            for peer in peers:
                join(switch, peer.name, peer, switch.name, rate, number % rails if one_rail else None)
    return found


def _group_switches(switches: list[Node]) -> dict[int, list[Node]]:
    return {group: list(nodes) for group, nodes in itertools.groupby(switches, key=lambda node: node.group)}
