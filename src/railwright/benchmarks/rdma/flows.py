"""Rounds of RDMA writes between pairs of many hosts, for `railwright locate --probe rdma` and `prove --hosts`.

In a round a rank sends and receives at the same time, over the ports that the search names. A search of addresses takes
the port that has the address as a GID. The sender has the clock, because a write does not involve the receiver's CPU.
Ranks without a flow wait asleep on the stream to the parent. A flow that cannot be connected, or breaks, is recorded
with its cause; the others run on.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.benchmarks.rdma.gids import choose_gids
from railwright.benchmarks.rdma.surroundings import describe_port, run_near
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
from railwright.native.verbs import (
    MTU_BYTES,
    Gid,
    Peer,
    Port,
    PortFacts,
    QueuePair,
    Region,
    bind,
    draw_psn,
    list_devices,
)
from railwright.results.records import Result
from railwright.results.workload import WRITE_BYTES
from railwright.topology.near_nics import pair_ports

_DEPTH, _FIRST_CHUNK, _MOST_CHUNK, _CHUNKS = 32, 4, 64, 10
"""Requests in flight, and requests of a chunk. Chunks grow as long as at least 10 of them fit in the time."""
_PATIENCE_S = 5.0
_MOST_PORTS = 2


class _End(NamedTuple):
    """An end of a flow at one port: its queue pair, and the flow's memory as this port sees it."""

    pair: QueuePair
    psn: int
    region: Region


class _Ends(NamedTuple):
    """The ends of a flow, one for each port, with the memory that they share."""

    buffer: Buffer
    at: list[_End]


class _Remote(NamedTuple):
    """The data that a rank sends about an end."""

    number: int
    psn: int
    region: RemoteRegion


class _PortOffer(NamedTuple):
    """The data that a rank sends about a port."""

    name: str
    facts: PortFacts
    gids: list[Gid]


class _Offer(NamedTuple):
    """The data that a rank sends in a round: its ports or its trouble, and the ends of each flow by its number."""

    ports: list[_PortOffer]
    trouble: str
    sources: dict[int, list[_Remote]]
    targets: dict[int, list[_Remote]]

    @property
    def names(self) -> list[str]:
        return [port.name for port in self.ports]


class _Opened(NamedTuple):
    """The open ports of a rank in a round, with the ends of its flows."""

    ports: list[Port]
    sources: dict[int, _Ends]
    targets: dict[int, _Ends]


def _run(rank: FlowsRank) -> Iterator[Result]:
    rank.step("libibverbs")
    address, ports, trouble = _find_address(rank), list[tuple[str, int]](), ""
    try:
        bind()
        ports = choose_ports(address)
        run_near(ports[0][0])
    except (CannotJudge, NativeError) as error:
        trouble = error.message
    for number, flows in enumerate(rank.job.case.rounds):
        rank.step(f"round {number + 1}: RDMA writes")
        with contextlib.ExitStack() as stack:
            yield from _run_round(rank, number, flows, _open(rank, flows, stack, (ports, trouble)))


def _find_address(rank: FlowsRank) -> str:
    """Return the address of this rank in the search, or an empty string if it has no flow."""
    flows = [flow for one in rank.job.case.rounds for flow in one]
    sources = (flow.source_address for flow in flows if flow.source == rank.index)
    targets = (flow.destination_address for flow in flows if flow.destination == rank.index)
    return next(sources, "") or next(targets, "")


def choose_ports(address: str) -> list[tuple[str, int]]:
    """Return device and number of the ports in `node1:mlx5_0`, `node1:mlx5_0/2` or `node1:mlx5_0+mlx5_1`.

    For an address it is the port that has it as a GID, or the only active one. Raises CannotJudge if that port is not
    active, if none is, or if several are and none has the address: then a choice would be a guess.
    """
    gid = _make_gid(address)
    if not gid and ":" in address:
        named = (name.partition("/") for name in address.rpartition(":")[2].split("+"))
        return [(device, int(place or 1)) for device, _, place in named]
    active, inactive, trouble = list[tuple[str, int]](), "", "check with `rdma link`"
    for device in list_devices():
        for number in range(1, _MOST_PORTS + 1):
            try:
                with Port(device, number) as port:
                    is_wanted = bool(gid) and gid in [entry.raw for entry in port.list_gids()]
                    if port.facts.is_active and is_wanted:
                        return [(device, number)]
                    if port.facts.is_active:
                        active.append((device, number))
                    elif is_wanted:
                        inactive = port.name
            except NativeError as error:
                if number == 1:
                    trouble = error.message
                break  # the device has no such port, or none at all
    if inactive:
        raise CannotJudge(f"RDMA port {inactive}, which has the address {address}, is not active")
    if not active:
        raise CannotJudge(f"no RDMA port is active: {trouble}")
    if len(active) > 1 and gid:
        names = ", ".join(f"{device}:{number}" for device, number in active[:8])
        raise CannotJudge(
            f"several RDMA ports are active, and none has the address {address} as a GID: {names}",
            hint="name the ports of each host: --ports mlx5_0",
        )
    return active[:1]


