"""How long a collective of few bytes takes: t = latency + S / bandwidth, by algorithm and protocol.

Latencies and factors are those of NCCL's own tuning model (src/graph/tuning.cc), by which it chooses; the least time
over its protocols counts. Small messages depend on what the model does not know (clocks, the proxy thread, cables),
so the band around it is wide, and it closes as the size grows.
"""

from __future__ import annotations

import math

from railwright.limits.limit import Constant
from railwright.limits.sources import LAUNCH_MEASURED, NCCL_BUFFSIZE, NCCL_SMALL, NCCL_TUNING, RAMP_MEASURED
from railwright.limits.traffic import domain_hosts, domains
from railwright.topology.cluster import Cluster

US = 1e-6
_LATENCY_US: dict[tuple[str, str, str], Constant] = {
    (algorithm, medium, protocol): Constant(us, "us", NCCL_TUNING)
    for algorithm, medium, times in (
        ("tree", "base", {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}),
        ("ring", "base", {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}),
        ("tree", "NVLink", {"LL": 0.6, "LL128": 1.25, "Simple": 4.0}),
        ("ring", "NVLink", {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}),
        ("nvls", "NVLink", {"Simple": 25}),
        ("nvlstree", "NVLink", {"Simple": 25}),
        ("tree", "PCIe", {"LL": 1.0, "LL128": 1.9, "Simple": 4.0}),
        ("ring", "PCIe", {"LL": 1.0, "LL128": 2.5, "Simple": 5.7}),
        ("tree", "network", {"LL": 5.0, "LL128": 8.5, "Simple": 14}),
        ("ring", "network", {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}),
        ("nvlstree", "network", {"Simple": 20.9}),
    )
    for protocol, us in times.items()
}
# protocol -> share of the algorithm's bandwidth
_SHARE: dict[tuple[str, str], Constant] = {
    ("ring", "LL"): Constant(0.5, "of the bandwidth", NCCL_TUNING),
    ("ring", "LL128"): Constant(0.92, "of the bandwidth", NCCL_TUNING),
    ("tree", "LL"): Constant(1 / 3.8, "of the bandwidth", NCCL_TUNING),
    ("tree", "LL128"): Constant(120 / 128, "of the bandwidth", NCCL_TUNING),
}
# algorithm -> its protocols, each with its share of the algorithm's bandwidth
_PROTOCOLS: dict[str, tuple[tuple[str, float], ...]] = {
    algorithm: tuple(
        (protocol, _SHARE[(name, protocol)].value if (name, protocol) in _SHARE else 1.0)
        for name, medium, protocol in _LATENCY_US
        if (name, medium) == (algorithm, "NVLink")
    )
    for algorithm in ("ring", "tree", "nvls", "nvlstree")
}
_MANY_HOSTS_RING = Constant(1.4, "times, Ring and Simple over hosts", NCCL_TUNING)
_PEER_US = Constant(14.0, "us for one message of a pair over the network", NCCL_TUNING)
_PEERS_AT_ONCE = Constant(8, "pairs of a rank in flight", NCCL_SMALL)
_CHUNK_BYTES = Constant(4 * 1024 * 1024 / 8, "bytes of a step: NCCL_BUFFSIZE / 8 steps", NCCL_BUFFSIZE)
_LAUNCH_US = Constant(8.0, "us from one operation's start to the next's, besides", LAUNCH_MEASURED)
_RAMP = Constant(0.04, "of the bandwidth lost at most for each halving below 8 GiB", RAMP_MEASURED)
_RAMP_FROM_BYTES = Constant(8 * 2**30, "bytes", RAMP_MEASURED)
_MOST_HALVINGS = Constant(10, "halvings that are counted", RAMP_MEASURED)
_SPREAD = Constant(2.5, "times shorter or longer", NCCL_SMALL)


