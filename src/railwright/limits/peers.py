"""The way of data between two GPUs of a host whose GPUs are joined directly, without NVSwitches.

NCCL takes the NVLink between them; else two NVLinks with one GPU in between (path NVB), unless NCCL_NVB_DISABLE is set;
else PCIe or host memory (src/graph/paths.cc `ncclTopoSetPaths`). It never passes through two GPUs, nor through several
at once. RCCL takes the link between them; else Infinity Fabric routes in hardware over the fewest links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.topology.devices import GPU_LINKS, Topology, XgmiLink

_RELAYS = "nvlink_relay"
"""Fact of a host: whether NCCL may pass data through a GPU between two NVLinks."""
_MAX_FABRIC_HOPS = 8


class PeerWay(NamedTuple):
    """A way between two GPUs over their own links, with the rate of its narrowest link in bytes/s."""

    hops: tuple[str, ...]
    """The resources of the flow graph, `link:gpu0>gpu1`."""
    bytes_per_s: float


Neighbours = Mapping[str, Mapping[str, tuple[str, float]]]


def disable_relay(host: Topology) -> Topology:
    """Return the machine as NCCL treats it with NCCL_NVB_DISABLE: no GPU passes data between two NVLinks."""
    devices = tuple(
        replace(device, facts={**device.facts, _RELAYS: False}) if device.kind == "host" else device
        for device in host.devices
    )
    return replace(host, devices=devices)


def find_peer_ways(host: Topology) -> dict[tuple[str, str], tuple[PeerWay, ...]]:
    """Return the ways between each two GPUs that their own links join: several if they are equally wide.

    Empty for a host with NVSwitches, which join any two of its GPUs.
    """
    if host.of_kind("nvswitch"):
        return {}
    neighbours = _find_neighbours(host)
    is_fabric = any(isinstance(link.protocol, XgmiLink) for link in host.links)
    relays = all(device.facts.get(_RELAYS) is not False for device in host.of_kind("host"))
    most = _MAX_FABRIC_HOPS if is_fabric else 2 if relays else 1
    gpus = [gpu.id for gpu in host.of_kind("gpu")]
    return {
        (source, target): found
        for source in gpus
        for target in gpus
        if source != target and (found := _find_widest(neighbours, source, target, most))
    }


def _find_neighbours(host: Topology) -> Neighbours:
    """Return the direct link from each GPU to each other, the widest if there are several."""
    gpus = {gpu.id for gpu in host.of_kind("gpu")}
    found: dict[str, dict[str, tuple[str, float]]] = {gpu: {} for gpu in gpus}
    for link in host.links:
        if not isinstance(link.protocol, GPU_LINKS) or not {link.a, link.b} <= gpus:
            continue
        limit = link_limit(link)
        rate = limit.value if isinstance(limit, Limit) else math.inf
        for tail, head in ((link.a, link.b),) if link.one_way else ((link.a, link.b), (link.b, link.a)):
            if head not in found[tail] or found[tail][head][1] < rate:
                found[tail][head] = (f"{link.id}:{tail}>{head}", rate)
    return found


def _find_widest(neighbours: Neighbours, source: str, target: str, most: int) -> tuple[PeerWay, ...]:
    """Return the widest of the ways with the fewest links, at most `most`."""
    for length in range(1, most + 1):
        ways = list(_list_ways(neighbours, source, target, length))
        widest = max((way.bytes_per_s for way in ways), default=0.0)
        if ways:
            return tuple(way for way in ways if way.bytes_per_s == widest)
    return ()


def _list_ways(neighbours: Neighbours, source: str, target: str, length: int) -> Iterator[PeerWay]:
    for head, (hop, rate) in neighbours[source].items():
        if length == 1 and head == target:
            yield PeerWay((hop,), rate)
        elif length > 1 and head != target:
            for rest in _list_ways(neighbours, head, target, length - 1):
                yield PeerWay((hop, *rest.hops), min(rate, rest.bytes_per_s))
