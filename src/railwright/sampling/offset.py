"""The offset of another host's monotonic clock from ours, and its drift."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

CLOCK = "clock.offset"
"""The name of the gauge in a recording with the change of the offset since its first measurement."""


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """The offset to add to a host's clock to get the clock of the watching machine."""

    seconds: float
    half_width_s: float
    """Half of the shortest round trip: the host read its clock at any point in it."""
    boot: str
    """The boot id of the host's kernel: two hosts with the same kernel share their CPUs."""
    to_boot: str
    """The boot id of the watching machine's kernel."""


def estimate_offset(exchanges: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the offset and its half width from the shortest exchange (Cristian 1989).

    An exchange holds our clock before, the host's clock, and our clock after.
    """
    before_s, host_s, after_s = min(exchanges, key=lambda exchange: exchange[2] - exchange[0])
    return (before_s + after_s) / 2 - host_s, (after_s - before_s) / 2


def interpolate_change(known: Sequence[tuple[float, float]], at_s: float) -> float:
    """Interpolate the change of an offset at a time between measurements; 0 if there are none."""
    if not known:
        return 0.0
    after = bisect_right(known, at_s, key=lambda change: change[0])
    if after in (0, len(known)):
        return known[min(after, len(known) - 1)][1]
    (early_s, first), (late_s, last) = known[after - 1], known[after]
    return first + (last - first) * (at_s - early_s) / (late_s - early_s)


def select_known_changes(times_s: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the rows of the gauge that have a value."""
    return [(at_s, value) for at_s, value in zip(times_s, values, strict=True) if value == value]
