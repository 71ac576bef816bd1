"""What a lab is made of, decided before anything is made; saved as `plan.json` in the lab's folder."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from railwright.errors import UsageError, unknown_name

Kind = Literal["host", "leaf", "spine", "superspine"]
FrrVersion = Literal["8", "10"]


def host_route(address: str) -> str:
    """An address with the length of its whole: `10.0.0.1/32`."""
    return f"{address}/{128 if ':' in address else 32}"


class RailPort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's NIC port and the addresses on it, which are announced through this port only."""

    port: str
    rail: int
    addresses_v4: tuple[str, ...]
    """Without prefix length: each is announced as a /32. Empty where the lab is IPv6 only."""
    addresses_v6: tuple[str, ...]
    """Each is announced as a /128."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """IPv4 first."""
        return self.addresses_v4 + self.addresses_v6


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One network namespace with FRR: a host or a switch."""

    name: str
    """`host0`, `leaf3`, `spine1`, `superspine0`."""
    kind: Kind
    group: int
    """Number of the group of its tier; for a host, of its leaves."""
    asn: int
    router_id: str
    """32 bits written like an IPv4 address; an address of the node unless the lab is IPv6 only."""
    loopback_v4: str | None
    loopback_v6: str
    frr: FrrVersion = "8"
    ovs: bool = False
    """Whether it has an ovsdb-server and an ovs-vswitchd of its own."""
    rails: tuple[RailPort, ...] = ()
    """Of a host: its NIC ports in the order of their rails."""

    @property
    def loopbacks(self) -> tuple[str, ...]:
        """IPv4 first."""
        return (*([self.loopback_v4] if self.loopback_v4 is not None else []), self.loopback_v6)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its loopback, then those of its rails."""
        return (*self.loopbacks, *(address for rail in self.rails for address in rail.addresses))

    def rail(self, number: int) -> RailPort:
        """The NIC port of a host on that rail. Raises UsageError."""
        if number >= len(self.rails):
            raise UsageError(f"{self.name} has no rail {number}", hint=f"it has rails 0 to {len(self.rails) - 1}")
        return self.rails[number]


class Cable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A veth pair. `a` is always the lower end: host to leaf, leaf to spine, spine to superspine."""

    a: str
    a_port: str
    b: str
    b_port: str
    rate_bits_per_s: float | None
    """In each direction, held by tbf on both ends; None: as fast as the machine."""
    mtu_bytes: int
    rail: int | None = None
    """Of a host's cable, and of a cable above a leaf of one rail."""

    def port_of(self, node: str) -> str:
        """The name of the interface at that end."""
        return self.a_port if node == self.a else self.b_port

    def peer_of(self, node: str) -> str:
        """The node at the other end."""
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
        """The node of that name. Raises UsageError, with the nearest names."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise unknown_name(f"node in lab {self.name}", name, (node.name for node in self.nodes))

    def of_kind(self, kind: Kind) -> tuple[Node, ...]:
        """All nodes of a kind, in the order of their numbers."""
        return tuple(node for node in self.nodes if node.kind == kind)

    def cables_of(self, name: str) -> tuple[Cable, ...]:
        """Every cable with an end at that node."""
        return tuple(cable for cable in self.cables if name in (cable.a, cable.b))

    def between(self, one: str, other: str) -> tuple[Cable, ...]:
        """The cables that join two nodes: several where rails of a host meet in one leaf."""
        return tuple(cable for cable in self.cables if {cable.a, cable.b} == {one, other})

    def summary(self) -> str:
        """`32 hosts, 8 leaves, 4 spines, 96 cables`."""
        plural = {"host": "hosts", "leaf": "leaves", "spine": "spines", "superspine": "superspines"}
        counts = Counter(node.kind for node in self.nodes)
        words = [f"{count} {kind if count == 1 else plural[kind]}" for kind, count in counts.items()]
        return ", ".join([*words, f"{len(self.cables)} cables"])
