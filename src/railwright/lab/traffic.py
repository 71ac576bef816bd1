"""Packets between two hosts of a lab: loss, delay, rate, and the switches on the path.

All values are one-way, from the first host to the second: the namespaces share a clock. Flows differ in their source
port, so that ECMP spreads them. Each flow is traced hop by hop with the addresses and ports that measure it. A lab's
switches hash nothing else, so a TCP flow with these ports takes the same path.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from railwright.benchmarks.sockets import flow_end
from railwright.errors import CannotJudge, UsageError
from railwright.lab.nodes import LabPlan, Node
from railwright.lab.state import Lab
from railwright.process import Child, ChildResult, run

FIRST_SOURCE_PORT = 40_000
MAX_FLOWS = 128
MAX_PACKETS = 100_000
MAX_DURATION_S = 60.0
_PROBE_PORT = 39_000  # closed between probes, so that a host answers a traced packet
_MAX_HOPS = 10
_STAMP_BYTES = 12
_FLOW_END = Path(flow_end.__file__)
_READY = "ready"
_START_S = 10.0
_CONNECT_S = 3.0  # TCP resends a lost SYN after 1 s
_END_S = 15.0
_HINT = "check that the lab is up: railwright lab status"


class Ends(Protocol):
    """Named network namespaces, inside or outside a lab."""

    def argv_in(self, node: str, argv: Sequence[str]) -> list[str]:
        """The argument list that runs `argv` in the node's namespace."""


class UdpFlowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The packets of a UDP flow. Delays are one-way, None if nothing arrived."""

    source_port: int
    sent: int
    refused: int
    """The sent packets that the sender's own kernel refused: too long, or without a route."""
    received: int = 0
    unread: int = 0
    """The packets of all flows that arrived while the receiver's buffer was full."""
    delay_median_s: float | None = None
    delay_max_s: float | None = None

    @property
    def lost(self) -> int:
        """The packets that were sent and did not arrive."""
        return self.sent - self.received


