"""NIXL transfers of GPU memory: to another GPU, to host memory and back, by either side, in two processes or in one.

What UCX does between two memories depends on which side posts and on whether both are of one process, and it does not
say when it falls back to copying piece by piece. So every record has the transport that UCX's own log names.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, Variant, choice
from railwright.benchmarks.evidence import ucx_protocol_evidence
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.kv.pair import log_of, wait_for_initiator
from railwright.benchmarks.kv.transfer import Point, Timed
from railwright.benchmarks.kv.vram_cases import CASES, Case, cases
from railwright.benchmarks.kv.vram_pairs import GPU_TO_GPU, OPTION, asked, over_pairs
from railwright.faults import peer_access_off
from railwright.faults.parts import rdma_ports
from railwright.native import nixl
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer, driver_version
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_memory import AnyBuffer, Memory, memory_of, prepare_gpus
from railwright.results.model import Evidence, Result, Verification
from railwright.results.readers.ucx_protocols import Operation
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar, Topology
from railwright.units import KIB, format_size, parse_sizes

_BUDGET_S = 1.5
"""A point is timed less often where one transfer takes long: emulated ones are a hundred times slower."""
_LEAST_ITERATIONS = 3
_TRIED = 2
"""Requests before those: one that maps the memory, and one that tells how long they take."""
_LATENCY_UP_TO = 64 * KIB
_PATIENCE_S = 60.0
# For the plan: a start, and what a request takes. Two H200 without RDMA devices (docs/measured/2026-11-22-gpu-2xh200)
# had 0.38 to 0.87 GB/s where UCX emulates and 391 GB/s over NVLink, and 10 to 40 us for 4 KiB.
_ESTIMATE_START_S, _ESTIMATE_REQUEST_S = 4.0, 40e-6
_ESTIMATE_EMULATED_BYTES_PER_S = 0.5e9
_ESTIMATE_BYTES_PER_S, _ESTIMATE_NVLINK_BYTES_PER_S = 12e9, 100e9

_WAYS_OF_UCX: dict[str, dict[str, str]] = {
    "default": {},
    "pipeline": {"UCX_RMA_PPLN_ENABLE": "y"},
    "no peer errors": {},
}
"""name -> environment of NIXL's UCX. The pipeline is there from UCX 1.22 on, and off unless it is asked for."""
_BACKEND: dict[str, dict[str, str]] = {"no peer errors": {"ucx_error_handling_mode": "none"}}
"""name -> parameters of NIXL's backend. By default it takes only transports that notice when a peer has gone."""

_OPERATIONS = choice("WRITE", "READ")
_ways = choice(*_WAYS_OF_UCX)
_accesses = choice("off", "on")


def _points(options: Mapping[str, str]) -> list[Point]:
    return [
        Point("READ" if operation == "READ" else "WRITE", size, 1, 1, 1)
        for operation in _OPERATIONS(options["operations"])
        for size in parse_sizes(options["sizes"])
    ]


def _variants(options: Mapping[str, str], topology: Topology) -> tuple[Variant, ...]:
    ways = [{} if way == "default" else {"ucx": way} for way in _ways(options["ucx"])]
    accesses = [{} if one == "off" else {peer_access_off.CLAIM: one} for one in _accesses(options["peer-access"])]
    every = tuple(Variant(parameters={**way, **access}) for way in ways for access in accesses)
    return over_pairs(options, topology, every)


def _way(job: Job) -> str:
    return str(job.variant.parameters.get("ucx", "default"))


def _wants_peer_access(job: Job) -> bool:
    return job.variant.parameters.get(peer_access_off.CLAIM) == "on"


