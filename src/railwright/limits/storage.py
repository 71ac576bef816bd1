"""The limit of reading and writing files: the drives, the links to them, and the links into the reading machine.

A path over the network passes the servers' drives, the servers' NICs and the clients' NICs. Each is a sum over the
devices that work at once; the smallest sum is the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from railwright.limits.limit import Limit, NoLimit, no_bandwidth
from railwright.limits.path import link_limit
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import Link, PcieLink, Topology
from railwright.units import format_bandwidth


class Stage(NamedTuple):
    """A stage that all data pass: kind and number of its devices, the limit of the slowest, and their total rate."""

    what: str
    number: int
    limit: Limit
    rate: float
    """The total rate in bytes/s."""


def file_limit(cluster: Cluster, clients: int = 1, *, to_gpus: int = 0) -> Limit | NoLimit:
    """Return the limit in bytes/s of reading files on `clients` hosts at once into memory, or into `to_gpus` GPUs of
    each.

    Storage servers in the cluster file provide the drives, else each client's own drives count.
    """
    found = [_build_stage(what, links, times) for what, links, times in _list_stages(cluster, clients, to_gpus)]
    stages = [stage for stage in found if isinstance(stage, Stage)]
    if not stages:
        why = f"{cluster.host.name} has no drive whose rate is known, and there are no storage servers"
        if cluster.storage is not None:
            why = f"the storage servers, {cluster.storage[1].name}, have no drive whose rate is known"
        return no_bandwidth(why, "a drive, or [storage] in the cluster file")
    narrowest = min(stages, key=lambda stage: stage.rate)
    others = [f"{stage.what} {format_bandwidth(stage.rate)}" for stage in stages if stage is not narrowest]
    unknown = [name for name in found if isinstance(name, str)]
    because = f"{narrowest.number} {_stage_noun(narrowest.what, narrowest.number)}, each: {narrowest.limit.because}"
    because += f" (other stages: {', '.join(others)})" if others else ""
    because += f"; not known and not counted: {', '.join(unknown)}" if unknown else ""
    return replace(narrowest.limit, value=narrowest.rate, because=because)


def _list_stages(cluster: Cluster, clients: int, to_gpus: int) -> Iterable[tuple[str, list[Link], int]]:
    """Yield (stage, the links of one machine, the number of machines) for all stages that the data pass."""
    if cluster.storage is not None:
        servers, server = cluster.storage
        yield "drives of the servers", _find_links(server, "drive"), servers
        yield "NIC ports of the servers", [link for _, link in ports(server)], servers
        yield "NIC ports of the clients", [link for _, link in ports(cluster.host)], clients
    else:
        yield "drives", _find_links(cluster.host, "drive"), clients
    if to_gpus:
        yield "PCIe links of GPUs", _find_links(cluster.host, "gpu")[:to_gpus], clients


def _build_stage(what: str, links: list[Link], times: int) -> Stage | str:
    """Return the stage of a machine's links in `times` machines; only its name if the rate of a link is unknown."""
    limits = [limit for limit in map(link_limit, links) if isinstance(limit, Limit)]
    if not limits or len(limits) < len(links):
        return what
    narrowest = min(limits, key=lambda limit: limit.value)
    return Stage(what, len(links) * times, narrowest, sum(limit.value for limit in limits) * times)


def _stage_noun(what: str, number: int) -> str:
    """Return the name of a stage in the singular or plural: `drive of the servers` for one."""
    if number > 1:
        return what
    return what.replace("drives", "drive").replace("ports", "port").replace("links", "link")


def _find_links(host: Topology, kind: str) -> list[Link]:
    names = {device.id for device in host.devices if device.kind == kind}
    return [link for link in host.links if link.b in names and isinstance(link.protocol, PcieLink)]