class TcpFlowResult(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP flow, measured at its receiver."""

    source_port: int
    received_bytes: int = 0
    bandwidth_bytes_per_s: float = 0.0
    """From the connection's start to its last byte, at the receiver."""
    error: str | None = None
    """The reason why there was no connection."""


Flow = TypeVar("Flow", UdpFlowResult, TcpFlowResult)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a source and a destination on a rail."""

    source: str
    source_address: str
    destination: str
    destination_address: str
    rail: int


class ProbeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic that a probe sends: UDP packets and TCP streams, over the same number of flows."""

    flows: int = 16
    packets: int = 40
    """Packets of each flow."""
    size_bytes: int = 200
    duration_s: float = 1.0
    """The duration of the TCP flows."""


class WaySeen(msgspec.Struct, frozen=True, kw_only=True):
    """The flows of a probe that take the same path."""

    nodes: tuple[str, ...]
    """The switches and the destination; `?` for a node that did not answer."""
    source_ports: tuple[int, ...]
    sent: int
    lost: int
    delay_median_s: float | None
    """The median of the flows' medians."""
    delay_max_s: float | None
    bandwidth_bytes_per_s: float
    """The rate of these TCP flows together, while the flows of all paths send."""
    failed_flows: int
    """TCP flows without a connection."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe."""

    route: Route
    ways: tuple[WaySeen, ...]

    @property
    def lost(self) -> int:
        """The packets lost on all paths together."""
        return sum(one.lost for one in self.ways)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """The rate of TCP over all paths together."""
        return sum(one.bandwidth_bytes_per_s for one in self.ways)


def source_ports(flows: int) -> tuple[int, ...]:
    """Return a distinct source port for each flow. Raises UsageError unless `flows` is 1 to MAX_FLOWS."""
    _check("flows", flows, 1, MAX_FLOWS)
    return tuple(range(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + flows))


def probe(lab: Lab, way: Route, sizes: ProbeLoad) -> Probe:
    """Send packets, then streams, trace each flow, and group the results by path.

    Raises the same errors as `send_packets`.
    """
    ports = source_ports(sizes.flows)
    packets = send_packets(lab, way, ports, packets=sizes.packets, size_bytes=sizes.size_bytes)
    streams = {one.source_port: one for one in send_stream(lab, way, ports, duration_s=sizes.duration_s)}
    ways: dict[tuple[str, ...], list[UdpFlowResult]] = {}
    traced = trace(lab, way, ports)
    for flow in packets:
        ways.setdefault(traced.get(flow.source_port, ()), []).append(flow)
    found = tuple(_summarize_path(nodes, flows, streams) for nodes, flows in sorted(ways.items()))
    return Probe(route=way, ways=found)


def _summarize_path(nodes: tuple[str, ...], flows: list[UdpFlowResult], streams: dict[int, TcpFlowResult]) -> WaySeen:
    ports = tuple(flow.source_port for flow in flows)
    medians = [flow.delay_median_s for flow in flows if flow.delay_median_s is not None]
    return WaySeen(
        nodes=nodes,
        source_ports=ports,
        sent=sum(flow.sent for flow in flows),
        lost=sum(flow.lost for flow in flows),
        delay_median_s=statistics.median(medians) if medians else None,
        delay_max_s=max((flow.delay_max_s for flow in flows if flow.delay_max_s is not None), default=None),
        bandwidth_bytes_per_s=sum(streams[port].bandwidth_bytes_per_s for port in ports),
        failed_flows=sum(streams[port].error is not None for port in ports),
    )


def route(plan: LabPlan, source: str, destination: str, *, rail: int = 0, ipv6: bool = False) -> Route:
    """Return the route between two hosts on a rail: by IPv4 if they have it, unless `ipv6`. Raises UsageError."""
    ends = [_host(plan, name).rail(rail) for name in (source, destination)]
    if source == destination:
        raise UsageError(f"source and destination must differ, got {source} twice", hint="name two hosts")
    versions = [port.addresses_v6 if ipv6 or not port.addresses_v4 else port.addresses_v4 for port in ends]
    return Route(
        source=source,
        source_address=versions[0][0],
        destination=destination,
        destination_address=versions[1][0],
        rail=rail,
    )


def send_packets(
    lab: Ends, way: Route, ports: Sequence[int], *, packets: int = 40, size_bytes: int = 200, interval_s: float = 0.02
) -> tuple[UdpFlowResult, ...]:
    """Send `packets` from each source port, one per `interval_s`, never fragmented. `size_bytes` is the UDP payload.

    Raises UsageError for numbers out of range, CannotJudge if an end cannot run or does not read all that arrives.
    """
    _check("packets", packets * len(ports), 1, MAX_PACKETS)
    _check("bytes", size_bytes, _STAMP_BYTES, 65_000)
    _check("seconds", interval_s * packets, 0, MAX_DURATION_S)
    settings = {**_settings(way, ports), "packets": packets, "size_bytes": size_bytes, "interval_s": interval_s}
    seen = _exchange(lab, way, "udp", settings, interval_s * packets, UdpFlowResult)
    if unread := max(flow.unread for flow in seen):
        raise CannotJudge(
            f"{unread} packets arrived at {way.destination} and were not read, so loss is not known",
            hint="the machine is too busy: send fewer or smaller packets, or try again later",
        )
    return seen


def send_stream(lab: Ends, way: Route, ports: Sequence[int], *, duration_s: float = 1.0) -> tuple[TcpFlowResult, ...]:
    """Send a TCP flow from each source port, all at once, at full speed. Raises what `send_packets` does."""
    _check("seconds", duration_s, 0.05, MAX_DURATION_S)
    settings = {**_settings(way, ports), "duration_s": duration_s, "connect_timeout_s": _CONNECT_S}
    return _exchange(lab, way, "tcp", settings, duration_s + len(ports) * _CONNECT_S, TcpFlowResult)


def trace(lab: Lab, way: Route, ports: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the nodes that each UDP flow crosses, by source port, the destination last; `?` for a silent node."""
    settings = {**_settings(way, ports), "max_hops": _MAX_HOPS}
    ended = lab.run(way.source, _argv("trace", settings), _MAX_HOPS * 2.0 + _END_S)
    names = {address: node.name for node in lab.plan.nodes for address in (*node.addresses, node.router_id)}
    return {
        port: tuple("?" if hop is None else names.get(hop, hop) for hop in record["hops"])
        for port, record in _records(ended, way.source).items()
    }


def _host(plan: LabPlan, name: str) -> Node:
    node = plan.node(name)
    if node.kind != "host":
        raise UsageError(f"{name} must be a host, got a {node.kind}", hint="name two hosts")
    return node


def _check(name: str, value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise UsageError(
            f"{name} in a probe must be {minimum:g} to {maximum:g}, got {value:g}", hint="give a number in that range"
        )


def _settings(way: Route, ports: Sequence[int]) -> dict[str, Any]:
    _check("flows", len(ports), 1, MAX_FLOWS)
    return {
        "source": way.source_address,
        "destination": way.destination_address,
        "port": _PROBE_PORT,
        "source_ports": list(ports),
    }


def _argv(role: str, settings: dict[str, Any]) -> list[str]:
    return [sys.executable, "-I", str(_FLOW_END), msgspec.json.encode({**settings, "role": role}).decode()]


def _exchange(
    lab: Ends, way: Route, protocol: str, settings: dict[str, Any], lasts_s: float, kind: type[Flow]
) -> tuple[Flow, ...]:
    """Run both ends. Returns the combined record of sender and receiver for each flow, in the order of source ports."""
    with Child(lab.argv_in(way.destination, _argv(f"receive_{protocol}", settings))) as receiver:
        end = time.monotonic() + _START_S
        while _READY not in receiver.output:
            if receiver.poll() is not None or time.monotonic() > end:
                why = " ".join(receiver.wait(0.1).output)[-300:] or "it printed nothing"
                raise CannotJudge(f"no receiver on {way.destination}: {why}", hint=_HINT)
            time.sleep(0.005)
        sender = lab.argv_in(way.source, _argv(f"send_{protocol}", settings))
        sent = run(sender, timeout_s=lasts_s + _END_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(receiver.pid, signal.SIGTERM)
        ended = receiver.wait(_END_S)
    flows, received = _records(sent, way.source), _records(ended, way.destination)
    return tuple(msgspec.convert({**flow, **received.get(port, {})}, kind) for port, flow in sorted(flows.items()))


def _records(ended: ChildResult, node: str) -> dict[int, dict[str, Any]]:
    """Return the records of one end by source port. Raises CannotJudge if it failed."""
    if ended.returncode != 0:
        why = " ".join(ended.output)[-300:] or ended.describe()
        raise CannotJudge(f"traffic of {node} failed: {why}", hint=_HINT)
    records = [msgspec.json.decode(line) for line in ended.output if line != _READY]
    return {record["source_port"]: record for record in records}