def _plan(job: Job) -> Plan:
    waived = gpu_job.waived(job, 2 if _wants_peer_access(job) else 1)
    waived = waived or ("" if nixl.find_library() else nixl.NOT_INSTALLED)
    options = asked(job)
    every, largest = cases(options, len(job.gpus)), max(parse_sizes(options["sizes"]))
    if _wants_peer_access(job) and not any(case.link == GPU_TO_GPU and case.processes == 1 for case in every):
        waived = waived or "peer access is for two GPUs of one process, of which nothing was asked for"
    buffers = {(case.ours, 0) for case in every} | {(case.theirs, case.processes - 1) for case in every}
    hosts = sum(name in ("pinned", "pageable") for name, _ in buffers)
    rates = [(_estimated_rate(job, case), point) for case in every for point in _points(options)]
    requests = [(rate, point.size, _estimated_requests(point, rate)) for rate, point in rates]
    return Plan(
        path=every[0].path(job, "WRITE") if job.gpus else "gpu>gpu",
        seconds=_ESTIMATE_START_S + sum(count * _estimated_s(size, rate) for rate, size, count in requests),
        memory_bytes=hosts * largest,
        moved_bytes=sum(count * size for _, size, count in requests),
        waived=waived,
    )


def _estimated_rate(job: Job, case: Case) -> float:
    """Of a request, in bytes/s: no limit to hold anything against, but enough to plan with."""
    if case.link == GPU_TO_GPU and case.processes == 2:
        joined = all(gpu.facts.get("nvlinks_active") for gpu in job.gpus[:2])
        return _ESTIMATE_NVLINK_BYTES_PER_S if joined else _ESTIMATE_BYTES_PER_S
    # With RDMA devices UCX goes through the NIC.
    emulates = _way(job) == "default" and not rdma_ports(job.topology)
    return _ESTIMATE_EMULATED_BYTES_PER_S if emulates else _ESTIMATE_BYTES_PER_S


def _estimated_s(size_bytes: int, rate: float) -> float:
    return _ESTIMATE_REQUEST_S + size_bytes / rate


def _estimated_requests(point: Point, rate: float) -> int:
    """How many requests a point takes in all."""
    warm, iterations = _repeats(point, _estimated_s(point.size, rate))
    return _TRIED + warm + iterations


class _Side(NamedTuple):
    """What a rank has: its agent, its buffers by name, and what the other rank told of its own."""

    agent: nixl.Agent
    buffers: dict[str, AnyBuffer]
    peer: str
    places: dict[str, tuple[int, Memory]]
    """The other rank's buffers: address and memory."""
    peer_access: tuple[Evidence, ...]
    """Between the GPUs of this rank, where it has two."""


def _run(rank: Rank) -> Iterator[Result]:
    job, comm = rank.job, rank.comm
    options = asked(job)
    # Only now: the MPI library has its own UCX, which read its environment when it was loaded.
    os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(log_of(rank)), **_WAYS_OF_UCX[_way(job)]})
    every = cases(options, len(job.gpus))
    largest = max(parse_sizes(options["sizes"]))
    with contextlib.ExitStack() as stack:
        rank.step("GPU memory")
        buffers, peer_access = _buffers(rank, every, largest, stack)
        side = _joined(rank, buffers, peer_access)
        for case in every:
            for point in _points(options):
                yield from _measure(rank, side, case, point)
        comm.barrier()


def _buffers(
    rank: Rank, every: list[Case], size: int, stack: contextlib.ExitStack
) -> tuple[dict[str, AnyBuffer], tuple[Evidence, ...]]:
    """The buffers that this rank needs for any case, and whether its GPUs reach each other's.

    Its first GPU's context is the current one afterwards.
    """
    job = rank.job
    mine = (case.ours for case in every if rank.index == 0)
    theirs = (case.theirs for case in every if rank.index == case.processes - 1)
    names = sorted({*mine, *theirs})
    near = stack.enter_context(Device(job.gpu_of(rank.index).address))
    devices: dict[str, Device] = {near.address: near}
    found: dict[str, AnyBuffer] = {}
    for name in names:
        if name == "pinned":
            found[name] = stack.enter_context(PinnedBuffer(near, size))
        elif name == "pageable":
            found[name] = stack.enter_context(Buffer(size))
        else:
            address = job.gpu_of(1 if name == "other gpu" else 0).address
            if address not in devices:
                devices[address] = stack.enter_context(Device(address))
            found[name] = stack.enter_context(DeviceBuffer(devices[address], size))
    peer_access = _peer_access(job, list(devices.values()))
    near.make_current()
    return found, peer_access