def time_s(
    cluster: Cluster, collective: str, algorithm: str, size_bytes: float, algbw_bytes_per_s: float, protocol: str = ""
) -> float:
    """Seconds for one operation of that size when large ones run at `algbw_bytes_per_s`; by the fastest protocol, or by
    the one that is named.
    """
    if algorithm not in _PROTOCOLS:
        return _direct_latency_s(cluster, collective, size_bytes, algbw_bytes_per_s) + size_bytes / algbw_bytes_per_s
    times = [
        _LAUNCH_US.value * US
        + latency_s(cluster, collective, algorithm, name)
        + size_bytes / (algbw_bytes_per_s * share)
        for name, share in _PROTOCOLS[algorithm]
        if protocol in ("", name)
    ]
    return min(times)


def band_s(
    cluster: Cluster,
    collective: str,
    algorithm: str,
    size_bytes: float,
    slow: float,
    fast: float,
    protocol: str = "",
) -> tuple[float, float]:
    """(shortest, longest) seconds to expect, between the algbw `slow` and `fast` of large sizes, in bytes/s.

    Bandwidth is reached slowly: healthy machines still gain a little with each doubling up to 8 GiB.
    """
    halvings = min(max(math.log2(_RAMP_FROM_BYTES.value / size_bytes), 0.0), _MOST_HALVINGS.value)
    slow *= 1 - _RAMP.value * halvings
    times = [time_s(cluster, collective, algorithm, size_bytes, rate, protocol) for rate in (fast, slow)]
    fast_latency, slow_latency = (time - size_bytes / rate for time, rate in zip(times, (fast, slow), strict=True))
    return times[0] - fast_latency * (1 - 1 / _SPREAD.value), times[1] + slow_latency * (_SPREAD.value - 1)


def latency_s(cluster: Cluster, collective: str, algorithm: str, protocol: str) -> float:
    """NCCL's latency of one operation without its bytes, in seconds."""
    count, ranks = domains(cluster), cluster.ranks
    gpus = cluster.gpus_per_host * domain_hosts(cluster)
    inside = _LATENCY_US[(algorithm, _medium(cluster, algorithm), protocol)].value
    outside, start = (_latency_us(algorithm, medium, protocol) for medium in ("network", "base"))
    if algorithm == "ring":
        rounds = 2 if collective == "all_reduce" else 1
        between = rounds * (count - 1)
        steps = rounds * (ranks - 1) - between
        factor = _MANY_HOSTS_RING.value if protocol == "Simple" and count > 1 and collective == "all_reduce" else 1.0
        return (start + factor * (steps * inside + between * outside)) * US
    levels = math.ceil(math.log2(count)) if count > 1 else 0
    if algorithm == "tree":
        return (start + 2 * ((gpus - 1) * inside + levels * outside)) * US
    return (start + inside + 2 * levels * outside) * US


def _latency_us(algorithm: str, medium: str, protocol: str) -> float:
    """0 if NCCL's model has no such latency."""
    found = _LATENCY_US.get((algorithm, medium, protocol))
    return found.value if found else 0.0


def _medium(cluster: Cluster, algorithm: str) -> str:
    return "NVLink" if cluster.host.joins_gpus or algorithm in ("nvls", "nvlstree") else "PCIe"


def _direct_latency_s(cluster: Cluster, collective: str, size_bytes: float, algbw_bytes_per_s: float) -> float:
    """Start of the kernel, then one message for each remote peer, several of them in flight, and the time to fill and
    to drain the buffers between GPU and NIC: a chunk of every peer in flight, at the rate of the whole.
    """
    start = _LATENCY_US[("ring", "base", "Simple")].value
    peers = 1 if collective == "send_recv" else cluster.ranks - cluster.gpus_per_host * domain_hosts(cluster)
    at_once = min(peers, _PEERS_AT_ONCE.value)
    message = size_bytes if collective == "send_recv" else size_bytes / cluster.ranks
    filling = 2 * at_once * min(message, _CHUNK_BYTES.value) / algbw_bytes_per_s
    return (_LAUNCH_US.value + start + math.ceil(peers / _PEERS_AT_ONCE.value) * _PEER_US.value) * US + filling
