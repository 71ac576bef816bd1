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


def count_described(fabric: Fabric, hosts: int, rails: int, radix: int) -> tuple[SwitchTier, ...]:
    """Return the tiers of a cluster file for `hosts` of `rails` NIC ports each.

    The uplinks of a group are its ports down over the oversubscription, rounded up, rail by rail in rail-optimised
    leaves; the highest tier has none. A tier that does not give its switches has as many in each group as its ports
    need, of `radix` ports each: leaves rail by rail if rail-optimised, higher tiers so that the uplinks of every switch
    below spread evenly over them, where a number of that kind exists.
    """
    found: list[SwitchTier] = []
    uplinks = 0  # of a switch of the tier below, in a full group
    for level, tier in enumerate(fabric.tiers):
        full, rest = divmod(hosts, tier.hosts)
        groups = [(tier.hosts, full)] * bool(full) + [(rest, 1)] * bool(rest)
        counted = [
            (
                number,
                _count_ports_down(fabric, level, size, rails),
                _count_ports_up(fabric, level, size, rails),
            )
            for size, number in groups
        ]
        by_rail = rails if fabric.rail_optimised and level == 0 else 1
        switches = [tier.switches or by_rail * _count_needed((down + up) // by_rail, uplinks, radix)
                    for _, down, up in counted]  # fmt: skip
        uplinks = ceil(Fraction(counted[0][2], switches[0]))
        found.append(
            SwitchTier(
                name=tier.name,
                switches=sum(each * number for each, (number, _, _) in zip(switches, counted, strict=True)),
                ports_down=sum(number * down for number, down, _ in counted),
                ports_up=sum(number * up for number, _, up in counted),
            )
        )
    return tuple(found)


def _count_needed(ports: int, uplinks: int, radix: int) -> int:
    """Return the least number of switches with those ports, or a number up to twice that if it divides `uplinks`."""
    least = max(1, ceil(Fraction(ports, radix)))
    return next((number for number in range(least, min(uplinks, 2 * least) + 1) if uplinks % number == 0), least)


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
