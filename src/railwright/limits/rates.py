"""Limits with their bands, for a rate and for an algorithm."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from railwright.limits.limit import AlgorithmBand, Source


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit and the band that healthy systems reach, in bytes/s; the band is None if no document gives it."""

    limit: float
    expected_low: float | None = None
    expected_high: float | None = None
    ways: tuple[AlgorithmBand, ...] = ()
    """The band of each algorithm that NCCL may take, if there are several."""

    def times(self, share: float) -> Rate:
        """Return the rate scaled by `share`."""
        low, high = (None if end is None else end * share for end in (self.expected_low, self.expected_high))
        ways = tuple(replace(way, low=way.low * share, high=way.high * share) for way in self.ways)
        return Rate(limit=self.limit * share, expected_low=low, expected_high=high, ways=ways)

    def to_time(self, size_bytes: int) -> Rate:
        """Return the seconds for `size_bytes` at these rates: the limit is the least time."""
        minimum = size_bytes / self.limit
        if self.expected_low is None or self.expected_high is None:
            return Rate(limit=minimum)
        ways = tuple(replace(way, low=size_bytes / way.high, high=size_bytes / way.low) for way in self.ways)
        shortest = max(size_bytes / self.expected_high, minimum)
        return Rate(limit=minimum, expected_low=shortest, expected_high=size_bytes / self.expected_low, ways=ways)

    @property
    def middle(self) -> float | None:
        """The mean of the band's two ends; None without a band."""
        if self.expected_low is None or self.expected_high is None:
            return None
        return (self.expected_low + self.expected_high) / 2


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of the limit that one kind of link decides, and the rate if that kind were twice as fast."""

    what: str
    """The kind of resource, such as `NIC port`."""
    where: tuple[str, ...]
    """Ids of links, or of NIC ports with their direction."""
    share: float
    because: str
    doubled_bytes_per_s: float
    """The algbw if these links alone were twice as fast."""
    then: str
    """The kind of link that would be the bottleneck then."""
    sources: tuple[Source, ...] = ()


class Algorithm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An algorithm with its rates as busbw and algbw."""

    name: str
    algbw_bytes_per_s: Rate
    busbw_bytes_per_s: Rate
    bottleneck: tuple[Share, ...]
    in_nccl: bool = True
