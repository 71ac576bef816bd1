"""The time of a small collective by algorithm and protocol: t = latency + S / bandwidth.

Latencies and bandwidths of protocols are NCCL's own (`tuning`); the minimum over the protocols is used. The launch
overhead of an operation and the spread of the model were measured inside one host and are estimates over hosts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.limits import rccl, tuning
from railwright.limits.limit import Constant
from railwright.limits.sources import (
    A100_SMALL,
    HOST_SMALL_MEASURED,
    NCCL_BUFFSIZE,
    NCCL_LATENCY,
    NCCL_TUNING,
    PCIE_RAMP_MEASURED,
    RAMP_MEASURED,
)
from railwright.limits.traffic import domain_hosts, domains
from railwright.topology.cluster import Cluster

US = 1e-6
WITH_PROTOCOLS = ("ring", "tree", "nvls", "nvlstree")
_PIPELINED = ("broadcast", "reduce")
"""The collectives whose data passes a ring once, chunk by chunk, so that the last rank waits for the first chunk."""
_PEER_US = Constant(14.0, "us for one message between a pair over the network", NCCL_TUNING)
_START_US = Constant(8.4, "us, start of a kernel with Simple", NCCL_TUNING)
_MAX_PEERS_IN_FLIGHT = Constant(8, "pairs in flight per rank", NCCL_LATENCY)
_CHUNK_BYTES = Constant(4 * 1024 * 1024 / 8, "bytes of a step: NCCL_BUFFSIZE / 8 steps", NCCL_BUFFSIZE)
_LAUNCH_US = Constant(12.0, "us from one operation's start to the next, besides its latency", HOST_SMALL_MEASURED)
_MODEL_SHARE = Constant(0.35, "of NCCL's latency, in one host", HOST_SMALL_MEASURED)
_OLDER_SHARE = Constant(0.7, "of NCCL's latency, in one host of Ampere or older", A100_SMALL)
_RAMP = Constant(0.036, "of the bandwidth, the maximum loss per halving below 8 GiB", RAMP_MEASURED)
_RAMP_PCIE = Constant(0.01, "of the bandwidth, the maximum loss per halving, PCIe alone", PCIE_RAMP_MEASURED)
_RAMP_FROM_BYTES = Constant(8 * 2**30, "bytes", RAMP_MEASURED)
_MAX_HALVINGS = Constant(10, "halvings, the maximum that is counted", RAMP_MEASURED)
_SPREAD_INSIDE = (
    Constant(1.35, "times shorter, in one host", HOST_SMALL_MEASURED),
    Constant(2.1, "times longer, in one host", HOST_SMALL_MEASURED),
)
# Clocks, cables and the proxy thread add to NCCL's figures more often than they take away.
_SPREAD_BETWEEN = (Constant(1.35, "times shorter", NCCL_LATENCY), Constant(2.1, "times longer", NCCL_LATENCY))
_SPREAD_OF_PLUGIN = Constant(1.15, "times, shorter or longer, if network and plugin bound the latency", NCCL_LATENCY)


class _BandEnd(NamedTuple):
    """An end of the band or its middle: latencies times `times`, and NCCL's caps as in `tuning.algbw`."""

    times: float = 1.0
    plugin_us: float = 0.0
    passed: int = 0


def time_s(
    cluster: Cluster, collective: str, algorithm: str, size_bytes: float, algbw_bytes_per_s: float, protocol: str = ""
) -> float:
    """Return the seconds of an operation of a size, by `protocol` or the fastest one, when large operations run at
    `algbw_bytes_per_s`.
    """
    real, announced = tuning.network_us(cluster)
    middle = _BandEnd(plugin_us=math.sqrt(real * announced))
    return _time_s(cluster, collective, algorithm, size_bytes, algbw_bytes_per_s, protocol, middle)


def band_s(
    cluster: Cluster,
    collective: str,
    algorithm: str,
    size_bytes: float,
    slow: float,
    fast: float,
    protocol: str = "",
) -> tuple[float, float]:
    """Return the expected (shortest, longest) seconds, between the algbw `slow` and `fast` of large sizes, in bytes/s.

    Bandwidth is reached slowly: healthy machines still gain a little with each doubling up to 8 GiB. The errors of
    latency and bandwidth are independent, so the distance of each end from the middle is the root of the sum of their
    squares, not their sum. On EFA it is the sum, because it is unknown which of two latencies counts there.
    """
    halvings = min(max(math.log2(_RAMP_FROM_BYTES.value / size_bytes), 0.0), _MAX_HALVINGS.value)
    over_pcie = cluster.hosts == 1 and not cluster.host.joins_gpus
    slow *= 1 - (_RAMP_PCIE if over_pcie else _RAMP).value * halvings
    real, announced = tuning.network_us(cluster)
    shorter, longer = (spread.value for spread in (_SPREAD_BETWEEN if cluster.hosts > 1 else _SPREAD_INSIDE))
    if cluster.hosts > 1 and rccl.is_used(cluster):
        shorter, longer = 1 / rccl.LONGER[0].value, rccl.LONGER[1].value
    if announced:
        shorter = longer = _SPREAD_OF_PLUGIN.value

    def seconds(rate: float, end: _BandEnd) -> float:
        return _time_s(cluster, collective, algorithm, size_bytes, rate, protocol, end)

    shortest, longest = seconds(fast, _BandEnd(1 / shorter, real, 1)), seconds(slow, _BandEnd(longer, announced, -1))
    if not protocol and "LL" in tuning.protocols(cluster, algorithm) and tuning.may_be_ll(cluster, size_bytes):
        end = _BandEnd(longer, announced, -1)
        longest = max(longest, _time_s(cluster, collective, algorithm, size_bytes, slow, "LL", end))
    if announced:
        return shortest, longest
    usual = math.sqrt(fast * slow)
    middle = seconds(usual, _BandEnd())
    sooner = math.hypot(middle - seconds(fast, _BandEnd(passed=1)), middle - seconds(usual, _BandEnd(1 / shorter)))
    later = math.hypot(seconds(slow, _BandEnd(passed=-1)) - middle, seconds(usual, _BandEnd(longer)) - middle)
    return max(shortest, middle - sooner), min(longest, middle + later)


