"""Records of a job's iterations."""

from __future__ import annotations

import msgspec


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which a job has one period; shares are mean parts of the period.

    Half widths are of the 95 % interval. Shares are None if `why_no_shares` is set.
    """

    from_s: float
    """The start in the recording."""
    to_s: float
    period_s: float
    """The mean period."""
    period_half_width_s: float
    iterations: int
    drift: float
    """The increase of an iteration's length from start to end, as a part of the period."""
    samples_a_period: float
    variation: float | None = None
    """The deviation of single iterations as a part of the period, without the tenth that differs most.

    It includes the noise of the samples. None if unknown.
    """
    second_period_s: float | None = None
    """The period of another job that moves the same counters."""
    compute: float | None = None
    """The share with computing."""
    compute_half_width: float | None = None
    communication: float | None = None
    """The share with traffic."""
    communication_half_width: float | None = None
    exposed: float | None = None
    """The share with traffic and without computing."""
    exposed_half_width: float | None = None
    best_gain: float | None = None
    """The speedup with a perfect interconnect: 1 / (1 - exposed)."""
    best_gain_low: float | None = None
    best_gain_high: float | None = None
    begins_s: tuple[float, ...] = ()
    """The start of each whole iteration: by convention the start of computing, if known."""
    why_no_shares: str = ""


class Iterations(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations derived from curves: an estimate per stretch, the longest first, or the reason for none."""

    estimates: tuple[Estimate, ...] = ()
    why_none: str = ""
