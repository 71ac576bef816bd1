"""Compares a container with its host: differences, and faults that only the container has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from railwright.checks.finding import Finding


class Entered(msgspec.Struct, frozen=True, kw_only=True, tag="container", tag_field="record", omit_defaults=True,
              forbid_unknown_fields=True):  # fmt: skip
    """The measured container, identified by one of its processes."""

    pid: int
    program: str
    taken: tuple[str, ...]
    """The parts of the container that our ranks shared."""
    left: tuple[str, ...]
    """The parts that our ranks did not share, with their replacements."""
    troubles: dict[str, str] = {}
    """Maps a side to the reason why records are missing."""


class Unlike(msgspec.Struct, frozen=True, kw_only=True, tag="unlike", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """A property of the machine that the two sides see differently; None for a side that does not see it."""

    what: str
    host: str | None = None
    container: str | None = None


def find_differences(host: Mapping[str, str], container: Mapping[str, str]) -> Iterator[Unlike]:
    """Yield the differences between two machines, each described by `fleet.settings.describe_host`."""
    for what in dict.fromkeys((*host, *container)):
        if host.get(what) != container.get(what):
            yield Unlike(what=what, host=host.get(what), container=container.get(what))


def container_findings(host: Iterable[Finding], container: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings of the container that the host does not have."""
    on_host = {(finding.fault, finding.says) for finding in host}
    return tuple(finding for finding in container if (finding.fault, finding.says) not in on_host)
