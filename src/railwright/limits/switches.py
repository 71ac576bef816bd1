"""The switches, ports and cables between switches that a fabric needs, without prices or rates.

Every port runs at the rate of the NICs' ports. The rules for a non-blocking fabric (R ports a switch, h = R/2 rounded
down, K hosts with N rails, ceil is rounding up):

one tier      K N <= R: one switch holds every NIC port.
leaves        groups of h hosts, the last group takes the rest. In a group of m hosts a leaf takes floor(h / m) whole
              rails (in a full group one), so it has d <= h ports to NICs. NVIDIA calls a full group a scalable unit.
two tiers     S spines, each joined to each leaf by ceil(d / S) links, so all ways are equal. S is the
              smallest number for which the links to all leaves fit on one spine (sum of ceil(d / S) <= R) and those to
              all spines on a leaf (d + S ceil(d / S) <= R). More than R leaves need a third tier.
three tiers   pods of h leaves in order. S spines in every pod, the same number in all: the smallest for which the links
              to the leaves of each pod fit on half a spine (u = sum of ceil(d / S) <= h). Spine s of every pod is in
              plane s, whose C cores are each joined to it by ceil(u / C) links: the smallest C for which those of all
              pods fit on one core (sum of ceil(u / C) <= R) and u + C ceil(u / C) <= R. More than R pods: refused.

The result is NVIDIA's own table of larger fabrics to the switch and the cable (DGX SuperPOD Reference Architecture,
B200, table of larger component counts: 64 to 2048 nodes); a test checks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil

import msgspec

from railwright.errors import UsageError
from railwright.limits.limit import Constant, Source
from railwright.topology.cluster import Fabric

QUANTUM2 = Source("NVIDIA QM9700 and QM9790 NDR switches user manual", "64 ports of 400 Gb/s")
RADIX = Constant(64, "ports of a switch", QUANTUM2)

_NAMES = ("leaf", "spine", "core")


class SwitchTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The switches of one level, with their ports in use towards the hosts and away from them."""

    name: str
    switches: int
    ports_down: int
    ports_up: int


def count_non_blocking(hosts: int, rails: int, radix: int) -> tuple[SwitchTier, ...]:
    """Return the Clos fabric above for `hosts` of `rails` NIC ports each, leaves first. Raises UsageError if three
    tiers cannot hold them.
    """
    half = radix // 2
    if half < 2:
        raise UsageError(f"a switch must have at least 4 ports, got {radix}", hint="give --radix 4 or more")
    if hosts * rails <= radix:
        return _build_tiers((1, hosts * rails, 0))
    leaves = _count_leaves(hosts, rails, half)
    found = _count_two_tiers(leaves, radix) if leaves.total() <= radix else _count_three_tiers(leaves, radix)
    if not found:
        raise UsageError(
            f"{hosts} hosts of {rails} NIC ports need more than three tiers of switches of {radix} ports",
            hint="give a larger --radix, or describe the fabric in a --cluster file",
        )
    return found


def _count_leaves(hosts: int, rails: int, half: int) -> Counter[int]:
    """Count leaves by their number of ports to NICs, the fullest first."""
    found: Counter[int] = Counter()
    groups, rest = divmod(hosts, half)
    if groups:
        found[half] += groups * rails
    if rest:
        together = half // rest
        found[rest * together] += rails // together
        found[rest * (rails % together)] += 1
    return +Counter({ports: number for ports, number in found.items() if ports})


def _find_minimum(first: int, last: int, fits: Callable[[int], bool]) -> int:
    """Return the smallest number from `first` to `last` that fits, or `last` if none below it does."""
    return next((number for number in range(max(1, first), last) if fits(number)), last)


def _links_per_switch(ports: int, above: int) -> int:
    """Return the links from a switch with `ports` ports down to each of the switches above."""
    return ceil(Fraction(ports, above))


def _fits_evenly(ports: Iterable[int], above: int, radix: int, maximum: int) -> bool:
    """Report whether switches with those ports down can be joined evenly to `above` switches of `most` ports down."""
    each = list(ports)
    upwards = all(down + above * _links_per_switch(down, above) <= radix for down in set(each))
    return upwards and sum(_links_per_switch(down, above) for down in each) <= maximum


