"""Copies between two GPUs of a host that may not access each other's memory: the driver copies through the host's."""

from __future__ import annotations

from railwright.expected.bands import extend_doubt
from railwright.expected.gpu_copies import BOTH_WAYS_MIN_SHARE
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Constant, Limit, NoLimit, bandwidth_band, no_bandwidth
from railwright.limits.path import limit_host_path
from railwright.limits.sources import NO_P2P_MEASURED, NVBANDWIDTH_H200
from railwright.topology.devices import NvlinkLink

_COPY_SHARE = Constant(0.9, "of a GPU's link, by a copy engine to or from host memory", NVBANDWIDTH_H200)
_IN_TURN_SHARE = Constant(0.5, "of a copy's rate, if its two halves take turns", NO_P2P_MEASURED)
_DOUBTFUL_SHARE = 0.5
"""The share of the band's low end down to which such copies are doubtful: their buffer may lie on another socket."""
_WHY_DOUBTFUL = "the driver chooses the buffer's socket and size"


def joins_gpus(machine: Machine, path: str) -> bool:
    """Report whether a path `source>target` is between two GPUs of a host."""
    source, _, target = path.partition(">")
    return source != target and machine.gpu(source) is not None and machine.gpu(target) is not None


def is_staged(machine: Machine, path: str) -> bool:
    """Report whether a path is between two GPUs of a host in which none may access another's memory."""
    refused = any(host.facts.get("peer_to_peer") is False for host in machine.host.of_kind("host"))
    return refused and joins_gpus(machine, path)


def lacks_peers(machine: Machine, path: str) -> bool:
    """Report whether `source>target` are NVIDIA GPUs whose NVLinks meet only in a third GPU.

    NCCL passes data on there; CUDA gives such GPUs no access to each other, so its copies go through the host.
    """
    way = machine.find_path(path) if joins_gpus(machine, path) else None
    return way is not None and way.kind == "NVB" and any(isinstance(link.protocol, NvlinkLink) for link in way.links)


def expect_staged(machine: Machine, path: str, *, both_ways: bool = False) -> Bounds:
    """Return the limit and band of a copy of `source>target` through host memory.

    Its halves take turns or overlap, as the driver chooses. In both directions at once each loses what copies between a
    GPU and memory lose, and no value is too low for certain.
    """
    limit = _limit_staged(machine, path)
    if isinstance(limit, NoLimit):
        return limit, None
    high = _COPY_SHARE.value * limit.value * (BOTH_WAYS_MIN_SHARE.value if both_ways else 1)
    low = _IN_TURN_SHARE.value * high
    because = "the two halves of a copy through host memory take turns or overlap"
    band = bandwidth_band(low, high, because, _IN_TURN_SHARE.source, _COPY_SHARE.source)
    return limit, extend_doubt(band, 0.0 if both_ways else _DOUBTFUL_SHARE * low, _WHY_DOUBTFUL)


def _limit_staged(machine: Machine, path: str) -> Limit | NoLimit:
    """Return the limit by the narrower half of a copy, through the memory where that is widest."""
    source, _, target = path.partition(">")
    found = []
    for memory in machine.host.of_kind("memory"):
        halves = [machine.find_path(half) for half in (f"{source}>{memory.id}", f"{memory.id}>{target}")]
        limits = [limit_host_path(machine.host, half) for half in halves if half is not None]
        known = [limit for limit in limits if isinstance(limit, Limit)]
        if len(known) == len(halves):
            found.append(min(known, key=lambda limit: limit.value))
    if not found:
        return no_bandwidth(f"no document gives the rate of {source} and {target} to host memory")
    return max(found, key=lambda limit: limit.value)
