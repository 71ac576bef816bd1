"""Round trips by hop class: reports pairs that are slower than pairs with the same number of switches. Pure.

The round trip of a pair is the fastest of all its tries, because other traffic can only add to it. A pair is slower
than its class if it lies above the class's median by more than `_SIGMAS` standard deviations, estimated by the median
absolute deviation (times 1.4826 for a normal distribution), and by more than `_MIN_PART` of the
median.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from railwright.diagnosis.localise.fabric import Fabric, build_path
from railwright.diagnosis.localise.flows import Flow, Round

_SIGMAS = 6.0
_MIN_PART = 0.5
_DEVIATION_PER_MAD = 1.4826
_MIN_PAIRS = 4
"""The smallest class with verdicts."""
_MIN_TRIES = 2
_MAX_SHIFTS = 63
"""With up to 64 ports every pair is tried; with more, each port tries at most this many others."""
_ASCENTS = 4
"""In a complete fat tree a single path up suffices; the others cover trees with gaps."""
PURPOSE = "round trips"


class RoundTrip(NamedTuple):
    """A measured round trip of a pair."""

    source: str
    destination: str
    switches: int
    """The number of switches on its path."""
    seconds: float


class HopClass(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs with the same number of switches on their path."""

    switches: int
    """1: same leaf; 3: across a spine; 5: across a core."""
    pairs: int
    median_s: float
    spread_s: float
    """1.4826 times the median absolute deviation."""


class PairTime(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest round trip of a pair."""

    source: str
    destination: str
    switches: int
    seconds: float
    tries: int


class SlowPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that is slower than its class."""

    source: str
    destination: str
    switches: int
    round_trip_s: float
    tries: int
    times: float
    """Its round trip over the median of its class."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The results of round trips."""

    classes: tuple[HopClass, ...] = ()
    slow_pairs: tuple[SlowPair, ...] = ()
    pairs: tuple[PairTime, ...] = ()
    tried_once: int = 0
    """Pairs that look slow but were tried only once, without a verdict."""


def classify_round_trips(tries: Iterable[RoundTrip]) -> Latency:
    """Classify round trips by number of switches; the slowest pair for its class comes first."""
    by_pair: dict[tuple[int, str, str], list[float]] = {}
    for one in tries:
        by_pair.setdefault((one.switches, one.source, one.destination), []).append(one.seconds)
    classes, slow, times, once = [], list[SlowPair](), list[PairTime](), 0
    for switches in sorted({key[0] for key in by_pair}):
        best = {key: min(seconds) for key, seconds in by_pair.items() if key[0] == switches}
        found = _summarize_class(switches, list(best.values()))
        classes.append(found)
        most_s = found.median_s + max(_SIGMAS * found.spread_s, _MIN_PART * found.median_s)
        for key, seconds in best.items():
            tried = len(by_pair[key])
            times.append(PairTime(source=key[1], destination=key[2], switches=switches, seconds=seconds, tries=tried))
            if seconds <= most_s or len(best) < _MIN_PAIRS:
                continue
            once += tried < _MIN_TRIES
            if tried >= _MIN_TRIES:
                slow.append(SlowPair(source=key[1], destination=key[2], switches=switches, round_trip_s=seconds,
                                     tries=tried, times=round(seconds / found.median_s, 2)))  # fmt: skip
    slow.sort(key=lambda one: (-one.times, one.source, one.destination))
    return Latency(classes=tuple(classes), slow_pairs=tuple(slow), pairs=tuple(times), tried_once=once)


def _summarize_class(switches: int, seconds: list[float]) -> HopClass:
    median = statistics.median(seconds)
    deviation = statistics.median(abs(one - median) for one in seconds)
    return HopClass(switches=switches, pairs=len(seconds), median_s=median, spread_s=_DEVIATION_PER_MAD * deviation)


def latency_rounds(fabric: Fabric) -> list[Round]:
    """Return rounds with every pair of ports of a rail, twice; for large fabrics pairs at evenly spaced distances.

    The path of a flow gives only the number of switches, not their identities.
    """
    nics = fabric.nics
    shifts = range(1, nics) if nics - 1 <= _MAX_SHIFTS else range(1, nics, -(-(nics - 1) // _MAX_SHIFTS))
    rounds = []
    for shift in shifts:
        flows = [flow for nic in range(nics) if (flow := _short_flow(fabric, nic, (nic + shift) % nics)) is not None]
        if flows:
            rounds.append(Round(flows, purpose=PURPOSE))
    return rounds + [Round(list(one.flows), purpose=PURPOSE) for one in rounds]


def _short_flow(fabric: Fabric, source: int, destination: int) -> Flow | None:
    """Return a flow over a shortest path; None without a path, within a host, or between rails."""
    same_host = fabric.nic_host[source] == fabric.nic_host[destination]
    if same_host or fabric.nic_rail[source] != fabric.nic_rail[destination]:
        return None
    ups: list[tuple[int, ...]] = [(source,)]
    while ups:
        for up in ups:
            back = fabric.descent_to(destination, fabric.upper[up[-1]], len(up))
            if back is not None:
                return Flow(source, destination, build_path(up, back), 1.0)
        ups = [(*up, cable) for up in ups for cable in fabric.above[fabric.upper[up[-1]]][:_ASCENTS]][:_ASCENTS]
    return None
