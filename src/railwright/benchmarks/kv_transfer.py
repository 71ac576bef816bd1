"""NIXL transfers between the host memories of two processes: what moves a KV cache from prefill to decode.

Rank 0 posts and polls, rank 1 owns the other memory and only lets its progress thread work. Metadata goes over MPI.
Which transport UCX chose is read from its own log, and held against the loopback interface's byte counter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, choice
from railwright.benchmarks.evidence import LoopbackMeter, transport_evidence
from railwright.native import nixl
from railwright.native.library import flush_c_streams
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.results.model import Evidence, Result, Verification
from railwright.results.readers import ucx_protocols
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
from railwright.units import KIB, MIB, format_size, parse_sizes

_WARM, _ITERATIONS = 100, 1000
_LARGE_DIVISOR = 16
_LATENCY_UP_TO = 64 * KIB
_PATIENCE_S = 20.0
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_TRANSFER_S = 3e-6
_TARGET_NAP_S = 0.002


class _Peer(NamedTuple):
    """What rank 0 needs of rank 1."""

    name: str
    address: int


def _repeats(size: int) -> tuple[int, int]:
    """(warm-up, timed) iterations: nixlbench's defaults, a sixteenth above 1 MiB."""
    divisor = _LARGE_DIVISOR if size > MIB else 1
    return max(1, _WARM // divisor), _ITERATIONS // divisor


def _plan(job: Job) -> Plan:
    sizes = parse_sizes(job.options["sizes"])
    operations = choice("WRITE", "READ")(job.options["operations"])
    moved = len(operations) * sum(size * sum(_repeats(size)) for size in sizes)
    count = len(operations) * sum(sum(_repeats(size)) for size in sizes)
    waived = "" if nixl.find_library() else "NIXL is not installed: run `railwright setup nixl`"
    return Plan(
        path=f"{job.memory_of(0)}>{job.memory_of(1)}",
        seconds=2 + moved / _ESTIMATE_BYTES_PER_S + count * _ESTIMATE_TRANSFER_S,
        memory_bytes=2 * max(sizes),
        moved_bytes=moved,
        waived=waived,
    )


def _run(rank: Rank) -> Iterator[Result]:
    comm = rank.comm
    sizes = parse_sizes(rank.job.options["sizes"])
    log = rank.scratch / f"ucx-{rank.index}.log"
    # Only now: the MPI library has its own UCX, which read its environment when it was loaded.
    os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(log)})
    rank.step("NIXL agent")
    with Buffer(max(sizes)) as buffer:
        agent = nixl.Agent(f"rank{rank.index}", progress_thread=rank.index == 1)
        agent.register(buffer)
        rank.step("NIXL metadata over MPI")
        started = time.perf_counter()
        everyone = comm.allgather((agent.metadata(), buffer.address))
        metadata, address = everyone[1 - rank.index]
        peer = _Peer(agent.connect(metadata), address)
        exchange_s = time.perf_counter() - started
        comm.barrier()
        for operation in choice("WRITE", "READ")(rank.job.options["operations"]):
            for size in sizes:
                rank.step(f"kv_transfer {operation} {format_size(size)}")
                if rank.index == 0:
                    yield from _initiate(rank, agent, buffer, peer, operation, size, exchange_s)
                else:
                    _serve(rank, buffer, operation, size)
        comm.barrier()


def _seed(size: int, operation: str, who: int) -> int:
    return 8 * size + 4 * (operation == "READ") + who


def _serve(rank: Rank, buffer: Buffer, operation: str, size: int) -> None:
    """Rank 1: lay down data or poison, wait without spinning, and say what is in the memory afterwards."""
    buffer.fill(_seed(size, operation, 1), size)
    rank.comm.barrier()
    done = rank.comm.irecv(source=0)
    while not done.test()[0]:
        time.sleep(_TARGET_NAP_S)  # the progress thread shares this CPU, and MPI would busy-poll
    wrong = buffer.count_wrong(_seed(size, operation, 0), size) if operation == "WRITE" else 0
    rank.comm.send(wrong, dest=0)