def _count_two_tiers(leaves: Counter[int], radix: int) -> tuple[SwitchTier, ...]:
    down = sum(ports * number for ports, number in leaves.items())
    spines = _find_minimum(
        down // radix, radix // 2, lambda number: _fits_evenly(leaves.elements(), number, radix, radix)
    )
    up = sum(number * spines * _links_per_switch(ports, spines) for ports, number in leaves.items())
    return _build_tiers((leaves.total(), down, up), (spines, up, 0))


def _count_three_tiers(leaves: Counter[int], radix: int) -> tuple[SwitchTier, ...]:
    half = radix // 2
    if leaves.total() > radix * half:
        return ()
    ports = tuple(leaves.elements())
    pods = [ports[start : start + half] for start in range(0, len(ports), half)]  # ports to NICs, leaf by leaf
    down = sum(ports * number for ports, number in leaves.items())
    kinds = set(pods)  # nearly all pods are alike
    spines = _find_minimum(1, half, lambda number: all(_fits_evenly(pod, number, radix, half) for pod in kinds))
    of_spine = [sum(_links_per_switch(ports, spines) for ports in pod) for pod in pods]
    cores = _find_minimum(1, half, lambda number: _fits_evenly(of_spine, number, radix, radix))
    leaf_up = spines * sum(of_spine)
    spine_up = spines * sum(cores * _links_per_switch(ports, cores) for ports in of_spine)
    return _build_tiers(
        (leaves.total(), down, leaf_up),
        (spines * len(pods), leaf_up, spine_up),
        (spines * cores, spine_up, 0),
    )


def _build_tiers(*counts: tuple[int, int, int]) -> tuple[SwitchTier, ...]:
    """Return tiers from the leaves up; each count is (switches, ports down, ports up)."""
    return tuple(
        SwitchTier(name=name, switches=switches, ports_down=down, ports_up=up)
        for name, (switches, down, up) in zip(_NAMES, counts, strict=False)
    )


def count_described(fabric: Fabric, hosts: int, rails: int) -> tuple[SwitchTier, ...]:
    """Return the tiers of a cluster file for `hosts` of `rails` NIC ports each.

    Each group has the switches that its tier gives, else one leaf for each rail if rail-optimised, else one. Its
    uplinks are its ports down over the oversubscription, rounded up, rail by rail in rail-optimised leaves; the highest
    tier has none.
    """
    found = []
    for level, tier in enumerate(fabric.tiers):
        groups, rest = divmod(hosts, tier.hosts)
        sizes = [(tier.hosts, groups), (rest, 1 if rest else 0)]
        each = tier.switches or (rails if fabric.rail_optimised and level == 0 else 1)
        found.append(
            SwitchTier(
                name=tier.name,
                switches=(groups + (rest > 0)) * each,
                ports_down=sum(number * _count_ports_down(fabric, level, size, rails) for size, number in sizes),
                ports_up=sum(number * _count_ports_up(fabric, level, size, rails) for size, number in sizes),
            )
        )
    return tuple(found)


def _count_ports_down(fabric: Fabric, level: int, hosts: int, rails: int) -> int:
    """Return the ports down of a group of that tier with `hosts` hosts: to NICs, or to uplinks from below."""
    if level == 0:
        return hosts * rails
    groups, rest = divmod(hosts, fabric.tiers[level - 1].hosts)
    whole = groups * _count_ports_up(fabric, level - 1, fabric.tiers[level - 1].hosts, rails) if groups else 0
    return whole + (_count_ports_up(fabric, level - 1, rest, rails) if rest else 0)


def _count_ports_up(fabric: Fabric, level: int, hosts: int, rails: int) -> int:
    if level == len(fabric.tiers) - 1:
        return 0
    ratio = Fraction(str(fabric.tiers[level].oversubscription))
    if level == 0 and fabric.rail_optimised:
        return rails * ceil(hosts / ratio)
    return ceil(_count_ports_down(fabric, level, hosts, rails) / ratio)
