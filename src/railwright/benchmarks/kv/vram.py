"""NIXL transfers of GPU memory: to another GPU and to and from host memory, by either side, in two processes or one.

UCX's method depends on which side posts and on whether both memories are in one process, and it does not report when it
falls back to copying piece by piece. Every record therefore names the transport in UCX's own log.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import ucx_protocol_evidence
from railwright.benchmarks.gpu.job import find_address, waiver_reason
from railwright.benchmarks.kv import agents, between_hosts, vram_options
from railwright.benchmarks.kv.agents import Connection, find_place
from railwright.benchmarks.kv.timed import Point, Timed, record_timed, time_alone
from railwright.benchmarks.kv.verified import Ends, Region, Seeds, transfer
from railwright.benchmarks.kv.vram_options import GPU_TO_GPU, WAYS_OF_UCX, Move, VramJob, VramOptions, Way
from railwright.benchmarks.together import waive_unavailable
from railwright.checks import peer_access_off
from railwright.checks.parts import rdma_ports
from railwright.native import nixl
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer, driver_version
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_memory import AnyBuffer, prepare_gpus
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result
from railwright.results.statistics import summarise
from railwright.results.workload import Message
from railwright.topology.devices import Scalar
from railwright.units import format_size

_BUDGET_S = 1.5
"""The time limit of a point. Emulated transfers are a hundred times slower and are timed less often."""
_LEAST_ITERATIONS = 3
_TRIED = 2
"""Requests before the timed ones: one maps the memory, and one shows how long they take."""
_PATIENCE_S = 60.0
# For the plan: the time of the start and of a request. Two H200 without RDMA devices (docs/measured/2xh200)
# reached 0.38 to 0.87 GB/s where UCX emulates and 391 GB/s over NVLink, and 10 to 40 us for 4 KiB.
_ESTIMATE_START_S, _ESTIMATE_REQUEST_S = 4.0, 40e-6
_ESTIMATE_EMULATED_BYTES_PER_S = 0.5e9
_ESTIMATE_BYTES_PER_S, _ESTIMATE_NVLINK_BYTES_PER_S = 12e9, 100e9
_BACKEND: dict[str, dict[str, str]] = {"no peer errors": {"ucx_error_handling_mode": "none"}}
"""Parameters of NIXL's backend by UCX way. By default UCX takes only transports that notice when a peer leaves."""

VramRank = Rank[VramOptions, Way]


def _plan(job: VramJob) -> Plan:
    options, wants_peers = vram_options.reduce_options(job), job.case.peer_access == "on"
    moves, largest = options.moves(len(job.gpus)), max(options.sizes)
    reason = waiver_reason(job, 2 if wants_peers else 1) or ("" if nixl.find_library() else nixl.explain_missing())
    if wants_peers and not any(move.link == GPU_TO_GPU and move.processes == 1 for move in moves):
        reason = reason or "peer access is for two GPUs of one process, and none was requested"
    reason = reason or between_hosts.explain_no_nic(job, job.find_gpu(0).id, job.find_gpu(1).id)
    buffers = {(move.ours, 0) for move in moves} | {(move.theirs, move.processes - 1) for move in moves}
    points = [(point, _estimate_rate(job, move)) for move in moves for point in _list_points(options)]
    requests = [(point.size_bytes, rate, _estimate_requests(point, rate)) for point, rate in points]
    return Plan(
        path=moves[0].path(job, "WRITE") if job.gpus else "gpu>gpu",
        seconds=_ESTIMATE_START_S + sum(count * _estimate_request_s(size, rate) for size, rate, count in requests),
        memory_bytes=largest * sum(name in ("pinned", "pageable") for name, _ in buffers),
        moved_bytes=sum(count * size for size, _, count in requests),
        waived=reason,
    )


def _list_points(options: VramOptions) -> list[Point]:
    return [Point(size_bytes=size, operation=operation) for operation in options.operations for size in options.sizes]


def _estimate_rate(job: VramJob, move: Move) -> float:
    """Estimate a request's rate in bytes/s, for the plan only."""
    if job.machine.fabric is not None:
        return job.machine.fabric.flow_bytes_per_s
    if move.link == GPU_TO_GPU and move.processes == 2 and not job.hosts:
        joined = all(gpu.facts.get("nvlinks_active") for gpu in job.gpus[:2])
        return _ESTIMATE_NVLINK_BYTES_PER_S if joined else _ESTIMATE_BYTES_PER_S
    # With RDMA devices UCX goes through the NIC; between hosts it emulates by TCP, whatever is set.
    emulates = (job.case.ucx == "default" or bool(job.hosts)) and not rdma_ports(job.topology)
    return _ESTIMATE_EMULATED_BYTES_PER_S if emulates else _ESTIMATE_BYTES_PER_S


