"""What is said of a job's iterations."""

from __future__ import annotations

import msgspec


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which a job goes on with one period; shares are parts of it, in the mean.

    Half widths are of the 95 % interval. A share is None where `why_no_shares` says so.
    """

    from_s: float
    """Of the recording."""
    to_s: float
    period_s: float
    """In the mean."""
    period_half_width_s: float
    iterations: int
    drift: float
    """How much longer an iteration is at the end than at the begin, as a part of the period."""
    samples_a_period: float
    variation: float | None = None
    """By how much single iterations differ, a deviation as a part of the period; None where that cannot be told."""
    second_period_s: float | None = None
    """Of another job that moves the same counters."""
    compute: float | None = None
    """The share in which something is computed."""
    compute_half_width: float | None = None
    communication: float | None = None
    """The share in which there is traffic."""
    communication_half_width: float | None = None
    exposed: float | None = None
    """The share with traffic and without computing."""
    exposed_half_width: float | None = None
    best_gain: float | None = None
    """How many times as fast with a perfect interconnect: 1 / (1 - exposed)."""
    best_gain_low: float | None = None
    best_gain_high: float | None = None
    begins_s: tuple[float, ...] = ()
    """When each whole iteration began; where begin is, is a convention: when computing begins, if that can be told."""
    why_no_shares: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What curves tell of iterations: one estimate for each stretch, the longest first, or why there is none."""

    estimates: tuple[Estimate, ...] = ()
    why_none: str = ""
