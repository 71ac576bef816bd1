"""Limits of tools that measure one plain thing: TCP between two hosts, and memory."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.parts import with_links
from railwright.errors import UsageError
from railwright.faults.tcp_fallback import over_tcp
from railwright.limits.cluster_path import cluster_path_limit
from railwright.limits.gpu import memory_limit
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.memory import limit as channels_limit
from railwright.results.bounds import no_limit
from railwright.results.readers.subject import Subject
from railwright.results.records import Result
from railwright.topology.cluster import Cluster
from railwright.topology.devices import MemoryLink

_OF_TCP = 0.9
"""What several flows leave of a port: 9.4 of 10 Gb/s, 94 of 100 (ESnet, fasterdata, iperf3 at 100 Gb/s)."""
_ONE_FLOW = 0.9e9
"""Bytes/s that one flow reaches with frames of 1500 bytes and without tuning: 7.24 of 10 Gb/s (wiki of the Hyades
cluster, iperf3). Less than that is a slow core, or a fault."""
_OF_CHANNELS = 0.7
"""STREAM Triad with a thread for each core: 0.75 to 0.9 of the channels' rate in the vendors' own figures."""
_OF_HBM = 0.8
_HALF = 0.5


def sockets_bounds(result: Result, cluster: Cluster, path: str) -> Bounds:
    """TCP between two hosts: what a port leaves to it; what one flow needs is a core, which differs."""
    if result.quantity != "bandwidth_bytes_per_s":
        return no_limit(result, "only the bandwidth of messages has a limit here")
    if cluster.hosts < 2 and not path:
        return no_limit(result, "inside one host no limit is known; if it ran between two hosts, give --count 2")
    host = with_links(cluster.host, over_tcp)
    try:
        row = cluster_path_limit(replace(cluster, host=host), path or "memory0:memory0@1")
    except UsageError as error:
        return no_limit(result, error.message)
    limit = row.limit
    if not isinstance(limit, Limit):
        return limit, None
    return limit, tcp_band(limit)


def tcp_band(limit: Limit) -> Expected:
    """What one flow of TCP is expected to reach of a port. A fast port leaves it to the host's cores: doubtful."""
    low = _OF_TCP * limit.value
    because = "nine tenths of what TCP leaves of the port"
    least = min(low, _ONE_FLOW)
    return Expected(quantity=limit.quantity, low=low, doubtful_to=least, because=because, sources=limit.sources)


def memory_bounds(result: Result, subject: Subject, cluster: Cluster) -> Bounds:
    """All memory channels of a host, or the memory of a GPU."""
    if result.quantity != "bandwidth_bytes_per_s":
        return no_limit(result, "only the bandwidth of memory has a limit here")
    if subject.from_gpu:
        gpus = cluster.host.of_kind("gpu")
        limit = memory_limit(gpus[0]) if gpus else None
        if not isinstance(limit, Limit):
            return no_limit(result, "the machine given does not say what the memory of its GPU carries")
        return limit, _band(limit, _OF_HBM, _HALF)
    found = [channels_limit(link)[0] for link in cluster.host.links if isinstance(link.protocol, MemoryLink)]
    known = [one for one in found if isinstance(one, Limit)]
    if not known or len(known) < len(found):
        return next((one for one in found if isinstance(one, NoLimit)), no_limit(result, "no memory is known")[0]), None
    nodes = f"{len(known)} x " if len(known) > 1 else ""
    whole = replace(known[0], value=sum(one.value for one in known), because=f"{nodes}{known[0].because}")
    return whole, _band(whole, _OF_CHANNELS, 0.0)


def _band(limit: Limit, share: float, doubtful: float) -> Expected:
    because = f"{share:g} of the limit and more, as healthy ones reach"
    return Expected(
        quantity=limit.quantity,
        low=share * limit.value,
        doubtful_to=doubtful * limit.value,
        because=because,
        sources=limit.sources,
    )
