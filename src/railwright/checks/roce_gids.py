"""The GIDs of RoCE ports, in the format of `topology.sources.rdma_port`: `0:v1/link-local/eth2 3:v2/IPv4/eth2`."""

from __future__ import annotations

import re
from typing import NamedTuple

from railwright.checks.needs import some
from railwright.checks.parts import rdma_ports, speaks_iwarp
from railwright.topology.devices import Device, EthernetLink, Topology
from railwright.topology.gpus import format_runs
from railwright.topology.settings import NONE

GIDS = "/sys/class/infiniband/*/ports/*/gids, gid_attrs/types"
"""The files that hold the GIDs."""
_ENTRY = re.compile(r"(\d{1,3}):(v1|v2)/(IPv4|IPv6|link-local)/(\S{1,32})")


class Gid(NamedTuple):
    """An entry of a port's GID table."""

    number: int
    version: str
    kind: str
    netdev: str

    @property
    def is_routable(self) -> bool:
        """Whether routers forward its packets: RoCE v2 with a configured address, not a link-local one."""
        return self.version == "v2" and self.kind != "link-local"


def roce_nics(topology: Topology) -> tuple[Device, ...]:
    """Return the RoCE NICs whose port is not down."""
    nics = (nic for nic, link in rdma_ports(topology) if isinstance(link.protocol, EthernetLink))
    return tuple({nic.id: nic for nic in nics if nic.facts.get("state") != "down" and not speaks_iwarp(nic)}.values())


def gids(nic: Device) -> tuple[Gid, ...] | None:
    """Return the GID table of a NIC's port; None if it could not be read."""
    value = nic.facts.get("roce_gids")
    if not isinstance(value, str):
        return None
    entries = [_ENTRY.fullmatch(word) for word in value.split()] if value != NONE else []
    found = [match for match in entries if match is not None]
    return (
        tuple(Gid(int(match[1]), match[2], match[3], match[4]) for match in found)
        if len(found) == len(entries)
        else None
    )


roce = some(roce_nics, "no RoCE port that is up")
"""A need for `Check.needs`."""


def unread(topology: Topology) -> str:
    """Name the NICs whose GID table could not be read, for `Check.asks`."""
    blind = [nic.id for nic in roce_nics(topology) if gids(nic) is None]
    return f"the GIDs of {format_runs(blind)} cannot be read" if blind else ""
