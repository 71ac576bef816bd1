"""From the one cluster file, or a shape and a count, to the nodes and cables of a lab.

Tier by tier, the lowest first: a group of the lowest tier has the leaves that the file gives, else one leaf for each
rail where the fabric is rail-optimised, else one; NIC r of every host of the group is cabled to leaf r modulo their
number. Every switch of a group is cabled to every switch of the group above it, once.

Rates: a NIC's port has the rate asked for. What leaves a switch upwards is the sum of what comes from below over the
oversubscription of its tier, shared evenly by its uplinks.

Numbers of autonomous systems are private ones of four bytes (RFC 6996: 4200000000 to 4294967294): one for each host
and for each leaf, one for all switches of a group above. That is what RFC 7938 (section 5.2.1) gives such a Clos, so
that no path ever leads down and up again.
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

MOST_RAILS = 16
MOST_CABLES = 2048
MOST_OF_A_KIND = 250  # the last byte of an address
_RATE_BITS_PER_S = (1e6, 100e9)
_MTU_BYTES = (1280, 65535)  # IPv6's least (RFC 8200); a veth's most
_LEVELS: tuple[Kind, ...] = ("leaf", "spine", "superspine")
_FIRST_ASN = {"host": 4_200_000_000, "leaf": 4_210_000_000, "spine": 4_220_000_000, "superspine": 4_230_000_000}
_NUMBER_OF_KIND = {"host": 0, "leaf": 1, "spine": 2, "superspine": 3}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")

PREFIX_V4 = "10.0.0.0/8"
_START_V6 = "fd72:6169:6c00:"
PREFIX_V6 = f"{_START_V6}:/48"
"""Of unique local addresses (RFC 4193); the hexadecimal digits after fd spell `rail`."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a lab that a cluster does not decide."""

    name: str = "lab"
    frr: FrrVersion = "8"
    ovs: bool = False
    ssh: bool = False
    ipv6_only: bool = False
    rate_bits_per_s: float | None = 200e6
    """Of a NIC's port: veths on two cores reach some Gb/s in all, and a lab asks for ratios, not for rates."""
    mtu_bytes: int = 9000
    leaf_hosts: int | None = None
    """Hosts that share their leaves; only where the cluster has no tiers. None: half of them."""
    spines: int | None = None
    """Only where the cluster does not say how many. None: 2 without tiers, else 1."""
    most_nodes: int = 64
    """More namespaces want more than two cores."""


