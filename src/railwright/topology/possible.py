"""Checks that reject impossible topologies from any source: a saved file or the first line of a run."""

from __future__ import annotations

import re

from railwright.errors import UsageError
from railwright.topology.devices import Link, Topology

MAX_DEVICES = 100_000
MAX_LINKS = 400_000
_MAX_VALUE = 1e18

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,79}")


def refuse_impossible(topology: Topology, origin: str) -> None:
    """Check that devices and links are possible. Raises UsageError."""
    if len(topology.devices) > MAX_DEVICES or len(topology.links) > MAX_LINKS:
        raise UsageError(
            f"{origin} must have at most {MAX_DEVICES} devices and {MAX_LINKS} links", hint="split it by host"
        )
    seen: set[str] = set()
    for device in topology.devices:
        if not _ID.fullmatch(device.id):
            raise UsageError(f"{origin}: {device.id[:80]!r} is not a device id", hint="ids are like gpu0 or nvme0n1")
        if device.id in seen:
            raise UsageError(f"{origin}: two devices are called {device.id}", hint="ids must be unique")
        seen.add(device.id)
    for link in topology.links:
        for end in (link.a, link.b):
            if end not in seen:
                raise UsageError(f"{origin}: a link ends at {end[:80]!r}, which is not a device", hint="add the device")
        _check_link(link, origin)


def _check_link(link: Link, origin: str) -> None:
    if link.a == link.b:
        raise UsageError(f"{origin}: a link joins {link.a} to itself", hint="remove it")
    for field in link.protocol.__struct_fields__:
        value = getattr(link.protocol, field)
        if isinstance(value, int | float) and not 0 <= value <= _MAX_VALUE:  # NaN is refused too
            raise UsageError(
                f"{origin}: {field} of link {link.id} must be between 0 and {_MAX_VALUE:g}, got {value}",
                hint="correct it",
            )
        if value == 0 and not isinstance(value, bool):
            raise UsageError(
                f"{origin}: {field} of link {link.id} must be positive, got 0", hint="leave out unknown facts"
            )
