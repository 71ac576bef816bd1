"""Choice of the GIDs by which two ports reach each other. Pure: both ranks choose alike from the same two tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railwright.errors import CannotJudge
from railwright.native.verbs import Gid
from railwright.topology.sources.rdma_port import gid_kind

_KINDS = ("IPv4", "IPv6", "link-local")
"""The kinds of addresses, the best first. Link-local ones do not leave the leaf."""
_VERSIONS = ("v2", "v1", "")
"""RoCE v1 is not routed. GIDs of InfiniBand have no version."""


class GidPair(NamedTuple):
    """The GIDs of the two ports."""

    first: Gid
    second: Gid

    def describe(self, side: int) -> str:
        """Return the GID of a side: `3 (RoCE v2, IPv4)`."""
        gid = self[side]
        version = f"RoCE {gid.version}, " if gid.version else ""
        return f"{gid.place} ({version}{kind(gid)})"


def kind(gid: Gid) -> str:
    """Return the kind of a GID's address."""
    return gid_kind(":".join(gid.raw[at : at + 2].hex() for at in range(0, 16, 2)))


def choose_gids(first: Sequence[Gid], second: Sequence[Gid], wanted: int | None) -> GidPair:
    """Choose a pair of the same version and kind, the best kind first, then the nearest addresses.

    With `wanted` both ports use that index. Raises CannotJudge if no pair matches.
    """
    pairs = [
        GidPair(one, other)
        for one in first
        for other in second
        if (one.version, kind(one)) == (other.version, kind(other))
        and kind(one) in _KINDS
        and wanted in (None, one.place)
        and wanted in (None, other.place)
    ]
    if not pairs:
        at = "" if wanted is None else f" at index {wanted}"
        raise CannotJudge(f"the two ports have no GIDs of one kind{at}: {_list(first)} and {_list(second)}")
    return min(pairs, key=_rank)


def _rank(pair: GidPair) -> tuple[int, int, int, int, int]:
    one, other = pair
    different = int.from_bytes(one.raw, "big") ^ int.from_bytes(other.raw, "big")
    place = _KINDS.index(kind(one))
    return _VERSIONS.index(one.version), place, different.bit_length(), one.place, other.place


def _list(gids: Sequence[Gid]) -> str:
    return " ".join(f"{gid.place}:{gid.version or 'IB'}/{kind(gid)}" for gid in gids) or "none"
