"""The best possible value, with its reason and its source.

Two kinds of limit are never mixed: `derived` comes from hardware facts and documents, `measured_ceiling` from a simpler
measurement of the same resource in the same run.
Experience (the values that healthy machines of a class reach) is an `Expected`, never a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from railwright.units import format_bandwidth

Quantity = Literal["bandwidth_bytes_per_s", "latency_s", "operations_per_s", "messages_per_s", "flop_per_s"]
LimitKind = Literal["derived", "measured_ceiling"]


class Source(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The document or measurement that a number comes from, named so that a reader can find it."""

    title: str
    section: str = ""

    def __str__(self) -> str:
        return f"{self.title}, {self.section}" if self.section else self.title


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number from a source. A test checks that every number in `limits` is a Constant."""

    value: float
    unit: str
    source: Source


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a derivation: the computation, and its value as text with its unit."""

    text: str
    value: str


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="limit", forbid_unknown_fields=True):
    """The best value that a path can reach: an upper bound of a rate, a lower bound of a latency."""

    quantity: Quantity
    value: float
    kind: LimitKind
    because: str
    """A clause that names the narrowest link: `PCIe 5.0 x16, MaxPayload 256 B, between gpu0 and switch1`."""
    bottleneck: str = ""
    """The id of that link or device; empty for a measured ceiling."""
    varies: float = 1.0
    """The factor by which the next launch of a measured ceiling may be better, from the spread of its launches; at
    least 1.
    """
    derivation: tuple[Step, ...] = ()
    assumed: str = ""
    """The option that gives the rate on which the limit rests, such as `drive-pcie=5`, if a shape assumes it."""
    assumed_span: tuple[float, float] | None = None
    """The factors by which the limit is lower and higher at the extremes of the assumed fact; None if any is possible.
    """
    sources: tuple[Source, ...] = ()


class AlgorithmBand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The band of one of several algorithms, in the unit of the whole band."""

    algorithm: str
    low: float
    high: float


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The band that healthy systems of this class reach, with its sources. `high` is None if only one side is known."""

    quantity: Quantity
    low: float
    high: float | None = None
    doubtful_to: float | None = None
    """The end of the doubtful range: a value beyond the band's end and up to here may be slow or not."""
    doubt: str = ""
    """The reason for the doubt; empty if it is that the ceiling varies."""
    ways: tuple[AlgorithmBand, ...] = ()
    """The bands of the algorithms that may have been taken, if several; a value between two bands is healthy too."""
    systems: int | None = None
    """The independent systems on which a collective's band rests, by its fabric; None if not counted."""
    because: str
    sources: tuple[Source, ...]


class NoLimit(msgspec.Struct, frozen=True, kw_only=True, tag="no_limit", forbid_unknown_fields=True):
    """The absence of a limit, with the reason `why`: an unknown generation, a virtual link, no document."""

    quantity: Quantity
    why: str
    missing: tuple[str, ...] = ()
    """The missing facts, each as `device: fact`."""


Bounds = tuple[Limit | NoLimit, Expected | None]
"""A limit or the reason why there is none, and the band of healthy systems if known."""


def bandwidth_limit(
    value: float, because: str, bottleneck: str, derivation: Iterable[Step], sources: tuple[Source, ...]
) -> Limit:
    """Return the limit of a bandwidth in bytes/s, derived from facts of the hardware."""
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
    """Return the band of a bandwidth on healthy systems, in bytes/s."""
    return Expected(quantity="bandwidth_bytes_per_s", low=low, high=high, because=because, sources=sources)


def no_bandwidth(why: str, *missing: str) -> NoLimit:
    """Return the absence of a bandwidth limit, with the reason and the missing facts."""
    return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=missing)


def rate_step(text: str, bytes_per_s: float) -> Step:
    """Return a line of a derivation whose value is a bandwidth."""
    return Step(text, format_bandwidth(bytes_per_s))
