"""The nodes and cables of a lab, decided before it is built; saved as `plan.json` in the lab's folder."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from railwright.errors import UsageError, unknown_name

Kind = Literal["host", "leaf", "spine", "superspine"]
FrrVersion = Literal["8", "10"]


def host_route(address: str) -> str:
    """Return the host route of an address: `10.0.0.1/32`."""
    return f"{address}/{128 if ':' in address else 32}"


class RailPort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's NIC port and its addresses, which are announced through this port only."""

    port: str
    rail: int
    addresses_v4: tuple[str, ...]
    """Addresses without prefix length, each announced as a /32. Empty if the lab is IPv6 only."""
    addresses_v6: tuple[str, ...]
    """Addresses without prefix length, each announced as a /128."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, IPv4 first."""
        return self.addresses_v4 + self.addresses_v6


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network namespace with FRR: a host or a switch."""

    name: str
    """`host0`, `leaf3`, `spine1`, `superspine0`."""
    kind: Kind
    group: int
    """The number of the node's group in its tier; for a host, the group of its leaves."""
    asn: int
    router_id: str
    """32 bits in the notation of an IPv4 address; an address of the node unless the lab is IPv6 only."""
    loopback_v4: str | None
    loopback_v6: str
    frr: FrrVersion = "8"
    ovs: bool = False
    """Whether the node runs its own ovsdb-server and ovs-vswitchd."""
    rails: tuple[RailPort, ...] = ()
    """The NIC ports of a host in the order of their rails; empty for a switch."""

    @property
    def loopbacks(self) -> tuple[str, ...]:
        """The loopback addresses, IPv4 first."""
        return (*([self.loopback_v4] if self.loopback_v4 is not None else []), self.loopback_v6)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The loopback addresses, then those of the rails."""
        return (*self.loopbacks, *(address for rail in self.rails for address in rail.addresses))

    def rail(self, number: int) -> RailPort:
        """Return the NIC port of a host on that rail. Raises UsageError if there is none."""
        if number >= len(self.rails):
            raise UsageError(f"{self.name} has no rail {number}", hint=f"it has rails 0 to {len(self.rails) - 1}")
        return self.rails[number]


class Cable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A veth pair. `a` is the lower end: host to leaf, leaf to spine, spine to superspine."""

    a: str
    a_port: str
    b: str
    b_port: str
    rate_bits_per_s: float | None
    """The rate in each direction, set by tbf on both ends; None leaves it unlimited."""
    mtu_bytes: int
    rail: int | None = None
    """The rail of a host's cable, or of a cable above a leaf that serves one rail."""

    def port_of(self, node: str) -> str:
        """Return the name of the cable's interface in that node."""
        return self.a_port if node == self.a else self.b_port

    def peer_of(self, node: str) -> str:
        """Return the node at the other end."""
        return self.b if node == self.a else self.a


class LabPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All nodes and cables of a lab."""

    name: str
    nodes: tuple[Node, ...]
    """Hosts first, then leaves, spines, superspines."""
    cables: tuple[Cable, ...]
    ipv6_only: bool = False
    ssh: bool = False
    """Whether every host has an sshd."""

    def node(self, name: str) -> Node:
        """Return the node of that name. Raises UsageError with the nearest names."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise unknown_name(f"node in lab {self.name}", name, (node.name for node in self.nodes))

    def of_kind(self, kind: Kind) -> tuple[Node, ...]:
        """Return all nodes of a kind, in the order of their numbers."""
        return tuple(node for node in self.nodes if node.kind == kind)

    def cables_of(self, name: str) -> tuple[Cable, ...]:
        """Return every cable with an end at that node."""
        return tuple(cable for cable in self.cables if name in (cable.a, cable.b))

    def between(self, one: str, other: str) -> tuple[Cable, ...]:
        """Return the cables between two nodes: several if rails of a host share a leaf."""
        return tuple(cable for cable in self.cables if {cable.a, cable.b} == {one, other})

    def summary(self) -> str:
        """Summarise the plan: `32 hosts, 8 leaves, 4 spines, 96 cables`."""
        plural = {"host": "hosts", "leaf": "leaves", "spine": "spines", "superspine": "superspines"}
        counts = Counter(node.kind for node in self.nodes)
        words = [f"{count} {kind if count == 1 else plural[kind]}" for kind, count in counts.items()]
        return ", ".join([*words, f"{len(self.cables)} cables"])
