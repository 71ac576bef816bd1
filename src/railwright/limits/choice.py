"""The algorithms that NCCL may take at a size, and the band of each.

Near a size where NCCL changes its algorithm, each has a band of its own. A value in any of them, or between two, is
healthy; the band that it lies in tells the algorithm that NCCL took.
"""

from __future__ import annotations

import math

from railwright.limits import latency, nccl_channels, rccl, tuning
from railwright.limits.limit import AlgorithmBand, Constant, Expected, Quantity
from railwright.limits.rates import Algorithm, Rate
from railwright.limits.sources import NCCL_LATENCY, NCCL_TOPO, NCCL_TUNING, OFI_LATENCY, RING_SEEN
from railwright.limits.traffic import domain_hosts, domains, find_protocol
from railwright.topology.cluster import Cluster

_NEARLY_EQUAL_FACTOR = Constant(1.1, "times as fast, up to which NCCL's choice is not clear", NCCL_LATENCY)
_LARGE_BYTES = Constant(64 * 2**20, "bytes, from which NCCL takes no tree in one domain", NCCL_LATENCY)
_ALIKE_FACTOR = Constant(1.05, "times, the maximum difference at one end between bands that count as one", NCCL_LATENCY)
_RING_BYTES = Constant(32 * 2**20, "bytes, from which the ring was seen on two hosts", RING_SEEN)
_PLUGIN_FACTOR = Constant(
    1.6, "times as fast, up to which a plugin with its own tables may choose another", OFI_LATENCY
)


def find_best(found: tuple[Algorithm, ...]) -> Algorithm:
    """Return the algorithm with the highest limit, from those in NCCL if there are any."""
    return max(_select_usable(found), key=lambda algorithm: algorithm.algbw_bytes_per_s.limit)


def build_band(rate: Rate, likely: Algorithm, quantity: Quantity = "bandwidth_bytes_per_s") -> Expected | None:
    """Return the band of a rate or a time over the algorithms that NCCL may take; None if no band is known."""
    if rate.expected_low is None:
        return None
    names = [way.algorithm for way in rate.ways] or [likely.name]
    because = f"NCCL's {' or '.join(names)} at its rate on each link, and its latency"
    return Expected(
        quantity=quantity,
        low=rate.expected_low,
        high=rate.expected_high,
        ways=rate.ways,
        because=because,
        sources=(NCCL_TOPO, NCCL_TUNING),
    )


def choose_at_size(
    cluster: Cluster, collective: str, found: tuple[Algorithm, ...], size_bytes: int | None, protocol: str = ""
) -> tuple[Algorithm, Rate, Rate | None]:
    """Return (the algorithm that is likely the fastest, its algbw, its time) at a size, or for large sizes if it is
    None.

    All use `protocol`, else the cluster's only protocol, else the protocol that is fastest with each algorithm. The
    limit has no latency: no size can be faster than its bytes allow.
    """
    protocol = protocol or find_protocol(cluster)
    limit = find_best(found).algbw_bytes_per_s.limit
    ranked = [
        (_middle_rate(cluster, collective, choice, size_bytes, protocol), choice)
        for choice in _list_choices(cluster, _select_usable(found), size_bytes)
    ]
    best, likely = max(ranked, key=lambda pair: pair[0])
    ways = []
    for choice in _find_candidates(cluster, ranked, best, size_bytes):
        band = _find_band(cluster, collective, choice, size_bytes, protocol)
        if band is not None:
            ways.append(AlgorithmBand(algorithm=choice.name, low=band[0], high=min(band[1], limit)))
    rate = Rate(limit=limit)
    if ways:
        low, high = min(way.low for way in ways), max(way.high for way in ways)
        differ = any(max(way.low / low, high / way.high) > _ALIKE_FACTOR.value for way in ways)
        rate = Rate(limit=limit, expected_low=low, expected_high=high, ways=tuple(ways) if differ else ())
    return likely, rate, None if size_bytes is None else rate.to_time(size_bytes)


