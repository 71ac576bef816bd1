"""The GIDs of RoCE ports, as `topology.sources.rdma_port` tells them: `0:v1/link-local/eth2 3:v2/IPv4/eth2`."""

from __future__ import annotations

import re
from typing import NamedTuple

from railwright.checks.needs import some
from railwright.checks.parts import rdma_ports, speaks_iwarp
from railwright.topology.devices import Device, EthernetLink, Topology
from railwright.topology.gpus import runs
from railwright.topology.settings import NONE

GIDS = "/sys/class/infiniband/*/ports/*/gids, gid_attrs/types"
"""Where they are read."""
_ENTRY = re.compile(r"(\d{1,3}):(v1|v2)/(IPv4|IPv6|link-local)/(\S{1,32})")


class Gid(NamedTuple):
    """One entry of a port's table."""

    number: int
    version: str
    kind: str
    netdev: str

    @property
    def is_routable(self) -> bool:
        """Whether RoCE v2 carries it through routers: with an address that was given, and no link-local one."""
        return self.version == "v2" and self.kind != "link-local"


def roce_nics(topology: Topology) -> tuple[Device, ...]:
    """The NICs with RDMA over Ethernet whose port is not down."""
    every = (nic for nic, link in rdma_ports(topology) if isinstance(link.protocol, EthernetLink))
    return tuple({nic.id: nic for nic in every if nic.facts.get("state") != "down" and not speaks_iwarp(nic)}.values())


def gids(nic: Device) -> tuple[Gid, ...] | None:
    """The table of a NIC's port; None where nobody could read it."""
    told = nic.facts.get("roce_gids")
    if not isinstance(told, str):
        return None
    entries = [_ENTRY.fullmatch(word) for word in told.split()] if told != NONE else []
    found = [match for match in entries if match is not None]
    return tuple(Gid(int(one[1]), one[2], one[3], one[4]) for one in found) if len(found) == len(entries) else None


roce = some(roce_nics, "no RoCE port that is up")
"""For `Check.needs`."""


def unread(topology: Topology) -> str:
    """For `Check.asks`: the NICs whose table nobody could read."""
    blind = [nic.id for nic in roce_nics(topology) if gids(nic) is None]
    return f"the GIDs of {runs(blind)} cannot be read" if blind else ""
