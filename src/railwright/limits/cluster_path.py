"""The limit of a path between two machines of a cluster: out over the sender's nearest NIC, in over the receiver's.

Where several NICs are equally near on both sides, a library can use them all at once: that is a row of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.limits.limit import Limit
from railwright.limits.path import limit_inside, link_limit
from railwright.limits.table import PathLimit
from railwright.topology.cluster import Cluster, split_id
from railwright.topology.devices import Device, Link, Path, Topology
from railwright.topology.paths import KIND_ORDER, Graph


def cluster_path_limit(cluster: Cluster, text: str) -> PathLimit:
    """The limit of `gpu0:gpu0@2`. Raises UsageError."""
    return _path_limit(cluster, _found(cluster, text)[1])


def cluster_path_limits(cluster: Cluster, text: str) -> tuple[PathLimit, ...]:
    """The limit of `gpu0:gpu0@2`, and of the same over all NICs that are equally near. Raises UsageError."""
    graph, found = _found(cluster, text)
    row = _path_limit(cluster, found)
    count = min(_equally_near(graph, end) for end in (found.devices[0], found.devices[-1]))
    if found.kind == "NET" and count > 1 and isinstance(row.limit, Limit):
        return row, _over_all(found, row.limit, count)
    return (row,)


def _path_limit(cluster: Cluster, found: Path) -> PathLimit:
    limit, expected = limit_inside(cluster.host, found)
    return PathLimit(path=found.id, kind=found.kind, devices=found.devices, limit=limit, expected=expected)


def _found(cluster: Cluster, text: str) -> tuple[Graph, Path]:
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
    return graph, found


def two_hosts(cluster: Cluster, here: int, there: int) -> Topology:
    """Both machines with `@host` after each id, and the switches between them."""
    host = cluster.host
    fabrics = host.of_kind("fabric")
    devices: list[Device] = []
    links: list[Link] = []
    for number in dict.fromkeys((here, there)):
        named = {device.id: f"{device.id}@{number}" for device in host.devices if device not in fabrics}
        devices += [replace(device, id=named[device.id]) for device in host.devices if device.id in named]
        links += [replace(link, a=named.get(link.a, link.a), b=named.get(link.b, link.b)) for link in host.links]
    return Topology(name=cluster.name, source=host.source, devices=(*devices, *fabrics), links=tuple(links))


def _equally_near(graph: Graph, end: str) -> int:
    """How many NICs of that device's machine are as near to it as the nearest."""
    machine = end.partition("@")[1:]
    ways = [graph.find(nic.id, end) for nic in graph.topology.of_kind("nic") if nic.id.partition("@")[1:] == machine]
    kinds = [KIND_ORDER.index(way.kind) for way in ways if way is not None]
    return kinds.count(min(kinds)) if kinds else 0


def _over_all(path: Path, single: Limit, count: int) -> PathLimit:
    """Links of a NIC count as often as there are NICs, the links of the ends once."""
    nics = {device for device in path.devices if device.startswith("nic")}
    found = []
    for link in path.links:
        limit, _ = link_limit(link)
        if isinstance(limit, Limit):
            times = count if nics & {link.a, link.b} else 1
            because = limit.because if times == 1 else f"{times} of: {limit.because}"
            found.append(replace(limit, value=limit.value * times, because=because))
    best = min(found, key=lambda one: one.value, default=single)
    return PathLimit(path=f"{path.id} over {count} NICs", kind=path.kind, devices=path.devices, limit=best)