def _peer_access(job: Job, devices: list[Device]) -> tuple[Evidence, ...]:
    """Lets the GPUs of a process reach each other's memory where the launch asks for it; how they can afterwards."""
    pairs = list(itertools.permutations(devices, 2))
    if not pairs:
        return ()
    if not all(one.can_access(other) for one, other in pairs):
        value, seen = "peer access refused", "cuDeviceCanAccessPeer"
    elif not _wants_peer_access(job):
        value, seen = peer_access_off.NONE, "this process did not call cuCtxEnablePeerAccess"
    else:
        for one, other in pairs:
            one.enable_peer(other)
        value, seen = "peer access", "cuCtxEnablePeerAccess both ways"
    return (Evidence(claim=peer_access_off.CLAIM, value=value, seen=seen),)


def _joined(rank: Rank, buffers: dict[str, AnyBuffer], peer_access: tuple[Evidence, ...]) -> _Side:
    """An agent with all buffers registered, connected to the other rank's. Metadata goes over MPI."""
    rank.step("NIXL agent")
    prepare_gpus()
    parameters = _BACKEND.get(_way(rank.job))
    agent = nixl.Agent(f"rank{rank.index}", progress_thread=rank.index == 1, parameters=parameters)
    for buffer in buffers.values():
        agent.register(buffer)
    rank.step("NIXL metadata over MPI")
    places = {name: (buffer.address, memory_of(buffer)) for name, buffer in buffers.items()}
    metadata, theirs = rank.comm.allgather((agent.metadata(), places))[1 - rank.index]
    peer = agent.connect(metadata)
    rank.comm.barrier()
    return _Side(agent, buffers, peer, theirs, peer_access)


def _seed(point: Point, who: int) -> int:
    return 8 * point.size + 4 * (point.operation == "READ") + who


def _measure(rank: Rank, side: _Side, case: Case, point: Point) -> Iterator[Result]:
    """One point. Collective; rank 0 yields."""
    where = "two processes" if case.processes == 2 else "one process"
    rank.step(f"kv_vram {case.link} {point.operation} {format_size(point.size)} in {where}")
    if rank.index == 0:
        yield from _initiate(rank, side, case, point)
        return
    if case.processes == 2:
        side.buffers[case.theirs].fill(_seed(point, 1), point.size)
    rank.comm.barrier()
    wait_for_initiator(rank)
    wrong = 0
    if case.processes == 2 and point.operation == "WRITE":
        wrong = side.buffers[case.theirs].count_wrong(_seed(point, 0), point.size)
    rank.comm.send(wrong, dest=0)


def _initiate(rank: Rank, side: _Side, case: Case, point: Point) -> Iterator[Result]:
    ours = side.buffers[case.ours]
    alone = case.processes == 1
    ours.fill(_seed(point, 0), point.size)
    if alone:
        side.buffers[case.theirs].fill(_seed(point, 1), point.size)
        address, memory, peer = *_place(side.buffers[case.theirs]), side.agent.name
    else:
        address, memory, peer = *side.places[case.theirs], side.peer
    rank.comm.barrier()
    request = side.agent.request_blocks(
        *(point.operation, [(ours.address, point.size)], [(address, point.size)], peer),
        memories=(memory_of(ours), memory),
    )
    timed = _time(request, point)
    request.release()
    rank.comm.send(None, dest=1)
    wrong = rank.comm.recv(source=1)
    if point.operation == "READ":
        wrong = ours.count_wrong(_seed(point, 1), point.size)
    elif alone:
        wrong = side.buffers[case.theirs].count_wrong(_seed(point, 0), point.size)
    verb: Operation = "get" if point.operation == "READ" else "put"
    common = Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        path=case.path(rank.job, point.operation),
        method=BENCHMARK.method,
        parameters=case.parameters(rank.job, point) | rank.job.variant.parameters,
        settings=_settings(rank, timed),
        ranks=case.processes,
        verification=Verification(method=PATTERN, bytes_checked=point.size, bytes_wrong=wrong),
        evidence=(
            ucx_protocol_evidence(log_of(rank), verb, point.size, case.memories, to_self=alone),
            *(side.peer_access if alone and case.link == GPU_TO_GPU else ()),
        ),
    )
    yield from _as_results(common, timed, point)


