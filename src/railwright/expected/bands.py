"""Bands that several kinds of workload share, and a baseline as a limit."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.baselines import Ceiling
from railwright.limits.limit import Expected, Limit, NoLimit, Quantity
from railwright.limits.sources import SAME_RUN

_HALF = 0.5
_FILE_SHARE = 0.9
_DECIDES_FROM = 0.01
"""Our choice: if the bytes alone take less than this share of the shortest expected time, the start decides, and no
document gives a floor for it.
"""
WHY_FILES = "healthy drives and file systems differ too much"


def limit_from_baseline(quantity: Quantity, measured: Ceiling, value: float, because: str, *, times: int = 1) -> Limit:
    """Return `times` x `value`, a measurement of a baseline, as a limit that varies as the baseline's launches do."""
    return Limit(
        quantity=quantity,
        value=times * value,
        kind="measured_ceiling",
        because=because,
        varies=measured.varies_beyond(value),
        sources=(SAME_RUN,),
    )


def half_band(limit: Limit | NoLimit) -> Expected | None:
    """Return the band of a link without documented healthy values: from half of its limit, because headers never take
    half.
    """
    if not isinstance(limit, Limit):
        return None
    return Expected(
        quantity=limit.quantity,
        low=limit.value * _HALF,
        because="half of the limit: packet overhead never takes that much",
        sources=limit.sources,
    )


def file_band(limit: Limit | NoLimit) -> Expected | None:
    """Return the band of files: from 0.9 of the limit a value is ok; below that it is unknown."""
    if not isinstance(limit, Limit):
        return None
    return Expected(
        quantity=limit.quantity,
        low=limit.value * _FILE_SHARE,
        doubtful_to=0.0,
        doubt=WHY_FILES,
        because="0.9 of the limit: no further gain is possible",
        sources=limit.sources,
    )


def extend_doubt(expected: Expected, edge: float, why: str) -> Expected:
    """Return the band with its doubtful range extended down to `edge`, if it does not reach that far yet, because of
    `why`.
    """
    if edge >= expected.low:
        return expected
    return replace(
        expected, doubtful_to=edge if expected.doubtful_to is None else min(edge, expected.doubtful_to), doubt=why
    )


def scale_band(band: Expected, low: float, high: float) -> Expected:
    """Return the band with its low ends times `low` and its high ends times `high`."""
    ways = tuple(replace(way, low=way.low * low, high=way.high * high) for way in band.ways)
    return replace(
        band,
        low=band.low * low,
        high=None if band.high is None else band.high * high,
        doubtful_to=None if band.doubtful_to is None else band.doubtful_to * low,
        ways=ways,
    )


def decides_nothing(limit: Limit | NoLimit, expected: Expected | None) -> bool:
    """Report whether the limit of a latency is so far below the band that it bounds nothing, as for a few bytes."""
    if not isinstance(limit, Limit) or expected is None or limit.quantity != "latency_s":
        return False
    return limit.value < _DECIDES_FROM * expected.low
