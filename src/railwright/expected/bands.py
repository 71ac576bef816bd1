"""Bands that several kinds of workload share, and a baseline as a limit."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.baselines import Ceiling
from railwright.limits.limit import Expected, Limit, NoLimit, Quantity
from railwright.limits.sources import SAME_RUN

_HALF = 0.5
_OF_FILES = 0.9
WHY_FILES = "healthy drives and file systems differ too much"


def of_baseline(quantity: Quantity, measured: Ceiling, value: float, because: str, *, times: int = 1) -> Limit:
    """So many times the value as a limit, which varies as the launches of what was measured do."""
    return Limit(
        quantity=quantity,
        value=times * value,
        kind="measured_ceiling",
        because=because,
        varies=measured.varies_beyond(value),
        sources=(SAME_RUN,),
    )


def half_of(limit: Limit | NoLimit) -> Expected | None:
    """What can be said of a link for which no document tells what healthy ones reach: no header takes half of it."""
    if not isinstance(limit, Limit):
        return None
    return Expected(
        quantity=limit.quantity,
        low=limit.value * _HALF,
        because="half of the limit: no overhead of packets takes as much",
        sources=limit.sources,
    )


def near_limit(limit: Limit | NoLimit) -> Expected | None:
    """The band of files: at 0.9 of the limit and more all is well; below it nothing is known."""
    if not isinstance(limit, Limit):
        return None
    return Expected(
        quantity=limit.quantity,
        low=limit.value * _OF_FILES,
        doubtful_to=0.0,
        doubt=WHY_FILES,
        because="0.9 of the limit: nothing is left to be won",
        sources=limit.sources,
    )


def doubted_to(expected: Expected, edge: float, why: str) -> Expected:
    """The band, of which nothing can be said from its low end down to `edge` or an earlier doubt, and why."""
    if edge >= expected.low:
        return expected
    return replace(
        expected, doubtful_to=edge if expected.doubtful_to is None else min(edge, expected.doubtful_to), doubt=why
    )


def scaled(band: Expected, low: float, high: float) -> Expected:
    """The band with other ends: its low ones times `low`, its high ones times `high`."""
    ways = tuple(replace(way, low=way.low * low, high=way.high * high) for way in band.ways)
    return replace(
        band,
        low=band.low * low,
        high=None if band.high is None else band.high * high,
        doubtful_to=None if band.doubtful_to is None else band.doubtful_to * low,
        ways=ways,
    )
