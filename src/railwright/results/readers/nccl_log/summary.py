"""A summary of a log: rings and their hops, transports, PXN and GPUDirect RDMA per NIC, algorithms by size."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from railwright.groups import group_by_key
from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog, Ring


class Hop(NamedTuple):
    """A step of a ring. `send` and `receive` are the lines of its two sides; None if they are not in the log."""

    source: int
    target: int
    send: Connection | None
    receive: Connection | None
    crosses: bool | None
    """Whether it leads to another host; None if neither the hosts nor a connection are known."""

    @property
    def label(self) -> str:
        """The label of the transport: `P2P/IPC`, `SHM`, `IB nic3 → nic3`, `?`."""
        one = self.send or self.receive
        if one is None:
            return "?"
        if one.transport != "NET":
            return f"{one.transport}/{one.detail.partition('/')[0]}" if one.detail else one.transport
        proxy = f" by rank {self.send.proxy}" if self.send and self.send.proxy is not None else ""
        sender = f"nic{self.send.nic}{proxy}" if self.send else "?"
        receiver = f"nic{self.receive.nic}" if self.receive else "?"
        return f"{one.network} {sender} → {receiver}"


class Shape(NamedTuple):
    """Rings with the same ranks, transports and NICs, and their channels."""

    channels: tuple[int, ...]
    ring: Ring
    hops: tuple[Hop, ...]


class Traffic(NamedTuple):
    """The connections in one direction over one NIC of one host."""

    host: str
    nic: int
    network: str
    direction: str
    connections: int
    gdr: int
    proxied: int


class SizeRange(NamedTuple):
    """A range of sizes for which NCCL chose the same algorithm and protocol."""

    operation: str
    first_bytes: int
    last_bytes: int
    algorithm: str
    protocol: str
    channels: int | None
    times: int


class Wiring:
    """The connections of a communicator, indexed by channel and ranks."""

    def __init__(self, communicator: Communicator) -> None:
        self._hosts = {one.rank: one.host for one in communicator.ranks if one.host}
        self._lines: dict[tuple[int, int, int, str], Connection] = {}
        for one in communicator.connections:
            if one.connection == 0:
                self._lines.setdefault((one.channel, one.source, one.target, one.direction), one)

    def hop(self, channel: int, source: int, target: int) -> Hop:
        """Return a step of a ring or tree."""
        plain = self._lines.get((channel, source, target, ""))
        send = self._lines.get((channel, source, target, "send"), plain)
        receive = self._lines.get((channel, source, target, "receive"))
        crosses = None
        if source in self._hosts and target in self._hosts:
            crosses = self._hosts[source] != self._hosts[target]
        elif plain is not None:
            crosses = False
        return Hop(source, target, send, receive, crosses)

    def hops(self, ring: Ring) -> tuple[Hop, ...]:
        """Return all steps of a ring, including the step back to its first rank if the ring is whole."""
        following = ring.ranks[1:] + (ring.ranks[:1] if ring.whole else ())
        return tuple(self.hop(ring.channel, *pair) for pair in zip(ring.ranks, following, strict=False))


def shapes(communicator: Communicator) -> tuple[Shape, ...]:
    """Return the shapes of the rings, the most frequent first."""
    wiring = Wiring(communicator)
    alike = group_by_key(communicator.rings, lambda ring: (ring.ranks, tuple(hop.label for hop in wiring.hops(ring))))
    found = [Shape(tuple(one.channel for one in rings), rings[0], wiring.hops(rings[0])) for _, rings in alike]
    return tuple(sorted(found, key=lambda shape: (-len(shape.channels), shape.channels)))


def transports(communicator: Communicator) -> tuple[tuple[str, int], ...]:
    """Count the connections of each transport. A network connection counts at the receiver, if that is in the log."""
    receives = any(one.direction == "receive" for one in communicator.connections)
    counted: Counter[str] = Counter()
    for one in communicator.connections:
        if one.transport != "NET":
            counted[f"{one.transport}/{one.detail}" if one.detail else one.transport] += 1
        elif one.direction != "send" or not receives:
            counted[f"NET/{one.network}{' GDRDMA' if one.gdr else ''}"] += 1
    return tuple(counted.most_common())


def traffic(communicator: Communicator) -> tuple[Traffic, ...]:
    """Count connections over each NIC, by host and direction. A send through a proxy counts on the proxy's NIC."""
    hosts = communicator.host_by_rank

    def way_of(one: Connection) -> tuple[str, int, str, str]:
        assert one.nic is not None
        host = hosts.get(one.target if one.direction == "receive" else one.source, "")
        return host, one.nic, one.network, one.direction

    networked = (one for one in communicator.connections if one.transport == "NET" and one.nic is not None)
    return tuple(
        Traffic(*way, len(group), sum(one.gdr for one in group), sum(one.proxy is not None for one in group))
        for way, group in sorted(group_by_key(networked, way_of))
    )


def algorithms(log: NcclLog) -> tuple[SizeRange, ...]:
    """Return the choices for each operation, with adjacent sizes of the same choice merged into a range."""
    ordered = sorted(log.choices, key=lambda one: (one.operation, one.size_bytes, one.line))
    groups = groupby(ordered, attrgetter("operation", "algorithm", "protocol", "channels"))
    ranges = []
    for (operation, algorithm, protocol, channels), alike in groups:
        same = list(alike)
        sizes, times = (same[0].size_bytes, same[-1].size_bytes), sum(one.times for one in same)
        ranges.append(SizeRange(operation, *sizes, algorithm, protocol, channels, times))
    return tuple(ranges)
