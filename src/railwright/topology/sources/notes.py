"""What could not be read, grouped: one entry per thing that is missing, not one per file."""

from __future__ import annotations

from railwright.topology.devices import Unknown
from railwright.topology.sources.root import Unreadable

_NAMED_AT_MOST = 4


class Notes:
    """Collects what is missing while the sources read."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], list[str]] = {}

    def missing(self, what: str, why: str, of: str = "") -> None:
        """Notes that `what` (of the device `of`) is not known, and why."""
        devices = self._of.setdefault((what, why), [])
        if of and of not in devices:
            devices.append(of)

    def unreadable(self, what: str, answer: Unreadable, of: str = "") -> None:
        """Notes a file that is there and could not be read; an absent one is often normal and not noted."""
        if not answer.is_absent:
            self.missing(what, answer.reason, of)

    def unknown(self) -> tuple[Unknown, ...]:
        """The entries, sorted."""
        return tuple(
            Unknown(what=f"{what} of {_listed(devices)}" if devices else what, why=why)
            for (what, why), devices in sorted(self._of.items())
        )


def _listed(devices: list[str]) -> str:
    if len(devices) <= _NAMED_AT_MOST:
        return ", ".join(devices)
    return f"{', '.join(devices[: _NAMED_AT_MOST - 1])} and {len(devices) - _NAMED_AT_MOST + 1} more"