def large_band(
    cluster: Cluster, collective: str, algorithm: str, slow: float, fast: float, protocol: str
) -> tuple[float, float]:
    """Return (low, high) algbw of large sizes by one protocol, for links that carry `slow` to `fast`, in bytes/s."""
    if not protocol or algorithm not in WITH_PROTOCOLS:
        return slow, fast
    low, high = (
        tuning.algbw(cluster, collective, algorithm, protocol, _RAMP_FROM_BYTES.value, rate, passed)
        for rate, passed in ((slow, -1), (fast, 1))
    )
    return low, high


def latency_s(cluster: Cluster, collective: str, algorithm: str, protocol: str, size_bytes: float = 1) -> float:
    """Return NCCL's latency of an operation without its bytes, in seconds."""
    _, announced = tuning.network_us(cluster)
    return tuning.latency_us(cluster, collective, algorithm, protocol, size_bytes, announced) * US


def _time_s(
    cluster: Cluster, collective: str, algorithm: str, size_bytes: float, large: float, protocol: str, end: _BandEnd
) -> float:
    if algorithm not in WITH_PROTOCOLS:
        # Filling depends on the rate alone, so the spread of the latency does not apply to it.
        filling = _filling_s(cluster, collective, size_bytes, large)
        return end.times * _direct_latency_s(cluster, collective) + filling + size_bytes / large
    share = 1.0 if cluster.hosts > 1 or algorithm == "nvls" else _model_share(cluster)  # measured for rings only
    times: list[tuple[float, str]] = []
    for name in tuning.protocols(cluster, algorithm):
        if protocol not in ("", name):
            continue
        steps_us = tuning.latency_us(cluster, collective, algorithm, name, size_bytes, end.plugin_us)
        rate = tuning.algbw(cluster, collective, algorithm, name, size_bytes, large, end.passed)
        times.append((end.times * (_LAUNCH_US.value + share * steps_us) * US + size_bytes / rate, name))
    # NCCL's choice ignores the filling.
    time, chosen = min(times)
    is_filled = chosen == "Simple" and algorithm == "ring" and collective in _PIPELINED
    return time + (_pipeline_filling_s(cluster, size_bytes, large, end) if is_filled else 0.0)


def _pipeline_filling_s(cluster: Cluster, size_bytes: float, algbw_bytes_per_s: float, end: _BandEnd) -> float:
    """Return the time until the last rank of a ring has the first chunk: each hop passes a whole chunk of every channel
    with Simple; LL and LL128 pass on each line.

    The fast end counts only the hops between domains, because NVLink may be far faster. Inside one domain DGX-2 shows
    no such time.
    """
    count = domains(cluster)
    if count == 1:
        return 0.0
    hops = count - 1 if end.passed > 0 else cluster.ranks - 1
    in_flight = min(tuning.channels(cluster) * _CHUNK_BYTES.value, size_bytes)
    return hops * in_flight / algbw_bytes_per_s


def _model_share(cluster: Cluster) -> float:
    """Return the share of NCCL's latency that one host needs. NVIDIA measured NCCL's own figures on older GPUs."""
    is_older = not rccl.is_used(cluster) and tuning.is_ampere_or_older(cluster.host) and cluster.host.joins_gpus
    return (_OLDER_SHARE if is_older else _MODEL_SHARE).value


def _direct_latency_s(cluster: Cluster, collective: str) -> float:
    """Return the start of the kernel plus a message for each remote peer, several of them in flight."""
    one_host = cluster.hosts == 1
    steps = (
        0.0 if one_host else math.ceil(_count_peers(cluster, collective) / _MAX_PEERS_IN_FLIGHT.value) * _PEER_US.value
    )
    start = _START_US.value * (_model_share(cluster) if one_host else 1.0)
    return (_LAUNCH_US.value + start + steps) * US


def _filling_s(cluster: Cluster, collective: str, size_bytes: float, algbw_bytes_per_s: float) -> float:
    """Return the time to fill and drain the buffers between GPU and NIC: a chunk of every peer in flight, at the full
    rate.

    NVLink has no such time: inside one domain all peers of a rank have channels at once, so no peer adds time.
    """
    if domains(cluster) == 1:
        return 0.0
    at_once = min(_count_peers(cluster, collective), _MAX_PEERS_IN_FLIGHT.value)
    message = size_bytes if collective == "send_recv" else size_bytes / cluster.ranks
    return 2 * at_once * min(message, _CHUNK_BYTES.value) / algbw_bytes_per_s


def _count_peers(cluster: Cluster, collective: str) -> int:
    """Return the number of peers that a rank sends to over the network, or at all inside one host."""
    return 1 if collective == "send_recv" else cluster.ranks - cluster.gpus_per_host * domain_hosts(cluster)
