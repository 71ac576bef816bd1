"""How far another host's monotonic clock is from ours, and how it drifts away meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

CLOCK = "clock.offset"
"""The name of the gauge that tells, in a recording, by how much the offset has changed since it was first measured."""


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be added to a host's clock for the time of the clock of the machine that watches."""

    seconds: float
    half_width_s: float
    """Half of the shortest round trip: the answer was given anywhere in it."""
    boot: str
    """Of the host's kernel: two hosts of one kernel share their CPUs."""
    to_boot: str
    """Of the kernel of the machine that watches."""


def shortest(exchanges: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The offset and its half width, of exchanges: our clock before, the host's, our clock after (Cristian 1989)."""
    before_s, told_s, after_s = min(exchanges, key=lambda one: one[2] - one[0])
    return (before_s + after_s) / 2 - told_s, (after_s - before_s) / 2


def changes_between(known: Sequence[tuple[float, float]], at_s: float) -> float:
    """The change of an offset at a time, even between those times at which it was measured; 0 without any."""
    if not known:
        return 0.0
    after = bisect_right(known, at_s, key=lambda one: one[0])
    if after in (0, len(known)):
        return known[min(after, len(known) - 1)][1]
    (early_s, first), (late_s, last) = known[after - 1], known[after]
    return first + (last - first) * (at_s - early_s) / (late_s - early_s)


def known_changes(times_s: Sequence[float], told: Sequence[float]) -> list[tuple[float, float]]:
    """The rows of the gauge that tell something."""
    return [(at_s, value) for at_s, value in zip(times_s, told, strict=True) if value == value]
