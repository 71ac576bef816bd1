"""The cables of a fabric by the ports at their ends: planned in a cluster file, or observed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from railwright.errors import UsageError

MOST_CABLES = 1_000_000
_MAX_NAME = 80


class Port(NamedTuple):
    """An end of a cable."""

    end: str
    """The name of a host or switch."""
    port: str

    def __str__(self) -> str:
        return f"{self.end} port {self.port}"


Cable = tuple[Port, Port]
"""The two ends; in planned cables the lower end comes first."""


class Cabling(NamedTuple):
    """Observed cables."""

    cables: tuple[Cable, ...]
    looked_at: frozenset[str]
    """The hosts and switches whose ports were read. At others a missing cable is no finding."""


def parse_cables(rows: Iterable[tuple[str, str, str, str]]) -> tuple[Cable, ...]:
    """Parse planned cables: (end, port, end, port), the lower end first. Raises UsageError for an invalid name, a port
    that is used twice, and too many cables.
    """
    found: list[Cable] = []
    used: dict[Port, int] = {}
    for number, row in enumerate(rows, 1):
        if number > MOST_CABLES:
            raise UsageError(
                f"the fabric must have at most {MOST_CABLES} cables", hint="describe only a part of the fabric"
            )
        if any(not word or len(word) > _MAX_NAME or not word.isprintable() for word in row):
            hint = f"each is [end, port, end, port], of up to {_MAX_NAME} printable characters"
            raise UsageError(f"cable {number} has an empty or invalid name", hint=hint)
        cable = Port(*row[:2]), Port(*row[2:])
        for port in cable:
            if port in used:
                message = f"cables {used[port]} and {number} both end at {port}"
                raise UsageError(message, hint="a port takes one cable")
            used[port] = number
        found.append(cable)
    return tuple(found)