def plan(cluster: Cluster, options: PlanOptions) -> LabPlan:
    """The lab of a cluster. Raises UsageError for a lab that one machine cannot hold."""
    _check_options(options)
    rails = len(ports(cluster.host))
    if not 1 <= rails <= MOST_RAILS:
        what = f"{cluster.host.name[:80]} has {rails} NIC ports; a lab's host has 1 to {MOST_RAILS}"
        raise UsageError(what, hint="give it NICs, like nics=2")
    fabric = _fabric(cluster, rails, options)
    counts = _switches(fabric, cluster.hosts, rails, options)
    _check_size(cluster.hosts, counts, options)
    hosts = [_host(number, number // fabric.tiers[0].hosts, rails, options) for number in range(cluster.hosts)]
    tiers = [
        [_node(kind, number, number // each, options) for number in range(groups * each)]
        for kind, groups, each in counts
    ]
    cables = _cables(hosts, tiers, fabric, options)
    if len(cables) > MOST_CABLES:
        raise UsageError(f"a lab of {len(cables)} cables", hint=f"at most {MOST_CABLES}: give fewer hosts or NICs")
    nodes = (*hosts, *(node for tier in tiers for node in tier))
    return LabPlan(name=options.name, nodes=nodes, cables=tuple(cables), ipv6_only=options.ipv6_only, ssh=options.ssh)


def check_name(name: str) -> str:
    """The name of a lab, which is part of namespaces' and folders' names. Raises UsageError."""
    if not _NAME.fullmatch(name):
        hint = "up to 16 of a-z, 0-9 and -, the first a letter, like lab2"
        raise UsageError(f"a lab cannot be called {name[:40]!r}", hint=hint)
    return name


def _check_options(options: PlanOptions) -> None:
    check_name(options.name)
    low, high = _RATE_BITS_PER_S
    if options.rate_bits_per_s is not None and not low <= options.rate_bits_per_s <= high:
        raise UsageError(f"ports of {options.rate_bits_per_s:g} bit/s", hint="give 1Mb/s to 100Gb/s, or none")
    least, most = _MTU_BYTES
    if not least <= options.mtu_bytes <= most:
        raise UsageError(f"an MTU of {options.mtu_bytes} bytes", hint=f"give {least} to {most}")
    for what, value in (("leaf hosts", options.leaf_hosts), ("spines", options.spines)):
        if value is not None and value < 1:
            raise UsageError(f"{value} {what}", hint="give 1 or more")


def _fabric(cluster: Cluster, rails: int, options: PlanOptions) -> Fabric:
    """The cluster's fabric; where it has no tiers, two groups of hosts under spines."""
    given = cluster.fabric
    if given.tiers:
        if len(given.tiers) > len(_LEVELS):
            raise UsageError(f"{len(given.tiers)} tiers of switches", hint=f"a lab has at most {len(_LEVELS)}")
        if options.leaf_hosts is not None:
            raise UsageError("the cluster file says how many hosts share a leaf", hint="leave out --leaf-hosts")
        return given
    together = min(options.leaf_hosts or ceil(cluster.hosts / 2), cluster.hosts)
    groups = ceil(cluster.hosts / together)
    leaf, spine = Tier(hosts=together), Tier(name="spine", hosts=together * groups, switches=options.spines or 2)
    return Fabric(rail_optimised=given.rail_optimised or rails > 1, tiers=(leaf, spine))


def _switches(fabric: Fabric, hosts: int, rails: int, options: PlanOptions) -> list[tuple[Kind, int, int]]:
    """For each tier its kind, its groups, and the switches of each group."""
    default = (rails if fabric.rail_optimised else 1, options.spines or 1, 1)
    found = []
    for level, tier in enumerate(fabric.tiers):
        each = default[level] if tier.switches is None else tier.switches
        if level == 0:
            each = min(each, rails)  # a leaf above the number of NICs would join nothing
        found.append((_LEVELS[level], ceil(hosts / tier.hosts), each))
    return found


def _check_size(hosts: int, counts: list[tuple[Kind, int, int]], options: PlanOptions) -> None:
    nodes = hosts + sum(groups * each for _, groups, each in counts)
    if nodes > options.most_nodes:
        hint = f"at most {options.most_nodes}: give a smaller --count, or --most-nodes on many cores"
        raise UsageError(f"a lab of {nodes} nodes ({hosts} of them hosts)", hint=hint)
    if max(hosts, *(groups * each for _, groups, each in counts)) > MOST_OF_A_KIND:
        raise UsageError(f"a lab of {nodes} nodes", hint=f"at most {MOST_OF_A_KIND} of a kind")


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

    leaves = _by_group(tiers[0])
    for host in hosts:
        of_group = leaves[host.group]
        for rail in host.rails:
            leaf = of_group[rail.rail % len(of_group)]
            join(host, rail.port, leaf, f"{host.name}r{rail.rail}", options.rate_bits_per_s or 0.0, rail.rail)
    for level, (lower, upper) in enumerate(itertools.pairwise(tiers)):
        above = _by_group(upper)
        ratio = fabric.tiers[level + 1].hosts // fabric.tiers[level].hosts
        one_rail = level == 0 and len(_by_group(lower)[0]) == rails
        for number, switch in enumerate(lower):
            over = above[switch.group // ratio]
            rate = below[switch.name] / fabric.tiers[level].oversubscription / len(over)
            for peer in over:
                join(switch, peer.name, peer, switch.name, rate, number % rails if one_rail else None)
    return found


def _by_group(switches: list[Node]) -> dict[int, list[Node]]:
    return {group: list(nodes) for group, nodes in itertools.groupby(switches, key=lambda node: node.group)}