def _place(buffer: AnyBuffer) -> tuple[int, Memory]:
    return buffer.address, memory_of(buffer)


def _time(request: nixl.Request, point: Point) -> Timed:
    """As often as nixlbench does, but not longer than the budget: one transfer is looked at before."""
    request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)  # the first one maps the memory
    ((probe,), _) = request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
    warm, iterations = _repeats(point, probe)
    seconds, posts = request.time(warm=warm, iterations=iterations, patience_s=_PATIENCE_S)
    return Timed(seconds, posts, [point.size / second for second in seconds], _TRIED + warm + iterations)


def _repeats(point: Point, once_s: float) -> tuple[int, int]:
    """(warm-up, timed) requests of a point of which one takes so long."""
    warm, most = point.repeats()
    iterations = max(_LEAST_ITERATIONS, min(most, int(_BUDGET_S / once_s)))
    return min(warm, iterations // 10), iterations


def _settings(rank: Rank, timed: Timed) -> dict[str, Scalar]:
    way = _way(rank.job)
    asked = " ".join(f"{key}={value}" for key, value in (_WAYS_OF_UCX[way] | _BACKEND.get(way, {})).items())
    settings: dict[str, Scalar] = {
        "iterations": len(timed.seconds),
        "warm_up": timed.requests - len(timed.seconds),
        "post_median_s": summarise(timed.posts).median,
        "mpi": library_version(),
        "backend": "UCX",
        "cuda_driver": driver_version(),
        "cpus": f"{rank.job.cpu_of(0)},{rank.job.cpu_of(1)}",
        "gpus": ",".join(gpu.id for gpu in rank.job.gpus[:2]),
    }
    return settings | ({"ucx_set": asked} if asked else {})


def _as_results(common: Result, timed: Timed, point: Point) -> Iterator[Result]:
    """Small ones as latency, large ones as bandwidth, those of 64 KiB as both, as in kv_transfer."""
    if point.size <= _LATENCY_UP_TO:
        yield replace(common, samples=tuple(timed.seconds), summary=summarise(timed.seconds))
    if point.size >= _LATENCY_UP_TO:
        rates = tuple(timed.rates)
        yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))


BENCHMARK = Benchmark(
    name="kv_vram",
    summary="NIXL WRITE and READ of GPU memory: to another GPU, to host memory and back",
    method="nixlbench 1.4: one request of one descriptor, post and poll until done; as often as there, at most 1.5 s",
    quantities=("latency_s", "bandwidth_bytes_per_s"),
    ranks=2,
    plan=_plan,
    run=_run,
    variants_for=_variants,
    options=(
        Option("sizes", "4K,1M,256M", "block sizes, like 4K,1M,256M", parse_sizes),
        Option("operations", "WRITE,READ", "WRITE, READ, or WRITE,READ", _OPERATIONS),
        OPTION,
        *CASES,
        Option("ucx", "default", "default, pipeline (UCX_RMA_PPLN_ENABLE=y), no peer errors, or several", _ways),
        Option("peer-access", "off", "between two GPUs of one process: off, on (as PyTorch does), or both", _accesses),
    ),
    needs_mpi=True,
    uses_gpus=True,
)