def _estimate_request_s(size_bytes: int, rate: float) -> float:
    return _ESTIMATE_REQUEST_S + size_bytes / rate


def _estimate_requests(point: Point, rate: float) -> int:
    """Estimate the total requests of a point."""
    return _TRIED + sum(_choose_repeats(point, _estimate_request_s(point.size_bytes, rate)))


class _Side(NamedTuple):
    """A rank's buffers by name, its joined agent, and evidence of its GPUs' peer access."""

    pair: Connection
    buffers: dict[str, AnyBuffer]
    peer_access: tuple[Evidence, ...]
    settings: dict[str, Scalar]
    """The transports that were chosen for this launch."""


def _run(rank: VramRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(_plan(rank.job).path, rank.job.case, ranks=rank.job.ranks)
    yield from waive_unavailable(rank, blank, _run_moves(rank))


def _run_moves(rank: VramRank) -> Iterator[Result]:
    agents.write_log(rank)
    os.environ.update(WAYS_OF_UCX[rank.job.case.ucx])
    chosen = between_hosts.choose_transports(rank, rank.job.find_gpu(rank.index).id)
    between_hosts.require_metadata(rank)
    options = vram_options.reduce_options(rank.job)
    moves = options.moves(len(rank.job.gpus))
    seeds = Seeds.draw(rank)
    with contextlib.ExitStack() as stack:
        rank.step("GPU memory")
        buffers, peer_access = _allocate_buffers(rank, moves, max(options.sizes), stack)
        rank.step("NIXL agent")
        prepare_gpus()
        backend = _BACKEND.get(rank.job.case.ucx)
        pair = agents.join(rank, buffers, options.metadata, etcd=options.etcd, parameters=backend)
        side = _Side(pair, buffers, peer_access, chosen)
        for move in moves:
            for point in _list_points(options):
                yield from _measure(rank, side, move, point, seeds.take())
        rank.comm.barrier()
        agents.withdraw(pair)


def _allocate_buffers(
    rank: VramRank, moves: list[Move], size: int, stack: contextlib.ExitStack
) -> tuple[dict[str, AnyBuffer], tuple[Evidence, ...]]:
    """Allocate this rank's buffers for all moves, and return evidence of its GPUs' peer access.

    Leaves its first GPU's context current.
    """
    job = rank.job
    mine = (move.ours for move in moves if rank.index == 0)
    theirs = (move.theirs for move in moves if rank.index == move.processes - 1)
    near = stack.enter_context(Device(find_address(job, rank.index)))
    devices: dict[str, Device] = {near.address: near}
    found: dict[str, AnyBuffer] = {}
    for name in sorted({*mine, *theirs}):
        if name == "pinned":
            found[name] = stack.enter_context(PinnedBuffer(near, size))
        elif name == "pageable":
            found[name] = stack.enter_context(Buffer(size))
        elif job.hosts:
            found[name] = stack.enter_context(DeviceBuffer(near, size))
        else:
            address = job.find_gpu(1 if name == "other gpu" else 0).address
            if address not in devices:
                devices[address] = stack.enter_context(Device(address))
            found[name] = stack.enter_context(DeviceBuffer(devices[address], size))
    peer_access = _set_peer_access(job, list(devices.values()))
    near.make_current()
    return found, peer_access


def _set_peer_access(job: VramJob, devices: list[Device]) -> tuple[Evidence, ...]:
    """Enable peer access between a process's GPUs if the launch requests it, and return the resulting evidence."""
    pairs = list(itertools.permutations(devices, 2))
    if not pairs:
        return ()
    if not all(one.can_access(other) for one, other in pairs):
        value, seen = "peer access refused", "cuDeviceCanAccessPeer"
    elif job.case.peer_access == "off":
        value, seen = peer_access_off.NONE, "this process did not call cuCtxEnablePeerAccess"
    else:
        for one, other in pairs:
            one.enable_peer(other)
        value, seen = "peer access", "cuCtxEnablePeerAccess both ways"
    return (Evidence(claim=peer_access_off.CLAIM, value=value, seen=seen),)


def _measure(rank: VramRank, side: _Side, move: Move, point: Point, seed: int) -> Iterator[Result]:
    """Measure one point. Collective; rank 0 yields."""
    alone = move.processes == 1
    where = "one process" if alone else "two hosts" if rank.job.hosts else "two processes"
    rank.step(f"kv_vram {move.link} {point.operation} {format_size(point.size_bytes)} in {where}")

    def end(name: str, owner: int) -> Region | None:
        return Region(side.buffers[name], point.size_bytes) if rank.index == owner else None

    ends = Ends(end(move.ours, 0), end(move.theirs, 0 if alone else 1))
    seen = transfer(
        rank,
        ends,
        point.operation,
        seed,
        lambda: _time_transfers(side, move, point),
        payload_bytes=lambda timed: point.size_bytes * timed.requests,
    )
    if seen is None:
        return
    blank = BENCHMARK.blank(
        move.path(rank.job, point.operation),
        settings=_settings(rank.job, side, seen.done) | {"pattern_seed": seed},
        ranks=move.processes,
        verification=seen.check(PATTERN, point.size_bytes),
        evidence=(
            ucx_protocol_evidence(
                agents.find_log(rank), point.operation, point.size_bytes, move.memories, to_self=alone
            ),
            *((seen.across,) if seen.across is not None else ()),
            *(side.peer_access if alone and move.link == GPU_TO_GPU else ()),
        ),
    )
    case = move.case(rank.job, point.size_bytes, point.operation)
    varied = replace(blank, parameters=case.parameters() | rank.job.case.parameters())
    yield from record_timed(varied, seen.done, point.size_bytes)


def _time_transfers(side: _Side, move: Move, point: Point) -> Timed:
    """Time as many transfers as nixlbench, or as fit into the time limit by the duration of a trial transfer."""
    pair, ours = side.pair, find_place(side.buffers[move.ours])
    alone = move.processes == 1
    theirs = find_place(side.buffers[move.theirs]) if alone else pair.places[move.theirs]
    request = pair.agent.request_blocks(
        point.operation,
        [(ours.address, point.size_bytes)],
        [(theirs.address, point.size_bytes)],
        pair.agent.name if alone else pair.peer,
        memories=(ours.memory, theirs.memory),
    )
    request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)  # the first one maps the memory
    ((probe,), _) = request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
    timed = time_alone(request, point.size_bytes, *_choose_repeats(point, probe), _PATIENCE_S)
    request.release()
    return timed._replace(requests=_TRIED + timed.requests)


