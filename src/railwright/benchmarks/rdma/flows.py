"""Rounds of RDMA writes between pairs of many hosts, for `railwright locate --probe rdma`.

In a round a rank sends and receives at the same time, over the port that the search names. A search of addresses takes
the port that has the address as a GID, or else the first that is active. The sender has the clock, because a write does
not involve the receiver's CPU. Ranks without a flow wait asleep on the stream to the parent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.rdma.gids import choose_gids
from railwright.benchmarks.wanted_flow import (
    FlowRequest,
    FlowRounds,
    FlowsRank,
    plan_rounds,
    probe,
    record_received,
    record_sent,
)
from railwright.errors import CannotJudge
from railwright.native.library import NativeError
from railwright.native.memory import Buffer
from railwright.native.rdma import Flow, Lane, Pace, RemoteRegion
from railwright.native.verbs import Gid, Peer, Port, PortFacts, QueuePair, Region, bind, draw_psn, list_devices
from railwright.results.records import Result
from railwright.units import KIB

_MESSAGE_BYTES = 256 * KIB
_DEPTH, _FIRST_CHUNK, _MOST_CHUNK, _CHUNKS = 32, 4, 64, 10
"""Requests in flight, and requests of a chunk. Chunks grow as long as at least 10 of them fit in the time."""
_PATIENCE_S = 5.0
_MOST_PORTS = 2


class _End(NamedTuple):
    """An end of a flow: its queue pair, and its memory."""

    pair: QueuePair
    psn: int
    buffer: Buffer
    region: Region


class _Offer(NamedTuple):
    """The data that a rank sends in a round: its port, and each end by the number of its flow."""

    facts: PortFacts
    gids: list[Gid]
    sources: dict[int, tuple[int, int, RemoteRegion]]
    targets: dict[int, tuple[int, int, RemoteRegion]]


def _run(rank: FlowsRank) -> Iterator[Result]:
    rank.step("libibverbs")
    bind()
    device, place = _choose_port(_find_address(rank))
    for number, flows in enumerate(rank.job.case.rounds):
        rank.step(f"round {number + 1}: RDMA writes")
        with contextlib.ExitStack() as stack:
            yield from _run_round(rank, number, flows, stack, Port(device, place))


def _find_address(rank: FlowsRank) -> str:
    """Return the address of this rank in the search, or an empty string if it has no flow."""
    flows = [flow for one in rank.job.case.rounds for flow in one]
    sources = (flow.source_address for flow in flows if flow.source == rank.index)
    targets = (flow.destination_address for flow in flows if flow.destination == rank.index)
    return next(sources, "") or next(targets, "")


def _choose_port(address: str) -> tuple[str, int]:
    """Return device and number of the port in `node1:mlx5_0` or `node1:mlx5_0/2`.

    For an address it is the active port that has it as a GID, or else the first active port. Raises CannotJudge if no
    port is active.
    """
    gid = _make_gid(address)
    if not gid and ":" in address:
        named, _, place = address.rpartition(":")[2].partition("/")
        return named, int(place or 1)
    active, trouble = [], "check with `rdma link`"
    for device in list_devices():
        for number in range(1, _MOST_PORTS + 1):
            try:
                with Port(device, number) as port:
                    if not port.facts.is_active:
                        continue
                    active.append((device, number))
                    if gid in [entry.raw for entry in port.list_gids()]:
                        return device, number
            except NativeError as error:
                if number == 1:
                    trouble = error.message
                break  # the device has no such port, or none at all
    if not active:
        raise CannotJudge(f"no RDMA port is active: {trouble}")
    return active[0]


def _make_gid(address: str) -> bytes:
    """Return the GID that RoCE makes of an address, or nothing for a host's name."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return b""
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


