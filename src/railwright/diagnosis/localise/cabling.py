"""Compares planned with observed cables: exchanged, misplaced, missing, or unplanned. Pure.

Cabling faults lose no packets and show in no counter: two exchanged cables keep every link up at full rate, but break
the assumptions of routes and rails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from railwright.diagnosis.localise.fabric import CableSpec, Fabric, build_fabric
from railwright.errors import UsageError
from railwright.topology.cabling import Cable, Cabling, Port


class Miscabling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A deviation from the planned cabling."""

    kind: Literal["exchanged", "elsewhere", "missing", "not planned"]
    ports: tuple[str, ...]
    """The affected ports."""
    evidence: str
    action: str


class CablingChecked(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="cabling"):
    """The record of a check of cables."""

    planned: int
    right: int
    """Planned cables that were seen in their place."""
    findings: tuple[Miscabling, ...]
    not_looked_at: tuple[str, ...] = ()
    """Ends of planned cables without observations, which are not judged."""


def fabric_of_cables(cables: Iterable[Cable]) -> Fabric:
    """Build the fabric of planned cables, all of one rate. A node with nothing below it is a host.

    Raises UsageError if cables form a cycle, or if a host's port has two cables.
    """
    listed = list(cables)
    below: dict[str, list[str]] = {}
    for lower, upper in listed:
        below.setdefault(upper.end, []).append(lower.end)
    level = _switch_levels(below)
    nics = [(lower.end, lower.port, 0) for lower, _ in listed if lower.end not in below]
    switches = sorted(below, key=lambda name: (level[name], len(name), name))
    return build_fabric(nics, switches, [CableSpec(*lower, *upper, 1.0) for lower, upper in listed])


def _switch_levels(below: dict[str, list[str]]) -> dict[str, int]:
    """Return the height of each switch above the hosts. Raises UsageError for a cycle."""
    level: dict[str, int] = {}
    waiting = dict(below)
    while waiting:
        ready = [name for name, lower in waiting.items() if not any(one in waiting for one in lower)]
        if not ready:
            what = f"cables form a cycle through {sorted(waiting)[0]}"
            raise UsageError(what, hint="name the lower end of each cable first: host, leaf, spine")
        for name in ready:
            level[name] = 1 + max(level.get(one, 0) for one in below[name])
        for name in ready:
            del waiting[name]
    return level


def check_cabling(planned: Iterable[Cable], seen: Cabling) -> CablingChecked:
    """Report every difference once: misplaced cables, then missing ones, then unplanned ones."""
    plan = _map_ports(planned)
    observed = _map_ports(seen.cables)
    wrong = {port: peer for port, peer in plan.items() if port in observed and observed[port] != peer}
    findings = list[Miscabling]()
    reported = set[Port]()
    for port in sorted(wrong):
        if port not in reported:
            findings.append(_report_misplaced(port, plan, observed, reported))
    for port, peer in sorted(plan.items()):
        is_seen = {port.end, peer.end} <= seen.looked_at
        if is_seen and port not in observed and peer not in observed and not reported & {port, peer}:
            reported |= {port, peer}
            what = f"no cable is seen at {port} or {peer}"
            action = f"plug in the cable {port} ↔ {peer}; if it is plugged in, check whether both ports are up"
            findings.append(Miscabling(kind="missing", ports=(str(port), str(peer)), evidence=what, action=action))
    for port, peer in sorted(observed.items()):
        if port not in plan and peer not in plan and port not in reported:
            reported |= {port, peer}
            what = f"{port} ↔ {peer} is not planned"
            action = "add it to the cluster file, or unplug it"
            findings.append(Miscabling(kind="not planned", ports=(str(port), str(peer)), evidence=what, action=action))
    unseen = {port.end for port, peer in plan.items() if port not in observed and peer not in observed} - seen.looked_at
    right = sum(observed.get(port) == peer for port, peer in plan.items()) // 2
    return CablingChecked(
        planned=len(plan) // 2, right=right, findings=tuple(findings), not_looked_at=tuple(sorted(unseen))
    )


def _map_ports(cables: Iterable[Cable]) -> dict[Port, Port]:
    found: dict[Port, Port] = {}
    for one, other in cables:
        found[one], found[other] = other, one
    return found


def _report_misplaced(
    port: Port, plan: dict[Port, Port], observed: dict[Port, Port], reported: set[Port]
) -> Miscabling:
    """Report a misplaced cable, as exchanged if the two plugs belong in each other's places."""
    peer, found = plan[port], observed[port]
    rightful = plan.get(found)
    reported |= {port, found, peer}
    if rightful is not None and observed.get(rightful) == peer:
        reported.add(rightful)
        return Miscabling(
            kind="exchanged",
            ports=(str(found), str(peer)),
            evidence=f"{port} leads to {found} instead of {peer}, and {rightful} vice versa",
            action=f"exchange the plugs at {found} and {peer}",
        )
    return Miscabling(
        kind="elsewhere",
        ports=(str(port), str(found)),
        evidence=f"{port} leads to {found} instead of {peer}",
        action=f"move the plug from {found} to {peer}",
    )
