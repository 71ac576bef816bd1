"""What should be possible: a limit with its reason and its source.

Two kinds of limit are never mixed: `derived` comes from hardware facts and documents, `measured_ceiling` from a
simpler measurement of the same resource in the same run.
Experience (what healthy machines of a class reach) is an `Expected`, never a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from railwright.units import format_bandwidth

Quantity = Literal["bandwidth_bytes_per_s", "latency_s", "operations_per_s", "messages_per_s", "flop_per_s"]
LimitKind = Literal["derived", "measured_ceiling"]


class Source(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a number comes from: a document or a measurement, named so that a reader can find it."""

    title: str
    section: str = ""

    def __str__(self) -> str:
        return f"{self.title}, {self.section}" if self.section else self.title


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that was looked up. A test holds that `limits` has no number that is not one of these."""

    value: float
    unit: str
    source: Source


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a derivation: what was computed, and its value as text with its unit."""

    text: str
    value: str


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="limit", forbid_unknown_fields=True):
    """The best value a path can reach: a bandwidth from above, a latency from below."""

    quantity: Quantity
    value: float
    kind: LimitKind
    because: str
    """One clause that names the narrowest link: `PCIe 5.0 x16, MaxPayload 256 B, between gpu0 and switch1`."""
    bottleneck: str = ""
    """The id of that link or device, empty for a measured ceiling."""
    varies: float = 1.0
    """How many times better the next launch of a measured ceiling may be, by how its launches differ; at least 1."""
    derivation: tuple[Step, ...] = ()
    sources: tuple[Source, ...] = ()


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is expected if one of several algorithms is taken, in the unit of what it belongs to."""

    algorithm: str
    low: float
    high: float


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What healthy systems of this class reach, and who says so. `high` is None where only one side is known."""

    quantity: Quantity
    low: float
    high: float | None = None
    doubtful_to: float | None = None
    """Where the ceiling itself varies: beyond the band's end up to here it cannot be said whether it is slow."""
    doubt: str = ""
    """Why that cannot be said; empty where it is that the ceiling varies."""
    ways: tuple[Way, ...] = ()
    """The band of each algorithm that may have been taken, where there are several; what lies between two is healthy
    too."""
    because: str
    sources: tuple[Source, ...]


class NoLimit(msgspec.Struct, frozen=True, kw_only=True, tag="no_limit", forbid_unknown_fields=True):
    """There is no limit to give, and `why`: an unknown generation, a virtual link, no document."""

    quantity: Quantity
    why: str
    missing: tuple[str, ...] = ()
    """The facts that would be needed, each as `device: fact`."""


Bounds = tuple[Limit | NoLimit, Expected | None]
"""A limit, and what healthy systems reach of it where that is known."""


def bandwidth_limit(
    value: float, because: str, bottleneck: str, derivation: Iterable[Step], sources: tuple[Source, ...]
) -> Limit:
    """The limit of a bandwidth in bytes/s that follows from facts of the hardware."""
    return Limit(
        quantity="bandwidth_bytes_per_s",
        value=value,
        kind="derived",
        because=because,
        bottleneck=bottleneck,
        derivation=tuple(derivation),
        sources=sources,
    )


def bandwidth_band(low: float, high: float | None, because: str, *sources: Source) -> Expected:
    """What healthy systems reach of a bandwidth, in bytes/s."""
    return Expected(quantity="bandwidth_bytes_per_s", low=low, high=high, because=because, sources=sources)


def no_bandwidth(why: str, *missing: str) -> NoLimit:
    """Why there is no limit of a bandwidth, and the facts that it would need."""
    return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=missing)


def rate_step(text: str, bytes_per_s: float) -> Step:
    """One line of a derivation whose value is a bandwidth."""
    return Step(text, format_bandwidth(bytes_per_s))
