"""Fabrics from short descriptions: `fat-tree hosts=1280 gpus=8`, and the tiers of a cluster file.

A fat tree of two tiers joins every leaf to every spine. One of three tiers has pods: spine j of each pod is cabled to
the cores of plane j alone, as in Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network
architecture" (SIGCOMM 2008), section 2.2. Each GPU has one NIC; a leaf has `leaf-down` NICs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from railwright.diagnosis.localise.cabling import fabric_of_cables
from railwright.diagnosis.localise.fabric import CableSpec, Fabric, assemble, build_fabric
from railwright.errors import UsageError, unknown_name
from railwright.topology.cabling import parse_cables
from railwright.topology.cluster import Cluster, ports

MAX_NICS = 262_144
_MAX_CABLES = 4_000_000
_MIN_LEAF, _MAX_LEAF = 2, 2048
_WORDS = {"hosts": "", "gpus": "8", "tiers": "", "leaf-down": "", "oversubscription": "1", "rails": "shared"}
_MAX_NICS_OF_TWO_TIERS = 16_384
"""Above this number a third tier is the default, because leaves would need more than 256 ports."""


def parse_fat_tree(words: Sequence[str]) -> Fabric:
    """Parse words such as `hosts=1280 gpus=8 tiers=2 leaf-down=64 oversubscription=2`. Raises UsageError."""
    given = dict(_WORDS)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _WORDS:
            raise unknown_name("word of a fat tree", name, _WORDS)
        if not equals or not value:
            raise UsageError(f"{name} must have a value", hint=f"write {name}=8")
        given[name] = value
    if not given["hosts"]:
        raise UsageError("a fat tree must have hosts=", hint="write 'fat-tree hosts=1280 gpus=8'")
    if given["rails"] not in ("shared", "own"):
        raise UsageError(
            f"rails must be own or shared, got {given['rails'][:20]}", hint="write rails=own for a leaf for each rail"
        )
    hosts, gpus = _parse_integer(given, "hosts", MAX_NICS), _parse_integer(given, "gpus", 64)
    tiers = (
        _parse_integer(given, "tiers", 3) if given["tiers"] else (2 if hosts * gpus <= _MAX_NICS_OF_TWO_TIERS else 3)
    )
    down = _parse_integer(given, "leaf-down", _MAX_LEAF) if given["leaf-down"] else None
    try:
        over = float(given["oversubscription"])
    except ValueError:
        over = 0.0
    if not 1 <= over <= 64:
        raise UsageError(f"oversubscription must be 1 to 64, got {given['oversubscription'][:20]}", hint="give 1 to 64")
    return fat_tree(hosts, gpus, tiers, down, over, rails_own_leaf=given["rails"] == "own")


def _parse_integer(given: dict[str, str], name: str, maximum: int) -> int:
    text = given[name]
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= maximum or len(text) > 9:
        raise UsageError(f"{name} must be 1 to {maximum}, got {text[:20]}", hint=f"give {name}=1 to {maximum}")
    return int(text)


def fat_tree(
    hosts: int,
    gpus: int,
    tiers: int,
    leaf_down: int | None = None,
    oversubscription: float = 1.0,
    *,
    rails_own_leaf: bool = False,
) -> Fabric:
    """Build a fat tree. Raises UsageError if it is too large, or if its leaves are too small for its tiers."""
    nics = hosts * gpus
    if not 2 <= nics <= MAX_NICS:
        raise UsageError(f"a fabric must have 2 to {MAX_NICS} NICs, got {nics}", hint=f"give 2 to {MAX_NICS}")
    down = leaf_down or _leaf_size(nics, tiers)
    if down < _MIN_LEAF:
        raise UsageError(f"leaf-down must be at least {_MIN_LEAF}, got {down}", hint=f"give {_MIN_LEAF} or more")
    if tiers == 1 and down < nics:
        raise UsageError(
            f"one tier of {down} ports cannot join {nics} NICs", hint="give tiers=2, or a larger leaf-down"
        )
    leaf_of = _assign_leaves(hosts, gpus, down, rails_own_leaf=rails_own_leaf)
    leaves = max(leaf_of) + 1
    cables = [(nic, nics + leaf, 1.0) for nic, leaf in enumerate(leaf_of)]
    names = [f"leaf{number}" for number in range(leaves)]
    if tiers >= 2 and leaves > 1:
        uplinks = max(1, round(down / oversubscription))
        each = min(down / oversubscription, 1.0)  # cables have the rate of a NIC
        _add_upper_tiers(cables, names, nics, leaves, uplinks, each, down if tiers == 3 else leaves)
    return assemble(
        hosts=[f"host{number}" for number in range(hosts)],
        nic_host=[nic // gpus for nic in range(nics)],
        nic_port=[f"nic{nic % gpus}" for nic in range(nics)],
        nic_rail=[nic % gpus if rails_own_leaf else 0 for nic in range(nics)],
        switches=names,
        cables=cables,
    )


def _leaf_size(nics: int, tiers: int) -> int:
    """Return the smallest power of two from 8 of leaf ports with which the tiers hold all NICs; for one tier, all."""
    if tiers == 1:
        return nics
    down = 8
    while 2 * down**tiers < nics:
        down *= 2
    return down


def _assign_leaves(hosts: int, gpus: int, down: int, *, rails_own_leaf: bool) -> list[int]:
    """Return the leaf of each NIC: as few leaves as possible, evenly filled, with whole hosts if they fit."""
    if rails_own_leaf:
        groups = _divide_evenly(hosts, ceil(hosts / down))
        return [groups[host] * gpus + rail for host in range(hosts) for rail in range(gpus)]
    leaves = ceil(hosts * gpus / down)
    if down % gpus == 0:
        return [leaf for leaf in _divide_evenly(hosts, leaves) for _ in range(gpus)]
    return _divide_evenly(hosts * gpus, leaves)


def _divide_evenly(members: int, groups: int) -> list[int]:
    """Return the group of each member, in order; group sizes differ by at most one."""
    return [member * groups // members for member in range(members)]


def _add_upper_tiers(
    cables: list[tuple[int, int, float]], names: list[str], nics: int, leaves: int, uplinks: int, each: float, pod: int
) -> None:
    """Add spines to each pod of about `pod` leaves, and a plane of cores per spine if there are several pods."""
    pods = ceil(leaves / pod)
    if leaves * uplinks + (pods * uplinks * pod if pods > 1 else 0) > _MAX_CABLES:
        raise UsageError("a fabric must have at most 4 million cables", hint="give a larger leaf-down, or three tiers")
    first_spine = nics + leaves
    names += [f"spine{number}" for number in range(pods * uplinks)]
    pod_of = _divide_evenly(leaves, pods)
    for leaf in range(leaves):
        base = first_spine + pod_of[leaf] * uplinks
        cables += [(nics + leaf, base + spine, each) for spine in range(uplinks)]
    if pods == 1:
        return
    first_core = first_spine + pods * uplinks
    wide = ceil(leaves / pods)
    names += [f"core{number}" for number in range(uplinks * wide)]
    for spine in range(pods * uplinks):
        plane = first_core + spine % uplinks * wide
        cables += [(first_spine + spine, plane + core, each) for core in range(wide)]


_TIERS = ("leaf", "spine", "superspine", "tier4-")


def fabric_of_cluster(cluster: Cluster, most_nics: int = MAX_NICS) -> Fabric:
    """Build the fabric of a cluster file's tiers, cabled like its lab.

    Every switch of a group is cabled once to every switch of the group above. Raises UsageError for a cluster without
    tiers, whose links are unknown.
    """
    if cluster.fabric.cables:
        return fabric_of_cables(parse_cables(cluster.fabric.cables))
    tiers, rails = cluster.fabric.tiers, len(ports(cluster.host))
    if not tiers:
        raise UsageError(f"{cluster.name[:60]} has no tiers of switches", hint="add [[fabric.tiers]] to the file")
    if not 2 <= rails * cluster.hosts <= most_nics:
        raise UsageError(
            f"a fabric must have 2 to {most_nics} NIC ports, got {rails * cluster.hosts}", hint=f"give 2 to {most_nics}"
        )
    optimised = cluster.fabric.rail_optimised
    groups = [ceil(cluster.hosts / tier.hosts) for tier in tiers]
    default = [rails if optimised else 1, *[1] * (len(tiers) - 1)]
    each = [tier.switches or default[level] for level, tier in enumerate(tiers)]
    each[0] = min(each[0], rails)
    if sum(group * count for group, count in zip(groups, each, strict=True)) > most_nics:
        raise UsageError("a fabric must not have more switches than NIC ports", hint="give fewer switches in a tier")
    cables = [
        CableSpec(f"host{host}", f"rail{rail}", f"leaf{host // tiers[0].hosts * each[0] + rail % each[0]}", "", 1.0)
        for host in range(cluster.hosts)
        for rail in range(rails)
    ]
    load: dict[str, float] = {}
    for cable in cables:
        load[cable.upper] = load.get(cable.upper, 0.0) + 1.0
    for level in range(len(tiers) - 1):
        ratio = tiers[level + 1].hosts // tiers[level].hosts
        for number in range(groups[level] * each[level]):
            name, above = f"{_TIERS[level]}{number}", number // each[level] // ratio
            capacity = load.get(name, 0.0) / tiers[level].oversubscription / each[level + 1]
            for upper in range(above * each[level + 1], (above + 1) * each[level + 1]):
                top = f"{_TIERS[level + 1]}{upper}"
                cables.append(CableSpec(name, top, top, name, capacity))
                load[top] = load.get(top, 0.0) + capacity
    # Traffic stays on its rail if each rail has its own leaves, as with NCCL and in a lab.
    own = optimised or each[0] > 1
    nics = [
        (f"host{host}", f"rail{rail}", rail if own else 0) for host in range(cluster.hosts) for rail in range(rails)
    ]
    names = [f"{_TIERS[level]}{number}" for level in range(len(tiers)) for number in range(groups[level] * each[level])]
    return build_fabric(nics, names, cables)
