"""The limit of a path between two machines of a cluster: out over the sender's nearest NIC, in over the receiver's.

Where several NICs are equally near on both sides, a library can use them all at once: that is a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.limits.model import Limit
from railwright.limits.path import limit_inside, link_limit
from railwright.limits.table import PathLimit
from railwright.topology.cluster import Cluster, split_id
from railwright.topology.model import Link, Path, Topology
from railwright.topology.paths import KIND_ORDER, Graph


def cluster_path_limits(cluster: Cluster, text: str) -> tuple[PathLimit, ...]:
    """The limit of `gpu0:gpu0@2`, and of the same over all NICs that are equally near. Raises UsageError."""
    one, colon, other = text.partition(":")
    if not colon or not one or not other:
        raise UsageError(f"not a path: {text[:80]!r}", hint="write two devices, like gpu0:gpu0@2")
    if cluster.hosts == 1 and any(end.partition("@")[2].strip() not in ("", "0") for end in (one, other)):
        reason = f"{text[:80]!r} names a host by its number, and there is one host only"
        raise UsageError(reason, hint="give --count 2 or more, or leave the @ out")
    (source, here), (target, there) = split_id(one.strip(), cluster), split_id(other.strip(), cluster)
    topology = two_hosts(cluster, here, there)
    ends = [name if topology.device(name) else f"{name}@{number}" for name, number in ((source, here), (target, there))]
    if ends[0] == ends[1]:
        raise UsageError(f"both ends of {text[:80]!r} are {ends[0]}", hint="write two devices, like gpu0:gpu0@2")
    graph = Graph(topology)
    found = graph.find(ends[0], ends[1])
    if found is None:
        raise UsageError(f"{one} and {other} are not connected in {cluster.name}", hint="see railwright topo")
    limit, expected = limit_inside(cluster.host, found)
    rows = [PathLimit(path=found.id, kind=found.kind, devices=found.devices, limit=limit, expected=expected)]
    count = min(_equally_near(graph, found, source_side=True), _equally_near(graph, found, source_side=False))
    if found.kind == "NET" and count > 1 and isinstance(limit, Limit):
        rows.append(_over_all(found, limit, count))
    return tuple(rows)


def two_hosts(cluster: Cluster, here: int, there: int) -> Topology:
    """Both machines with `@host` after each id, and the switches between them."""
    hosts = (here,) if here == there else (here, there)
    devices = [
        replace(device, id=f"{device.id}@{number}")
        for number in hosts
        for device in cluster.host.devices
        if device.kind != "fabric"
    ]
    fabrics = {device.id: device for device in cluster.host.of_kind("fabric")}
    links: list[Link] = []
    for number in hosts:
        for link in cluster.host.links:
            ends = [end if end in fabrics else f"{end}@{number}" for end in (link.a, link.b)]
            links.append(replace(link, a=ends[0], b=ends[1]))
    return Topology(
        name=cluster.name, source=cluster.host.source, devices=(*devices, *fabrics.values()), links=tuple(links)
    )


def _equally_near(graph: Graph, path: Path, *, source_side: bool) -> int:
    """How many NICs of that end's machine are as near to the device as the one that the path takes."""
    end = path.devices[0 if source_side else -1]
    suffix = "@" + end.partition("@")[2]
    kinds = []
    for device in graph.topology.of_kind("nic"):
        if device.id.endswith(suffix):
            way = graph.find(device.id, end)
            if way is not None:
                kinds.append(KIND_ORDER.index(way.kind))
    return kinds.count(min(kinds)) if kinds else 0


def _over_all(path: Path, single: Limit, count: int) -> PathLimit:
    """Links of a NIC count as often as there are NICs, the links of the ends once."""
    nics = {device for device in path.devices if device.startswith("nic")}
    best: Limit | None = None
    for link, times in _links(path, nics, count):
        limit, _ = link_limit(link)
        if isinstance(limit, Limit):
            value = limit.value * times
            if best is None or value < best.value:
                because = limit.because if times == 1 else f"{times} of: {limit.because}"
                best = replace(limit, value=value, because=because)
    name = f"{path.id} over {count} NICs"
    return PathLimit(path=name, kind=path.kind, devices=path.devices, limit=best or single)


def _links(path: Path, nics: set[str], count: int) -> Iterator[tuple[Link, int]]:
    for link in path.links:
        yield link, count if nics & {link.a, link.b} else 1
