"""Faults and suspects, as they stand in JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

FaultKind = Literal["host", "nic", "link", "switch", "line-card", "route", "occupied"]
Direction = Literal["up", "down", "both", "out", "in"]
"""Of a NIC or link: away from the hosts, towards them. Of a switch or line card: what it sends, what it receives."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An element that is slow. The form of the simulator's truth, and of a file of faults."""

    kind: FaultKind
    id: str
    """`host17`, `host17:nic3`, `leaf2-spine1`, `leaf2`, `spine3/card0`, `leaf0>leaf3@spine1`, or, for a route of one
    pair of ports, `host0:nic0>host5:nic0@spine1`."""
    direction: Direction = "both"
    capacity: float = 0.5
    """The part of the rate that is left."""


Verdict = Literal["slow", "slow or occupied", "occupied", "flapping", "silent", "down", "lossy", "stalls"]


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An element that is probably at fault."""

    kind: FaultKind
    id: str
    direction: Direction
    capacity: float
    """The part of the rate that is left, measured."""
    verdict: Verdict
    confidence: float
    """The probability that it is this one, among its rivals and chance."""
    tests: int
    """The slow flows that it explains."""
    evidence: str
    alternatives: tuple[str, ...] = ()
    """What these paths cannot exclude instead."""
    action: str = ""
    verify: str = ""
