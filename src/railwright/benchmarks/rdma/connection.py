"""Ports, memory and queue pairs of both ranks, connected. MPI exchanges addresses; the data goes over RDMA alone."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from railwright.benchmarks.benchmark import Rank
from railwright.benchmarks.gpu.job import find_address
from railwright.benchmarks.pages import allocate_buffer
from railwright.benchmarks.rdma.gids import GidPair, choose_gids
from railwright.benchmarks.rdma.options import DMABUF, GPU, HOST, MemoryCase, RdmaOptions, Setup, region_bytes
from railwright.benchmarks.rdma.surroundings import describe_port, describe_process
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.library import NativeError
from railwright.native.memory import Buffer
from railwright.native.rdma import Lane, RemoteRegion
from railwright.native.verbs import (
    MTU_BYTES,
    Gid,
    Peer,
    Port,
    PortFacts,
    QueuePair,
    Region,
    draw_psn,
    list_devices,
)
from railwright.topology.devices import Scalar
from railwright.units import MIB

RECEIVE_DEPTH = 512
"""perftest's default."""
AUTO_INLINE_BYTES = 220
"""perftest's default for latencies of writes."""

RdmaRank = Rank[RdmaOptions, MemoryCase]
AnyBuffer = Buffer | DeviceBuffer


class _Offer(NamedTuple):
    """The data that a rank sends about one of its ports."""

    name: str
    facts: PortFacts
    gids: list[Gid]


class _Ends(NamedTuple):
    """The data that a rank sends to be connected to one of its ports."""

    queue_pairs: list[tuple[int, int]]
    """The number and the first packet sequence number of each."""
    out: RemoteRegion
    into: RemoteRegion


class _Queues(NamedTuple):
    """The number of queue pairs of a port, and the requests and receives of each."""

    pairs: int
    depth: int
    receive_depth: int


class Regions(NamedTuple):
    """Both buffers as one port sees them, with and without relaxed ordering."""

    out: Region
    into: Region


class Connection(NamedTuple):
    """Connected ports, with the buffers of this rank."""

    out: AnyBuffer
    into: AnyBuffer
    lanes: list[Lane]
    """For streams."""
    ordered_lane: Lane
    """The first queue pair, over memory whose writes arrive in order."""
    depth: int
    receive_depth: int
    inline_bytes: int
    names: tuple[str, ...]
    """The names of this rank's ports."""
    settings: dict[str, Scalar]


