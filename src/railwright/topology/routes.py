"""Paths from texts: `gpu0>nic0` inside one host, `gpu0:gpu0@2` between two hosts of a cluster."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.topology.cluster import Cluster, split_id
from railwright.topology.devices import Device, Link, Path, Topology
from railwright.topology.paths import KIND_ORDER, Affinity, Graph


def find_host_path(graph: Graph, text: str) -> Path:
    """Return the path of `source>target`, without links if both are one GPU or one memory. Raises UsageError."""
    source, separator, target = text.partition(">")
    if not separator:
        hint = "write two device ids, like 'gpu0>nic0', and quote the >"
        raise UsageError(f"not a path: {text!r}", hint=hint)
    path = graph.find(source.strip(), target.strip())
    if path is None:
        reason = f"{source} and {target} are not connected in {graph.topology.name}"
        raise UsageError(reason, hint="see `railwright topo`")
    here = path.devices[0]
    if len(path.devices) == 1 and graph.devices[here].kind not in ("gpu", "memory"):
        reason = f"both ends of '{here}>{here}' are {here}, so the path crosses no link"
        raise UsageError(reason, hint="give two devices; only a GPU or a memory has a limit for copies inside it")
    return path


def find_network_path(cluster: Cluster, text: str) -> Path:
    """Return the path of `gpu0:gpu0@2`: out over the sender's nearest NIC, in over the receiver's. Raises
    UsageError.
    """
    first, colon, second = text.partition(":")
    if not colon or not first or not second:
        raise UsageError(f"not a path: {text[:80]!r}", hint="write two devices, like gpu0:gpu0@2")
    if cluster.hosts == 1 and any(end.partition("@")[2].strip() not in ("", "0") for end in (first, second)):
        reason = f"{text[:80]!r} names a host by its number, but there is only one host"
        raise UsageError(reason, hint="give --count 2 or more, or leave the @ out")
    (source, here), (target, there) = split_id(first.strip(), cluster), split_id(second.strip(), cluster)
    topology = _two_hosts(cluster, here, there)
    ends = [name if topology.device(name) else f"{name}@{number}" for name, number in ((source, here), (target, there))]
    if ends[0] == ends[1]:
        raise UsageError(f"both ends of {text[:80]!r} are {ends[0]}", hint="write two devices, like gpu0:gpu0@2")
    found = Graph(topology).find(ends[0], ends[1])
    if found is None:
        raise UsageError(f"{first} and {second} are not connected in {cluster.name}", hint="see railwright topo")
    return found


def _two_hosts(cluster: Cluster, here: int, there: int) -> Topology:
    """Return both machines with `@host` after each id, and the switches between them."""
    host = cluster.host
    fabrics = host.of_kind("fabric")
    devices: list[Device] = []
    links: list[Link] = []
    for number in dict.fromkeys((here, there)):
        named = {device.id: f"{device.id}@{number}" for device in host.devices if device not in fabrics}
        devices += [replace(device, id=named[device.id]) for device in host.devices if device.id in named]
        links += [replace(link, a=named.get(link.a, link.a), b=named.get(link.b, link.b)) for link in host.links]
    return Topology(name=cluster.name, source=host.source, devices=(*devices, *fabrics), links=tuple(links))


def count_nearest(graph: Graph, path: Path) -> int:
    """Return the number of equally near NICs at an end of a path; of both ends, the smaller number."""
    counts = []
    for device, at, _ in (end.partition("@") for end in (path.devices[0], path.devices[-1])):
        ways = [graph.find(nic.id, device) for nic in graph.topology.of_kind("nic") if at]
        kinds = [KIND_ORDER.index(way.kind) for way in ways if way is not None]
        counts.append(kinds.count(min(kinds)) if kinds else 0)
    return min(counts)


def list_main_paths(topology: Topology) -> tuple[str, ...]:
    """Return the main paths of a machine.

    They lead from each GPU to its nearest NIC, its memory and the fabric, from the first GPU to its peers, from NICs to
    the fabric, from drives to memory, and from CPUs to their memory.
    """
    graph = Graph(topology)
    gpus = [gpu.id for gpu in topology.of_kind("gpu")]
    memories = {memory.numa: memory.id for memory in topology.of_kind("memory")}
    affinity = Affinity(topology)
    wanted = []
    for gpu in topology.of_kind("gpu"):
        wanted += [f"{gpu.id}>{nic}" for nic in affinity.nearest(gpu.id)[:1]]
        wanted += [f"{gpu.id}>{memories[gpu.numa]}"] if gpu.numa in memories else []
        wanted += [f"{gpu.id}>{fabric.id}" for fabric in topology.of_kind("fabric")]
    wanted += [f"{gpus[0]}>{gpu}" for gpu in gpus[1:]]
    wanted += [f"{nic.id}>{fabric.id}" for nic in topology.of_kind("nic") for fabric in topology.of_kind("fabric")]
    nearest = next(iter(memories.values()), None)
    for drive in topology.of_kind("drive"):
        home = memories.get(drive.numa, nearest)
        wanted += [f"{drive.id}>{home}"] if home else []
    wanted += [f"cpu{numa}>{memory}" for numa, memory in memories.items() if topology.device(f"cpu{numa}")]
    return tuple(path for path in wanted if graph.find(*path.split(">")) is not None)
