"""All faults, in the order of listings. A new fault needs a file and a line here."""

from __future__ import annotations

from railwright.errors import unknown_name
from railwright.lab.faults import (
    busy_neighbour,
    cpu_slow,
    cursed_route,
    flapping,
    host_slow,
    leaf_slow,
    link_down,
    link_slow,
    loss,
    mtu_mismatch,
)
from railwright.lab.faults.effects import Fault

FAULTS: tuple[Fault, ...] = tuple(
    module.FAULT
    for module in (
        link_slow,
        link_down,
        leaf_slow,
        host_slow,
        cpu_slow,
        loss,
        cursed_route,
        mtu_mismatch,
        busy_neighbour,
        flapping,
    )
)


def find_fault(name: str) -> Fault:
    """Return the fault of that name; `-` counts as `_`. Raises UsageError with the nearest names."""
    for fault in FAULTS:
        if fault.name == name.replace("-", "_"):
            return fault
    raise unknown_name("fault", name, (fault.name for fault in FAULTS))
