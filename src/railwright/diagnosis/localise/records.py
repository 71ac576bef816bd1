"""Faults and suspects in JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

FaultKind = Literal["host", "nic", "link", "switch", "line-card", "route", "occupied"]
Direction = Literal["up", "down", "both", "out", "in"]
"""`up` and `down` of a NIC or link lead away from and towards the hosts; a switch or line card sends `out` and
receives `in`."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slow element, in the simulator's truth and in files of faults."""

    kind: FaultKind
    id: str
    """`host17`, `host17:nic3`, `leaf2-spine1`, `leaf2`, `spine3/card0`, `leaf0>leaf3@spine1`, or, for a route of one
    pair of ports, `host0:nic0>host5:nic0@spine1`."""
    direction: Direction = "both"
    capacity: float = 0.5
    """The remaining part of the rate."""


Verdict = Literal["slow", "slow or occupied", "occupied", "flapping", "silent", "down", "lossy", "stalls"]


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An element that is probably at fault."""

    kind: FaultKind
    id: str
    direction: Direction
    capacity: float
    """The measured remaining part of the rate."""
    verdict: Verdict
    confidence: float
    """The probability of this element among its rivals and chance."""
    tests: int
    """The number of slow flows that it explains."""
    evidence: str
    alternatives: tuple[str, ...] = ()
    """Alternatives that these paths cannot exclude."""
    action: str = ""
    verify: str = ""