def _initiate(
    rank: Rank, agent: nixl.Agent, buffer: Buffer, peer: _Peer, operation: str, size: int, exchange_s: float
) -> Iterator[Result]:
    warm, iterations = _repeats(size)
    buffer.fill(_seed(size, operation, 0), size)
    rank.comm.barrier()
    verb: nixl.Operation = "READ" if operation == "READ" else "WRITE"
    request = agent.request(verb, buffer.address, peer.address, size, peer.name)
    meter = LoopbackMeter()
    seconds, posts = request.time(warm=warm, iterations=iterations, patience_s=_PATIENCE_S)
    moved = meter.moved_bytes()
    rank.comm.send(None, dest=1)
    wrong = rank.comm.recv(source=1)
    if operation == "READ":
        wrong = buffer.count_wrong(_seed(size, operation, 1), size)
    settings: dict[str, Scalar] = {
        "iterations": iterations,
        "warm_up": warm,
        "descriptors": 1,
        "post_median_s": summarise(posts).median,
        "metadata_exchange_s": exchange_s,
        "metadata_by": "mpi",
        "mpi": library_version(),
        "backend": "UCX",
        "cpus": f"{rank.job.cpu_of(0)},{rank.job.cpu_of(1)}",
    }
    evidence = (
        _chosen_protocol(rank, operation, size),
        transport_evidence(size * (warm + iterations), moved, "not lo"),
    )
    common = Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        path=f"{rank.job.memory_of(0)}>{rank.job.memory_of(1)}",
        method=BENCHMARK.method,
        parameters={"size_bytes": size, "operation": operation},
        settings=settings,
        ranks=rank.size,
        verification=Verification(method=PATTERN, bytes_checked=size, bytes_wrong=wrong),
        evidence=evidence,
    )
    yield from _as_results(common, seconds, size)


def _as_results(common: Result, seconds: list[float], size: int) -> Iterator[Result]:
    """Small blocks as latency, large ones as bandwidth, those of 64 KiB as both."""
    from msgspec.structs import replace

    if size <= _LATENCY_UP_TO:
        yield replace(common, samples=tuple(seconds), summary=summarise(seconds))
    if size >= _LATENCY_UP_TO:
        rates = tuple(size / second for second in seconds)
        yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))


def _chosen_protocol(rank: Rank, operation: str, size: int) -> Evidence:
    flush_c_streams()  # UCX's log is buffered
    log = rank.scratch / f"ucx-{rank.index}.log"
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Evidence(claim="ucx_protocol", value="unknown", seen=f"UCX wrote no log: {error.strerror}")
    verb: ucx_protocols.Operation = "get" if operation == "READ" else "put"
    protocol = ucx_protocols.chosen(ucx_protocols.read(lines), verb, size)
    if protocol is None:
        return Evidence(
            claim="ucx_protocol", value="unknown", seen=f"UCX's log names no {verb} of {format_size(size)} to a peer"
        )
    return Evidence(
        claim="ucx_protocol", value=protocol.transport, seen=f"UCX_PROTO_INFO: ucp_{verb} by {protocol.description}"
    )


BENCHMARK = Benchmark(
    name="kv_transfer",
    summary="NIXL WRITE and READ between the host memories of two processes",
    method="nixlbench 1.4: one request of one descriptor, post and poll until done; 1000 iterations, 1/16 above 1 MiB",
    quantities=("latency_s", "bandwidth_bytes_per_s"),
    ranks=2,
    plan=_plan,
    run=_run,
    options=(
        Option("sizes", "4K:64M:x4", "block sizes, like 4K:64M:x4", parse_sizes),
        Option("operations", "WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ")),
    ),
    needs_mpi=True,
)
