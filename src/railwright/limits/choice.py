"""Which algorithms NCCL may take at a size, and what is expected there of each.

Near the size where NCCL changes from one to the other each has its own band: a value in any of them, or between two, is
healthy, and which one it lies in says what NCCL took.
"""

from __future__ import annotations

import math

from railwright.limits import latency, nccl_channels, rccl, tuning
from railwright.limits.limit import Constant, Expected, Quantity, Way
from railwright.limits.rates import Algorithm, Rate
from railwright.limits.sources import NCCL_LATENCY, NCCL_TOPO, NCCL_TUNING, OFI_LATENCY, RING_SEEN
from railwright.limits.traffic import domain_hosts, domains, protocol_of
from railwright.topology.cluster import Cluster

_NEARLY_EQUAL = Constant(1.1, "times as fast, from where NCCL's choice is not clear", NCCL_LATENCY)
_LARGE_BYTES = Constant(64 * 2**20, "bytes, from where no tree is taken in one domain", NCCL_LATENCY)
_ALIKE = Constant(1.05, "times, by which two bands differ at one end at most to count as one", NCCL_LATENCY)
_RING_BYTES = Constant(32 * 2**20, "bytes, from where the ring was seen on two hosts", RING_SEEN)
_TABLES_APART = Constant(1.6, "times as fast, where a plugin chooses by its own tables", OFI_LATENCY)


def best_of(found: tuple[Algorithm, ...]) -> Algorithm:
    """The algorithm with the highest limit, of those that NCCL has where it has any."""
    return max(_usable(found), key=lambda one: one.algbw_bytes_per_s.limit)


def band_of(rate: Rate, likely: Algorithm, quantity: Quantity = "bandwidth_bytes_per_s") -> Expected | None:
    """The band of a rate, or of a time, by the algorithms that NCCL may take there; None where none is known."""
    if rate.expected_low is None:
        return None
    names = [way.algorithm for way in rate.ways] or [likely.name]
    because = f"NCCL's {' or '.join(names)} over what it reaches of each link, and its latency"
    return Expected(
        quantity=quantity,
        low=rate.expected_low,
        high=rate.expected_high,
        ways=rate.ways,
        because=because,
        sources=(NCCL_TOPO, NCCL_TUNING),
    )


def at_size(
    cluster: Cluster, collective: str, found: tuple[Algorithm, ...], size_bytes: int | None, protocol: str = ""
) -> tuple[Algorithm, Rate, Rate | None]:
    """(the algorithm that is likely the fastest, algbw, time) at one size, None for large sizes.

    All by the protocol that is named or the cluster's only one, else by whichever NCCL is the fastest with there.
    The limit needs no latency: no size can be faster than its bytes allow.
    """
    protocol = protocol or protocol_of(cluster)
    limit = best_of(found).algbw_bytes_per_s.limit
    ranked = [
        (_middle(cluster, collective, one, size_bytes, protocol), one)
        for one in _choices(cluster, _usable(found), size_bytes)
    ]
    best, likely = max(ranked, key=lambda pair: pair[0])
    ways = []
    for one in _near(cluster, ranked, best, size_bytes):
        band = _at(cluster, collective, one, size_bytes, protocol)
        if band is not None:
            ways.append(Way(algorithm=one.name, low=band[0], high=min(band[1], limit)))
    rate = Rate(limit=limit)
    if ways:
        low, high = min(way.low for way in ways), max(way.high for way in ways)
        differ = any(max(way.low / low, high / way.high) > _ALIKE.value for way in ways)
        rate = Rate(limit=limit, expected_low=low, expected_high=high, ways=tuple(ways) if differ else ())
    return likely, rate, None if size_bytes is None else rate.as_time(size_bytes)


def at_large_sizes(cluster: Cluster, collective: str, one: Algorithm) -> Rate:
    """What is expected of one algorithm by the cluster's protocol where bytes alone decide, as algbw."""
    low, high = _at(cluster, collective, one, None, protocol_of(cluster)) or (None, None)
    return Rate(limit=one.algbw_bytes_per_s.limit, expected_low=low, expected_high=high)


def _usable(found: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    return tuple(one for one in found if one.in_nccl) or found


def _at(
    cluster: Cluster, collective: str, one: Algorithm, size_bytes: int | None, protocol: str
) -> tuple[float, float] | None:
    """(low, high) algbw of one algorithm at that size, in bytes/s; None where it has no band."""
    low, high = one.algbw_bytes_per_s.expected_low, one.algbw_bytes_per_s.expected_high
    if low is None or high is None:
        return None
    if size_bytes is None:
        return latency.large_band(cluster, collective, one.name, low, high, protocol)
    if collective == "send_recv":
        least, most = nccl_channels.band_bytes_per_s(cluster, size_bytes)
        low, high = min(low, least), min(high, most)
    shortest, longest = latency.band_s(cluster, collective, one.name, size_bytes, low, high, protocol)
    return size_bytes / longest, size_bytes / shortest


def _near(
    cluster: Cluster, ranked: list[tuple[float, Algorithm]], best: float, size_bytes: int | None
) -> list[Algorithm]:
    """The algorithms of which NCCL may take any there: near the point where it changes from one to the other.

    On two hosts the ring was seen where the tree would be faster, and EFA's plugin chooses by tables of its own. Over
    racks some run at exactly NCCL's cap on trees, where NVLSTree would be twice as fast (docs/calibration.md).
    """
    far = _TABLES_APART.value if any(tuning.network_us(cluster)) else _NEARLY_EQUAL.value
    seen = size_bytes is None or size_bytes >= _RING_BYTES.value
    also = {"ring"} if seen and domains(cluster) == 2 and domain_hosts(cluster) == 1 else set()
    if domain_hosts(cluster) > 1 and domains(cluster) > 1:
        also.add("tree")
    if rccl.is_used(cluster) and domains(cluster) > 1 and size_bytes and size_bytes <= rccl.TREE_UP_TO_BYTES.value:
        also.add("tree")
    return [one for middle, one in ranked if best <= far * middle or one.name in also]


def _choices(cluster: Cluster, usable: tuple[Algorithm, ...], size_bytes: int | None) -> tuple[Algorithm, ...]:
    """What NCCL chooses from: inside one domain no tree for large sizes, as it plans that with a share of the ring's.

    Where the ring's way over sockets is the narrowest link a tree could be faster, but is not taken.
    """
    large = size_bytes is None or size_bytes >= _LARGE_BYTES.value
    ring = any(one.name == "ring" for one in usable)
    skipped = "tree" if ring and large and domains(cluster) == 1 else ""
    return tuple(one for one in usable if one.name != skipped)


def _middle(cluster: Cluster, collective: str, one: Algorithm, size_bytes: int | None, protocol: str) -> float:
    """What to rank algorithms by: the middle of the band at that size, 0 where there is no band."""
    middle = one.algbw_bytes_per_s.middle
    if middle is None:
        return 0.0
    if size_bytes is None:
        return math.fsum(latency.large_band(cluster, collective, one.name, middle, middle, protocol)) / 2
    return size_bytes / latency.time_s(cluster, collective, one.name, size_bytes, middle, protocol)