def _make_gid(address: str) -> bytes:
    """Return the GID that RoCE makes of an address, or nothing for a host's name."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return b""
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


def _open(
    rank: FlowsRank,
    flows: tuple[FlowRequest, ...],
    stack: contextlib.ExitStack,
    chosen: tuple[list[tuple[str, int]], str],
) -> tuple[_Opened, str]:
    """Open the ports and create the ends of this rank's flows. Returns them with the trouble, if there is any."""
    opened = _Opened([], {}, {})
    own = [flow for flow in flows if rank.index in (flow.source, flow.destination)]
    if chosen[1] or not own:
        return opened, chosen[1]
    try:
        # Ports are opened after the buffers that they register, so that they are closed before them.
        size = len(chosen[0]) * WRITE_BYTES
        out = {flow.number: stack.enter_context(Buffer(size)) for flow in own if flow.source == rank.index}
        into = {flow.number: stack.enter_context(Buffer(size)) for flow in own if flow.destination == rank.index}
        for device, number in chosen[0]:
            port = stack.enter_context(Port(device, number))
            if not port.facts.is_active:
                raise CannotJudge(f"RDMA port {port.name} is not active")
            port.create_completions((len(out) + len(into)) * (_DEPTH + 1))
            opened.ports.append(port)
        for buffers, ends in ((out, opened.sources), (into, opened.targets)):
            for number, buffer in buffers.items():
                ends[number] = _Ends(buffer, [_create_end(port, buffer) for port in opened.ports])
    except (CannotJudge, NativeError) as error:
        return opened, error.message
    return opened, ""


def _create_end(port: Port, buffer: Buffer) -> _End:
    region = port.register(buffer.address, buffer.size_bytes)
    return _End(port.create_queue_pair(_DEPTH, 1, 0), draw_psn(), region)


def _run_round(
    rank: FlowsRank, number: int, flows: tuple[FlowRequest, ...], given: tuple[_Opened, str]
) -> Iterator[Result]:
    opened, trouble = given
    out = [flow for flow in flows if flow.source == rank.index]
    into = [flow for flow in flows if flow.destination == rank.index]
    offer = _make_offer(opened, trouble)
    offers: list[_Offer] = rank.comm.allgather(offer)
    troubles = {flow.number: _find_trouble(offers, flow) for flow in (*out, *into)}
    lanes: dict[int, list[Lane]] = {}
    for flow in (*out, *into):
        if troubles[flow.number]:
            continue
        try:
            lanes[flow.number] = _connect(
                rank.index, number, flow, opened, (offers[flow.source], offers[flow.destination])
            )
        except (CannotJudge, NativeError) as error:
            troubles[flow.number] = error.message
    for told in rank.comm.allgather({flow: why for flow, why in troubles.items() if why}):
        troubles |= {flow: why for flow, why in told.items() if flow in troubles and not troubles[flow]}
    sent_flows = [flow for flow in out if not troubles[flow.number]]
    pace = Pace(_DEPTH, 1, 1)
    streams = [
        Flow(lanes[flow.number], "write", WRITE_BYTES, pace, inline=False, pings=False, patience_s=_PATIENCE_S)
        for flow in sent_flows
    ]
    rank.meet()
    sent = _stream(streams, rank.job.case.stream_s)
    rank.meet()
    rates = {flow.number: rate for flow, rate in zip(sent_flows, sent, strict=True)}
    every: list[dict[int, float | str]] = rank.comm.allgather(rates)
    for flow in out:
        rate = rates.get(flow.number, "")
        yield record_sent(BENCHMARK, number, flow, troubles[flow.number] or (rate if isinstance(rate, str) else ""),
                          connected=not troubles[flow.number])  # fmt: skip
    for flow in into:
        rate = every[flow.source].get(flow.number, "")
        if isinstance(rate, str):
            continue
        ends = opened.targets[flow.number]
        size = WRITE_BYTES * len(pair_ports(offers[flow.source].names, offers[flow.destination].names))
        check = ends.buffer.verify(_seed(number, flow), size)
        name = "+".join(offer.names)
        told = {"rdma_port": name, "firmware": opened.ports[0].facts.firmware, "mtu_bytes": _mtu(offers, flow),
                **describe_port(offer.names[0], None)}  # fmt: skip
        yield record_received(BENCHMARK, number, flow, (rate,), check, told)


def _mtu(offers: Sequence[_Offer], flow: FlowRequest) -> int:
    """Return the smallest MTU of a flow's ports, in bytes."""
    ports = [port for place in (flow.source, flow.destination) for port in offers[place].ports]
    return min(MTU_BYTES.get(port.facts.mtu, 0) for port in ports)