def compute_large_rate(cluster: Cluster, collective: str, algorithm: Algorithm) -> Rate:
    """Return the expected algbw of an algorithm by the cluster's protocol at sizes where bytes alone decide."""
    low, high = _find_band(cluster, collective, algorithm, None, find_protocol(cluster)) or (None, None)
    return Rate(limit=algorithm.algbw_bytes_per_s.limit, expected_low=low, expected_high=high)


def _select_usable(found: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    return tuple(algorithm for algorithm in found if algorithm.in_nccl) or found


def _find_band(
    cluster: Cluster, collective: str, algorithm: Algorithm, size_bytes: int | None, protocol: str
) -> tuple[float, float] | None:
    """Return (low, high) algbw of an algorithm at a size, in bytes/s; None if it has no band."""
    low, high = algorithm.algbw_bytes_per_s.expected_low, algorithm.algbw_bytes_per_s.expected_high
    if low is None or high is None:
        return None
    if collective == "send_recv":
        near = nccl_channels.near_ports_bytes_per_s(cluster)
        low, high = min(low, near * low / high), min(high, near)
    if size_bytes is None:
        return latency.large_band(cluster, collective, algorithm.name, low, high, protocol)
    if collective == "send_recv":
        channels_low, channels_high = nccl_channels.band_bytes_per_s(cluster, size_bytes)
        low, high = min(low, channels_low), min(high, channels_high)
    shortest, longest = latency.band_s(cluster, collective, algorithm.name, size_bytes, low, high, protocol)
    return size_bytes / longest, size_bytes / shortest


def _find_candidates(
    cluster: Cluster, ranked: list[tuple[float, Algorithm]], best: float, size_bytes: int | None
) -> list[Algorithm]:
    """Return the algorithms that NCCL may take there: several near the point where it changes from one to another.

    On two hosts the ring was seen where the tree would be faster, and EFA's plugin chooses by tables of its own. Over
    racks some run at exactly NCCL's cap on trees, where NVLSTree would be twice as fast (docs/calibration.md).
    """
    far = _PLUGIN_FACTOR.value if any(tuning.network_us(cluster)) else _NEARLY_EQUAL_FACTOR.value
    seen = size_bytes is None or size_bytes >= _RING_BYTES.value
    also = {"ring"} if seen and domains(cluster) == 2 and domain_hosts(cluster) == 1 else set()
    if domain_hosts(cluster) > 1 and domains(cluster) > 1:
        also.add("tree")
    if rccl.is_used(cluster) and domains(cluster) > 1 and size_bytes and size_bytes <= rccl.TREE_UP_TO_BYTES.value:
        also.add("tree")
    return [choice for middle, choice in ranked if best <= far * middle or choice.name in also]


def _list_choices(cluster: Cluster, usable: tuple[Algorithm, ...], size_bytes: int | None) -> tuple[Algorithm, ...]:
    """Return the algorithms that NCCL chooses from.

    Inside one domain it takes no tree for large sizes, because it plans a tree with a share of the ring's rate. A tree
    could be faster if the ring's narrowest link is between sockets, but NCCL does not take it.
    """
    large = size_bytes is None or size_bytes >= _LARGE_BYTES.value
    ring = any(algorithm.name == "ring" for algorithm in usable)
    skipped = "tree" if ring and large and domains(cluster) == 1 else ""
    return tuple(algorithm for algorithm in usable if algorithm.name != skipped)


def _middle_rate(
    cluster: Cluster, collective: str, algorithm: Algorithm, size_bytes: int | None, protocol: str
) -> float:
    """Return the middle of an algorithm's band at a size, by which algorithms are ranked; 0 without a band."""
    middle = algorithm.algbw_bytes_per_s.middle
    if middle is None:
        return 0.0
    if size_bytes is None:
        return math.fsum(latency.large_band(cluster, collective, algorithm.name, middle, middle, protocol)) / 2
    return size_bytes / latency.time_s(cluster, collective, algorithm.name, size_bytes, middle, protocol)