def connect(rank: RdmaRank, setup: Setup, device: Device | None, stack: contextlib.ExitStack) -> Connection:
    """Open and connect everything; `stack` releases it. Collective.

    Raises Unavailable on both ranks if one lacks a port, a GID or a way to register the memory.
    """
    options = rank.job.options
    size = region_bytes(options, setup)
    # Ports are opened after the buffers that they register, so that they are closed before them.
    out, into = (_allocate(device, size, stack) for _ in range(2))
    rank.step(f"open {setup.nics}")
    ports = open_on_all_ranks(rank, lambda: _open_ports(rank, setup, stack))
    own = [_Offer(port.name, port.facts, port.list_gids()) for port in ports]
    offers = rank.comm.allgather(own)
    gids = open_on_all_ranks(
        rank, lambda: [_choose_way(one, other, options.gid_index) for one, other in zip(*offers, strict=True)]
    )
    rank.step(f"register memory with {setup.nics}")
    relaxed = options.relaxed_ordering == "on" and rank.job.case.memory == HOST
    regions = open_on_all_ranks(rank, lambda: [_register(rank, port, out, into, relaxed=relaxed) for port in ports])
    ordered = open_on_all_ranks(rank, lambda: _register(rank, ports[0], out, into, relaxed=False))
    rank.step(f"connect {setup.queue_pairs} queue pairs over {setup.nics}")
    facts = [offer.facts for side in offers for offer in side]
    depth = min(options.depth, *(port.most_requests for port in facts))
    fitting = min(port.most_completions for port in facts) // setup.queue_pairs - depth
    receive_depth = max(1, min(RECEIVE_DEPTH, fitting, *(port.most_requests for port in facts)))
    queues = _Queues(setup.queue_pairs, depth, receive_depth)
    created = [_create_pairs(port, queues, options.inline) for port in ports]
    pairs, inline = [group for group, _ in created], min(most for _, most in created)
    psns = [[draw_psn() for _ in group] for group in pairs]
    ends = [
        _Ends([(pair.number, psn) for pair, psn in zip(group, numbers, strict=True)], *map(_remote, region))
        for group, numbers, region in zip(pairs, psns, regions, strict=True)
    ]
    remote = rank.comm.allgather((ends, tuple(map(_remote, ordered))))[1 - rank.index]
    lanes = []
    for place, port in enumerate(ports):
        there: _Ends = remote[0][place]
        for pair, own_psn, (number, psn) in zip(pairs[place], psns[place], there.queue_pairs, strict=True):
            port.connect(pair, _peer(rank, offers, place, gids[place], (number, psn, own_psn)))
            lanes.append(Lane(pair, *regions[place], there.out, there.into))
    rank.comm.barrier()
    settings = _settings(rank, offers, gids, {"depth": depth, "inline_bytes": inline, "relaxed_ordering": relaxed})
    ordered_lane = Lane(lanes[0].pair, *ordered, *remote[1])
    names = tuple(port.name for port in ports)
    return Connection(out, into, lanes, ordered_lane, depth, receive_depth, inline, names, settings)


def _open_ports(rank: RdmaRank, setup: Setup, stack: contextlib.ExitStack) -> list[Port]:
    devices = list_devices()
    if not devices:
        raise CannotJudge(
            "libibverbs shows no RDMA device to this process: /dev/infiniband may be missing in a container"
        )
    ports = []
    for device, number in setup.ports:
        port = stack.enter_context(Port(_find_device(rank, device, devices), number))
        if not port.facts.is_active:
            raise CannotJudge(f"RDMA port {port.name} is not active")
        ports.append(port)
    return ports


def _find_device(rank: RdmaRank, name: str, devices: list[str]) -> str:
    """Return the device of that name, or on another host the one at the same place among its devices."""
    known = sorted(
        str(nic.facts["rdma_device"]) for nic in rank.job.topology.of_kind("nic") if "rdma_device" in nic.facts
    )
    known = list(dict.fromkeys(known))
    if name in devices or name not in known or len(known) != len(devices):
        return name
    return devices[known.index(name)]


def _choose_way(first: _Offer, second: _Offer, wanted: int | None) -> GidPair | None:
    """Return the GIDs of both ports; None for InfiniBand, whose LIDs suffice within a subnet."""
    layers = {first.facts.link_layer, second.facts.link_layer}
    if len(layers) > 1:
        raise CannotJudge(f"{first.name} is {first.facts.link_layer}, but {second.name} is {second.facts.link_layer}")
    if layers == {"InfiniBand"} and wanted is None and first.facts.lid and second.facts.lid:
        return None
    return choose_gids(first.gids, second.gids, wanted)