def _choose_repeats(point: Point, once_s: float) -> tuple[int, int]:
    """Return a point's (warm-up, timed) requests from the time of one."""
    warm, most = point.repeats()
    iterations = max(_LEAST_ITERATIONS, min(most, int(_BUDGET_S / once_s)))
    return min(warm, iterations // 10), iterations


def _settings(job: VramJob, side: _Side, timed: Timed) -> dict[str, Scalar]:
    way = job.case.ucx
    words = [f"{key}={value}" for key, value in (WAYS_OF_UCX[way] | _BACKEND.get(way, {})).items()]
    ucx_set = " ".join([*words, *(str(side.settings[key]) for key in ("ucx_set",) if key in side.settings)])
    settings: dict[str, Scalar] = {
        **timed.settings(),
        "mpi": library_version(),
        "backend": "UCX",
        "metadata_by": side.pair.way,
        "metadata_exchange_s": summarise(side.pair.seconds).median,
        "cuda_driver": driver_version(),
        "cpus": f"{job.find_cpu(0)},{job.find_cpu(1)}",
        "gpus": ",".join(gpu.id for gpu in job.gpus[:2]),
    }
    return settings | side.settings | ({"ucx_set": ucx_set} if ucx_set else {})


BENCHMARK = Benchmark(
    name="kv_vram",
    summary="NIXL WRITE and READ of GPU memory: to another GPU, to host memory and back",
    method="nixlbench 1.4: one request of one descriptor, post and poll until done; as often as there, at most 1.5 s",
    results=(
        Declaration("latency_s", Message(one_sided=True, from_gpu=True)),
        Declaration("bandwidth_bytes_per_s", Message(one_sided=True, from_gpu=True)),
    ),
    options=VramOptions,
    case=Way,
    launches=vram_options.launches,
    plan=_plan,
    run=_run,
    spans_hosts=True,
    in_pairs=True,
)
