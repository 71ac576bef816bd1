"""Reading and writing files: the drives together, the ways to them, and the ways into the machine that reads.

A path over the network passes the servers' drives, the servers' NICs and the clients' NICs; each is a sum over what
works at once, and the least of them is the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from railwright.limits.model import Limit, NoLimit
from railwright.limits.path import link_limit
from railwright.topology.cluster import Cluster, ports
from railwright.topology.model import Link, Topology
from railwright.units import format_bandwidth


class Stage(NamedTuple):
    """One thing all data must pass: what it is, how many work at once, the rate of all together in bytes/s."""

    what: str
    number: int
    limit: Limit

    @property
    def rate(self) -> float:
        """Bytes/s of all of them."""
        return self.limit.value * self.number


def file_limit(cluster: Cluster, clients: int = 1, *, to_gpus: int = 0) -> Limit | NoLimit:
    """The limit of reading files on `clients` hosts at once into memory, or into `to_gpus` GPUs of each, in bytes/s.

    With storage servers in the cluster file their drives count, else each client's own.
    """
    stages = list(_stages(cluster, clients, to_gpus))
    if not stages:
        why = f"{cluster.host.name} has no drive whose rate is known, and there are no storage servers"
        return NoLimit(
            quantity="bandwidth_bytes_per_s", why=why, missing=("a drive, or [storage] in the cluster file",)
        )
    least = min(stages, key=lambda stage: stage.rate)
    others = ", ".join(f"{stage.what} {format_bandwidth(stage.rate)}" for stage in stages if stage is not least)
    return Limit(
        quantity="bandwidth_bytes_per_s",
        value=least.rate,
        kind="derived",
        because=f"{least.number} {least.what}, each: {least.limit.because}" + (f" (beside {others})" if others else ""),
        bottleneck=least.limit.bottleneck,
        derivation=least.limit.derivation,
        sources=least.limit.sources,
    )


def _stages(cluster: Cluster, clients: int, to_gpus: int) -> Iterable[Stage]:
    if cluster.storage is not None:
        servers, server = cluster.storage
        yield from _stage("drives of the servers", _drive_links(server), servers)
        yield from _stage("NIC ports of the servers", [link for _, link in ports(server)], servers)
        yield from _stage("NIC ports of the clients", [link for _, link in ports(cluster.host)], clients)
    else:
        yield from _stage("drives", _drive_links(cluster.host), clients)
    if to_gpus:
        yield from _stage("PCIe links of GPUs", _links_of(cluster.host, "gpu")[:to_gpus], clients)


def _stage(what: str, links: list[Link], times: int) -> Iterable[Stage]:
    """The links of one machine, `times` over; links of several rates count by their mean. None known: no stage."""
    limits = [limit for limit, _ in map(link_limit, links) if isinstance(limit, Limit)]
    if limits and len(limits) == len(links):
        least = min(limits, key=lambda limit: limit.value)
        total = sum(limit.value for limit in limits)
        yield Stage(what, round(total / least.value) * times, least)


def _drive_links(host: Topology) -> list[Link]:
    return _links_of(host, "drive")


def _links_of(host: Topology, kind: str) -> list[Link]:
    names = {device.id for device in host.devices if device.kind == kind}
    return [link for link in host.links if link.b in names and link.protocol.__struct_config__.tag == "pcie"]
