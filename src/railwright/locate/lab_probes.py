"""Probes between a lab's hosts: TCP flows whose source port puts them on the path that a round wants.

Before each round the ways of some ports are asked hop by hop, with the addresses and ports that the flow will have;
the one that takes the wanted path is used, so that a route that changed is learnt again. A packet train of a
twentieth of the rate comes first: it tells loss, which TCP hides at short round trips, and a path whose short packets
pass while long ones do not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import nan
from typing import TypeVar

from railwright.diagnosis.localise.fabric import Fabric, Path
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.errors import CannotJudge
from railwright.lab.state import Lab
from railwright.lab.traffic import Route, route, send_packets, send_stream, trace
from railwright.locate.lab_fabric import nic_rate_bits_per_s, path_of_nodes
from railwright.locate.signs import Crossings, Sign, is_marked

_FIRST_PORT, _PORTS_TRIED = 40_000, 12
_AT_ONCE = 32
_PACKETS, _PACKET_BYTES, _INTERVAL_S = 700, 400, 0.002
_LONG_PACKETS, _LONG_PART = 6, 0.02
"""At this part of the rate, so that a link that is slow tenfold takes them."""
_HEADER_BYTES = 48
"""Of IPv6 and UDP; IPv4's are shorter."""
_STREAM_S, _COVER_STREAM_S = 1.5, 0.8
_TO_STREAM_BYTES = 8

NO_WAY = "no way there"

Answer = TypeVar("Answer")


@dataclass
class Seen:
    """What one flow of a round showed."""

    flow: Flow
    way: Route
    port: int | None = None
    """None: no port that was tried takes the wanted path."""
    sent: int = 0
    received: int = 0
    long_lost: int | None = None
    """Of 6 packets of the whole MTU; None where none was sent."""
    ratio: float = nan
    trouble: str = ""

    def sign(self) -> Sign:
        """What is known of it besides its rate."""
        return Sign(self.flow, self.trouble != NO_WAY, self.sent, self.received, self.long_lost)


@dataclass
class LabProbes:
    """Measures rounds in a lab; everything seen is kept."""

    lab: Lab
    fabric: Fabric
    tell: Callable[[str], None]
    seen: list[list[Seen]] = field(default_factory=list)
    paths: list[Crossings] = field(default_factory=list)
    bytes_sent: float = 0.0

    def measure(self, one: Round) -> None:
        """Learn the paths, send packets, then streams; fill in how fast each flow was."""
        number = len(self.seen) + 1
        self.tell(f"round {number}, {one.purpose}: {len(one.flows)} flows")
        flows = [Seen(flow, self._route(flow)) for flow in one.flows]
        counts = Crossings({}, [])
        self.paths.append(counts)
        for seen, ways in zip(flows, self._all(flows, self._trace), strict=True):
            self._choose(seen, ways, counts)
        open_flows = [seen for seen in flows if seen.port is not None]
        covers = one.purpose.startswith("cover")
        if not covers:
            self._all(open_flows, self._packets)
        self._all(open_flows, self._cover_stream if covers else self._stream)
        self.seen.append(flows)
        one.flows[:] = [seen.flow for seen in flows]
        one.ratio = [seen.ratio for seen in flows]
        one.marked = {number for number, seen in enumerate(flows) if is_marked(seen.sign())}

    def _route(self, flow: Flow) -> Route:
        rail = self.fabric.nic_rail[flow.source]
        names = [self.fabric.hosts[self.fabric.nic_host[nic]] for nic in (flow.source, flow.destination)]
        return route(self.lab.plan, names[0], names[1], rail=rail)

    def _all(self, flows: list[Seen], work: Callable[[Seen], Answer]) -> list[Answer]:
        with ThreadPoolExecutor(_AT_ONCE) as executor:
            return list(executor.map(work, flows))

    def _trace(self, seen: Seen) -> dict[int, tuple[str, ...]]:
        try:
            return trace(self.lab, seen.way, range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED))
        except CannotJudge as error:
            seen.trouble = error.message
            return {}

    def _choose(self, seen: Seen, ways: dict[int, tuple[str, ...]], counts: Crossings) -> None:
        flow = seen.flow
        found: dict[int, Path] = {}
        for port, nodes in ways.items():
            path = path_of_nodes(self.fabric, flow.source, flow.destination, nodes)
            if path is not None:
                found[port] = path
        for path in found.values():
            for number in path[1:-1]:
                counts.crossed[number] = counts.crossed.get(number, 0) + 1
        if len(flow.path) >= 4:
            ends = self.fabric.leaf_of(flow.source), self.fabric.leaf_of(flow.destination)
            counts.asked.append((*ends, len(found)))
        seen.port = next((port for port, path in found.items() if path == flow.path), None)
        if seen.port is None and not seen.trouble:
            seen.trouble = NO_WAY if not found else "no port takes this path"

    def _packets(self, seen: Seen) -> None:
        assert seen.port is not None
        try:
            (got,) = send_packets(
                self.lab, seen.way, (seen.port,), packets=_PACKETS, size_bytes=_PACKET_BYTES, interval_s=_INTERVAL_S
            )
        except CannotJudge as error:
            seen.trouble = error.message
            return
        seen.sent, seen.received = got.sent, got.received
        mtu = self.lab.plan.cables[0].mtu_bytes
        interval_s = mtu * 8 / (_LONG_PART * nic_rate_bits_per_s(self.lab.plan))
        size = mtu - _HEADER_BYTES
        try:
            (long,) = send_packets(
                self.lab, seen.way, (seen.port,), packets=_LONG_PACKETS, size_bytes=size, interval_s=interval_s
            )
        except CannotJudge as error:
            seen.trouble = error.message
            return
        # What its own port refuses never left: that is a setting of the sender, and told by what comes back to it.
        seen.long_lost = long.lost - long.refused

    def _stream(self, seen: Seen) -> None:
        self._stream_for(seen, _STREAM_S)

    def _cover_stream(self, seen: Seen) -> None:
        self._stream_for(seen, _COVER_STREAM_S)

    def _stream_for(self, seen: Seen, seconds: float) -> None:
        assert seen.port is not None
        try:
            (got,) = send_stream(self.lab, seen.way, (seen.port,), duration_s=seconds)
        except CannotJudge as error:
            seen.trouble = error.message
            return
        if got.error is not None:
            seen.trouble = got.error
            seen.ratio = 0.0
            return
        wanted = seen.flow.share * nic_rate_bits_per_s(self.lab.plan) / _TO_STREAM_BYTES
        self.bytes_sent += got.received_bytes
        seen.ratio = got.bandwidth_bytes_per_s / wanted
