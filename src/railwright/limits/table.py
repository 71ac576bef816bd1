"""The limits of many paths of one machine."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from railwright.errors import UsageError
from railwright.limits import memory
from railwright.limits.gpu import local_copy_limit
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.path import limit_inside
from railwright.topology.devices import Device, PathKind, Topology
from railwright.topology.paths import Affinity, Graph


class PathLimit(msgspec.Struct, frozen=True, kw_only=True, tag="limit", tag_field="record", omit_defaults=True,
                forbid_unknown_fields=True):  # fmt: skip
    """One path with its limit, each direction."""

    path: str
    kind: PathKind
    devices: tuple[str, ...]
    limit: Limit | NoLimit
    expected: Expected | None = None


def limits_of(topology: Topology, path_ids: Iterable[str]) -> tuple[PathLimit, ...]:
    """The limit of each `source>target`; of a copy inside it where both are one GPU or one memory.

    Raises UsageError for a path that is none or devices that are not there.
    """
    graph = Graph(topology)
    rows = []
    for path_id in path_ids:
        source, separator, target = path_id.partition(">")
        if not separator:
            hint = "write two device ids, like 'gpu0>nic0', and quote the >"
            raise UsageError(f"not a path: {path_id!r}", hint=hint)
        path = graph.find(source.strip(), target.strip())
        if path is None:
            reason = f"{source} and {target} are not connected in {topology.name}"
            raise UsageError(reason, hint="see `railwright topo`")
        inside = len(path.devices) == 1
        device = graph.devices[path.devices[0]]
        limit, expected = _within(topology, device) if inside else limit_inside(topology, path)
        rows.append(PathLimit(path=path.id, kind=path.kind, devices=path.devices, limit=limit, expected=expected))
    return tuple(rows)


def _within(topology: Topology, device: Device) -> Bounds:
    """A copy inside one device, bytes counted once. Raises UsageError for one that has no memory of its own."""
    if device.kind == "gpu":
        return local_copy_limit(device)
    if device.kind != "memory":
        reason = f"both ends of '{device.id}>{device.id}' are {device.id}: it crosses no link"
        raise UsageError(reason, hint="give two devices; a copy inside one has a limit in a GPU and in a memory")
    return memory.limit_inside(topology, device.id)


def paths_that_matter(topology: Topology) -> tuple[str, ...]:
    """GPU to its nearest NIC, to a peer, to memory and out of the machine; drives and NICs; each memory."""
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
