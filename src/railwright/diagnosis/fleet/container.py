"""A container beside its host: what differs between the two, and which faults the container alone has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from railwright.checks.finding import Finding


class Entered(msgspec.Struct, frozen=True, kw_only=True, tag="container", tag_field="record", omit_defaults=True,
              forbid_unknown_fields=True):  # fmt: skip
    """The container that was measured, by one of its processes."""

    pid: int
    program: str
    taken: tuple[str, ...]
    """What of it our ranks had."""
    left: tuple[str, ...]
    """What they did not have, and what they had in its place."""
    troubles: dict[str, str] = {}
    """Side to why it has no records, or not all."""


class Unlike(msgspec.Struct, frozen=True, kw_only=True, tag="unlike", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """One thing of the machine that the two sides see differently; a side that does not see it has None."""

    what: str
    host: str | None = None
    container: str | None = None


def unlike(host: Mapping[str, str], container: Mapping[str, str]) -> Iterator[Unlike]:
    """Where two machines, each told as `fleet.told_of` tells it, are not alike."""
    for what in dict.fromkeys((*host, *container)):
        if host.get(what) != container.get(what):
            yield Unlike(what=what, host=host.get(what), container=container.get(what))


def only_inside(host: Iterable[Finding], container: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of the container that the host does not have."""
    there = {(one.fault, one.says) for one in host}
    return tuple(one for one in container if (one.fault, one.says) not in there)