def _make_offer(opened: _Opened, trouble: str) -> _Offer:
    ports = list[_PortOffer]()
    try:
        ports = [_PortOffer(port.name, port.facts, port.list_gids()) for port in opened.ports]
    except NativeError as error:
        trouble = trouble or error.message
    return _Offer(ports, trouble, _describe(opened.sources), _describe(opened.targets))


def _describe(ends: dict[int, _Ends]) -> dict[int, list[_Remote]]:
    return {
        number: [
            _Remote(end.pair.number, end.psn, RemoteRegion(end.region.address, end.region.remote_key)) for end in one.at
        ]
        for number, one in ends.items()
    }


def _find_trouble(offers: Sequence[_Offer], flow: FlowRequest) -> str:
    """Return the trouble of a flow's ends, each with its host; empty if there is none."""
    ends = ((flow.source, flow.source_address), (flow.destination, flow.destination_address))
    return "; ".join(f"{address}: {offers[place].trouble}" for place, address in ends if offers[place].trouble)


def _connect(own_rank: int, number: int, flow: FlowRequest, opened: _Opened, both: tuple[_Offer, _Offer]) -> list[Lane]:
    """Connect this side of a flow over each pair of its ports, and return the lanes of its source."""
    side = 0 if flow.source == own_rank else 1
    ends = (opened.targets if side else opened.sources)[flow.number]
    there = (both[1 - side].sources if side else both[1 - side].targets)[flow.number]
    joined = pair_ports(both[0].names, both[1].names)
    # The bytes that must not remain differ from those that are sent.
    ends.buffer.fill(_seed(number, flow) + side, WRITE_BYTES * len(joined))
    wanted = (_make_gid(flow.source_address), _make_gid(flow.destination_address))
    lanes = []
    for places in joined:
        end, remote = ends.at[places[side]], there[places[1 - side]]
        ports = both[0].ports[places[0]], both[1].ports[places[1]]
        opened.ports[places[side]].connect(end.pair, _find_peer(ports, (end, remote), wanted, side=side))
        lanes.append(Lane(end.pair, end.region, end.region, remote.region, remote.region))
    return lanes


def _find_peer(
    ports: tuple[_PortOffer, _PortOffer], ends: tuple[_End, _Remote], wanted: tuple[bytes, bytes], *, side: int
) -> Peer:
    """Return the other end as a peer; side 0 is the source. The GIDs are those of the wanted addresses, if any."""
    (end, remote), own, other = ends, ports[side], ports[1 - side]
    layers = own.facts.link_layer, other.facts.link_layer
    if layers[0] != layers[1]:
        raise CannotJudge(f"{own.name} is {layers[0]}, but {other.name} of the other host is {layers[1]}")
    by_lid = layers[0] == "InfiniBand" and own.facts.lid and other.facts.lid
    gids = None
    if not by_lid:
        tables = [_select(port.gids, gid) for port, gid in zip(ports, wanted, strict=True)]
        gids = choose_gids(tables[0], tables[1], None)
    return Peer(
        number=remote.number,
        psn=remote.psn,
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


def _select(gids: list[Gid], wanted: bytes) -> list[Gid]:
    """Return the GIDs that are the wanted address, or all if none is."""
    return [gid for gid in gids if gid.raw == wanted] or gids


def _stream(streams: list[Flow], seconds: float) -> list[float | str]:
    """Return the rate of each flow in bytes/s, or the reason why it broke."""
    sent, spent, count = [0] * len(streams), [0.0] * len(streams), _FIRST_CHUNK
    broken: dict[int, str] = {}
    ends_at = time.monotonic() + seconds
    while len(broken) < len(streams) and (time.monotonic() < ends_at or not any(sent)):
        begun = time.monotonic()
        for place, stream in enumerate(streams):
            if place in broken:
                continue
            try:
                stream.prepare(0)
                spent[place] += stream.stream(count)
                sent[place] += count
            except NativeError as error:
                broken[place] = error.message
        if time.monotonic() - begun < seconds / _CHUNKS:
            count = min(2 * count, _MOST_CHUNK)
    return [
        broken[place] if place in broken else sent[place] * stream.lanes * WRITE_BYTES / spent[place]
        for place, stream in enumerate(streams)
    ]


def _seed(number: int, flow: FlowRequest) -> int:
    return 2 * (4096 * number + flow.number)


BENCHMARK = probe(
    "rdma_flows",
    "RDMA writes between pairs of many hosts at the same time, on the routes that the fabric chooses",
    "32 writes of 256 KiB in flight per flow and port, timed by the sender",
    words="railwright locate --probe rdma --hosts host0,host1",
    case=FlowRounds,
    plan=plan_rounds,
    run=_run,
)