def _run_round(
    rank: FlowsRank, number: int, flows: tuple[FlowRequest, ...], stack: contextlib.ExitStack, port: Port
) -> Iterator[Result]:
    out = [flow for flow in flows if flow.source == rank.index]
    into = [flow for flow in flows if flow.destination == rank.index]
    buffers = [stack.enter_context(Buffer(_MESSAGE_BYTES)) for _ in (*out, *into)]
    stack.enter_context(port)
    if not port.facts.is_active:
        raise CannotJudge(f"RDMA port {port.name} is not active: check with `rdma link`")
    port.create_completions(max(1, len(buffers)) * (_DEPTH + 1))
    ends = [_create_end(port, buffer) for buffer in buffers]
    sources = dict(zip((flow.number for flow in out), ends, strict=False))
    targets = dict(zip((flow.number for flow in into), ends[len(out) :], strict=True))
    offer = _Offer(port.facts, port.list_gids(), _describe(sources), _describe(targets))
    offers: list[_Offer] = rank.comm.allgather(offer)
    for flow in into:
        targets[flow.number].buffer.fill(_seed(number, flow) + 1)  # poison
        _connect(port, targets[flow.number], flow.number, (offers[flow.source], offer), side=1)
    streams = []
    for flow in out:
        end, there = sources[flow.number], offers[flow.destination]
        end.buffer.fill(_seed(number, flow))
        _connect(port, end, flow.number, (offer, there), side=0)
        remote = there.targets[flow.number][2]
        lane = Lane(end.pair, end.region, end.region, remote, remote)
        pace = Pace(_DEPTH, 1, 1)
        streams.append(Flow([lane], "write", _MESSAGE_BYTES, pace, inline=False, pings=False, patience_s=_PATIENCE_S))
    rank.meet()
    sent = _stream(streams, rank.job.case.stream_s)
    rank.meet()
    rates: list[dict[int, float]] = rank.comm.allgather(dict(zip((flow.number for flow in out), sent, strict=True)))
    for flow in out:
        yield record_sent(BENCHMARK, number, flow)
    for flow in into:
        check = targets[flow.number].buffer.verify(_seed(number, flow), _MESSAGE_BYTES)
        told = {"rdma_port": port.name, "firmware": port.facts.firmware}
        yield record_received(BENCHMARK, number, flow, (rates[flow.source][flow.number],), check, {**told})


def _create_end(port: Port, buffer: Buffer) -> _End:
    region = port.register(buffer.address, buffer.size_bytes)
    return _End(port.create_queue_pair(_DEPTH, 1, 0), draw_psn(), buffer, region)


def _describe(ends: dict[int, _End]) -> dict[int, tuple[int, int, RemoteRegion]]:
    return {
        number: (end.pair.number, end.psn, RemoteRegion(end.region.address, end.region.remote_key))
        for number, end in ends.items()
    }


def _connect(port: Port, end: _End, number: int, both: tuple[_Offer, _Offer], *, side: int) -> None:
    """Connect this side of a flow: 0 is its source, 1 its destination. `both` are their offers in that order."""
    own, other = both[side], both[1 - side]
    layers = own.facts.link_layer, other.facts.link_layer
    if layers[0] != layers[1]:
        raise CannotJudge(f"the RDMA ports of two hosts are {layers[0]} and {layers[1]}")
    by_lid = layers[0] == "InfiniBand" and own.facts.lid and other.facts.lid
    gids = None if by_lid else choose_gids(both[0].gids, both[1].gids, None)
    there = (other.sources if side else other.targets)[number]
    peer = Peer(
        number=there[0],
        psn=there[1],
        own_psn=end.psn,
        lid=other.facts.lid,
        gid=gids[1 - side].raw if gids else bytes(16),
        gid_index=gids[side].place if gids else -1,
        mtu=min(own.facts.mtu, other.facts.mtu),
        traffic_class=0,
        service_level=0,
        reads=1,
        responder_reads=1,
    )
    port.connect(end.pair, peer)


def _stream(streams: list[Flow], seconds: float) -> list[float]:
    """Return the rate of each flow in bytes/s."""
    sent, spent, count = 0, [0.0] * len(streams), _FIRST_CHUNK
    ends_at = time.monotonic() + seconds
    while streams and (time.monotonic() < ends_at or not sent):
        begun = time.monotonic()
        for place, stream in enumerate(streams):
            stream.prepare(0)
            spent[place] += stream.stream(count)
        sent += count
        if time.monotonic() - begun < seconds / _CHUNKS:
            count = min(2 * count, _MOST_CHUNK)
    return [sent * _MESSAGE_BYTES / one for one in spent]


def _seed(number: int, flow: FlowRequest) -> int:
    return 2 * (4096 * number + flow.number)


BENCHMARK = probe(
    "rdma_flows",
    "RDMA writes between pairs of many hosts at the same time, on the routes that the fabric chooses",
    "32 writes of 256 KiB in flight per flow, timed by the sender",
    words="railwright locate --probe rdma --hosts host0,host1",
    case=FlowRounds,
    plan=plan_rounds,
    run=_run,
)
