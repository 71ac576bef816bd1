"""Rounds of RDMA writes between pairs of many hosts, for `railwright locate --probe rdma`.

In a round a rank sends and receives at the same time, over the first port of its host that is active. The sender has
the clock, because a write does not involve the receiver's CPU. Ranks without a flow wait asleep on the stream to the
parent.
"""

from __future__ import annotations

import contextlib
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
_DEPTH, _CHUNK = 32, 64
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
    for number, flows in enumerate(rank.job.case.rounds):
        rank.step(f"round {number + 1}: RDMA writes")
        with contextlib.ExitStack() as stack:
            yield from _run_round(rank, number, flows, stack)


def _open_port(stack: contextlib.ExitStack) -> Port:
    """Open the first port that is active. Raises CannotJudge if none is."""
    for device in list_devices():
        for number in range(1, _MOST_PORTS + 1):
            try:
                port = Port(device, number)
            except NativeError:
                break  # the device has no such port
            if port.facts.is_active:
                return stack.enter_context(port)
            port.close()
    raise CannotJudge("no RDMA port is active: check with `rdma link`")


def _run_round(
    rank: FlowsRank, number: int, flows: tuple[FlowRequest, ...], stack: contextlib.ExitStack
) -> Iterator[Result]:
    out = [flow for flow in flows if flow.source == rank.index]
    into = [flow for flow in flows if flow.destination == rank.index]
    buffers = [stack.enter_context(Buffer(_MESSAGE_BYTES)) for _ in (*out, *into)]
    port = _open_port(stack)
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
    spent, chunks, ends_at = [0.0] * len(streams), 0, time.monotonic() + seconds
    while streams and (time.monotonic() < ends_at or not chunks):
        chunks += 1
        for place, stream in enumerate(streams):
            stream.prepare(0)
            spent[place] += stream.stream(_CHUNK)
    return [chunks * _CHUNK * _MESSAGE_BYTES / one for one in spent]


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
