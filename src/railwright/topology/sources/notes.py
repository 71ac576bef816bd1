"""Unreadable facts, grouped: an entry for each missing fact, not for each file."""

from __future__ import annotations

from railwright.topology.devices import Unknown
from railwright.topology.sources.root import Unreadable

_MAX_NAMED = 4


class Notes:
    """Collects the facts that the sources could not read, each with the reason."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], list[str]] = {}

    def missing(self, what: str, why: str, of: str = "") -> None:
        """Note that `what` (of the device `of`) is unknown, and why."""
        devices = self._of.setdefault((what, why), [])
        if of and of not in devices:
            devices.append(of)

    def unreadable(self, what: str, answer: Unreadable, of: str = "") -> None:
        """Note a file that exists and could not be read. An absent file is often normal and is not noted."""
        if not answer.is_absent:
            self.missing(what, answer.reason, of)

    def unknown(self) -> tuple[Unknown, ...]:
        """Return the entries, sorted."""
        return tuple(
            Unknown(what=f"{what} of {_format_devices(devices)}" if devices else what, why=why)
            for (what, why), devices in sorted(self._of.items())
        )


def _format_devices(devices: list[str]) -> str:
    if len(devices) <= _MAX_NAMED:
        return ", ".join(devices)
    return f"{', '.join(devices[: _MAX_NAMED - 1])} and {len(devices) - _MAX_NAMED + 1} more"