def _allocate(device: Device | None, size: int, stack: contextlib.ExitStack) -> AnyBuffer:
    """Allocate a buffer; that of a GPU is at least as large as CUDA's pages, so that a DMA buffer can hold it."""
    if device is None:
        return stack.enter_context(allocate_buffer("huge" if size >= 2 * MIB else "small", size))
    return stack.enter_context(DeviceBuffer(device, -(-size // (2 * MIB)) * 2 * MIB))


def _register(rank: RdmaRank, port: Port, out: AnyBuffer, into: AnyBuffer, *, relaxed: bool) -> Regions:
    """Register both buffers with a port, that of a GPU by its DMA buffer or by its address."""

    def add(buffer: AnyBuffer) -> Region:
        if isinstance(buffer, DeviceBuffer) and rank.job.case.registration == DMABUF:
            descriptor = buffer.export_dmabuf()
            try:
                return port.register(buffer.address, buffer.size_bytes, dmabuf=descriptor)
            finally:
                os.close(descriptor)
        return port.register(buffer.address, buffer.size_bytes, relaxed=relaxed)

    return Regions(add(out), add(into))


def _create_pairs(port: Port, queues: _Queues, inline: int | None) -> tuple[list[QueuePair], int]:
    """Create the queue pairs of a port. Returns them with the bytes up to which data may be inline."""
    count, depth, receive_depth = queues
    port.create_completions(count * (depth + receive_depth))
    most = AUTO_INLINE_BYTES if inline is None else inline
    try:
        first = port.create_queue_pair(depth, receive_depth, most)
    except NativeError as error:
        if inline is not None or "ibv_create_qp" not in error.message:
            raise
        most = 0  # the device may allow less
        first = port.create_queue_pair(depth, receive_depth, most)
    return [first, *(port.create_queue_pair(depth, receive_depth, most) for _ in range(count - 1))], most


def _remote(region: Region) -> RemoteRegion:
    return RemoteRegion(region.address, region.remote_key)


def _peer(
    rank: RdmaRank, offers: list[list[_Offer]], place: int, gids: GidPair | None, numbers: tuple[int, int, int]
) -> Peer:
    own, other = (offers[side][place].facts for side in (rank.index, 1 - rank.index))
    options = rank.job.options
    return Peer(
        *numbers,
        lid=other.lid,
        gid=gids[1 - rank.index].raw if gids else bytes(16),
        gid_index=gids[rank.index].place if gids else -1,
        mtu=_path_mtu(options, own, other),
        traffic_class=options.traffic_class,
        service_level=options.service_level,
        reads=max(1, min(own.reads, other.responder_reads, 255)),
        responder_reads=max(1, min(own.responder_reads, other.reads, 255)),
    )


def _path_mtu(options: RdmaOptions, own: PortFacts, other: PortFacts) -> int:
    return options.mtu if options.mtu is not None else min(own.mtu, other.mtu)


def _settings(
    rank: RdmaRank, offers: list[list[_Offer]], gids: list[GidPair | None], more: dict[str, Scalar]
) -> dict[str, Scalar]:
    """Return the settings of a record; those of several ports are joined by commas if they differ."""

    def join(values: list[str]) -> str:
        return ",".join(values if len(set(values)) > 1 else values[:1])

    options, here, there = rank.job.options, offers[0], offers[1]
    ways = [gid.describe(0) if gid else f"none (LID {port.facts.lid})" for gid, port in zip(gids, here, strict=True)]
    mtus = [_path_mtu(options, one.facts, other.facts) for one, other in zip(here, there, strict=True)]
    return {
        "connection": "RC",
        "link_layer": join([port.facts.link_layer for port in here]),
        "mtu_bytes": min(MTU_BYTES.get(mtu, 0) for mtu in mtus),
        "gid": join(ways),
        "remote_ports": "+".join(port.name for port in there),
        "firmware": join([port.facts.firmware for side in offers for port in side]),
        "traffic_class": options.traffic_class,
        "service_level": options.service_level,
        **describe_port(here[0].name, gids[0].first.place if gids[0] else None),
        **describe_process(),
        **more,
        **({"hosts_in_one_machine": True} if rank.job.machine.hosts_share_cpus else {}),
    }


def open_gpu(rank: RdmaRank, stack: contextlib.ExitStack) -> Device | None:
    """Open this rank's GPU, or nothing for host memory. Collective. Raises Unavailable on both ranks."""
    if rank.job.case.memory != GPU:
        return None
    rank.step("CUDA")
    device = open_on_all_ranks(rank, lambda: Device(find_address(rank.job, rank.index)))
    return stack.enter_context(device)
