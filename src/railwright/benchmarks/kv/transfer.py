"""NIXL transfers between the host memories of two processes: what moves a KV cache from prefill to decode.

Rank 0 posts and polls, from one thread or many; rank 1 owns the other memory and only lets its progress thread work.
Metadata goes over MPI, NIXL's sockets or an etcd (`kv_exchange`).
Which transport UCX chose is read from its own log, and held against the loopback interface's byte counter; between
hosts against the counters of their other interfaces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, Variant, choice, whole_number
from railwright.benchmarks.evidence import LoopbackMeter, transport_evidence, ucx_protocol_evidence
from railwright.benchmarks.fabric import FabricMeter
from railwright.benchmarks.kv import exchange as kv_exchange
from railwright.benchmarks.kv.exchange import Joined
from railwright.benchmarks.kv.pair import log_of, wait_for_initiator
from railwright.errors import UsageError
from railwright.native import nixl
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_crew import time_crew
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
from railwright.units import GIB, KIB, MIB, format_size, parse_size, parse_sizes

_WARM, _ITERATIONS = 100, 1000
_LARGE_DIVISOR = 16
_MOST_BYTES_A_POINT = 16 * GIB
"""Above it a point is timed less often, so that a sweep up to 1 GiB ends."""
_LEAST_ITERATIONS = 10
_PASSES = 7
_LATENCY_UP_TO = 64 * KIB
_MOST_SAMPLES = 4096
_MOST_BLOCKS, _MOST_THREADS, _MOST_DEPTH, _MOST_BATCHES = 65_536, 64, 256, 16
_PATIENCE_S = 20.0
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_TRANSFER_S = 3e-6
_ESTIMATE_EXCHANGE_S = {"mpi": 0.0, "socket": 1.5, "etcd": 1.5}


class Point(NamedTuple):
    """One combination of what is varied."""

    operation: nixl.Operation
    size: int
    """Bytes of one block."""
    batch: int
    """Blocks, so descriptors, of one request."""
    threads: int
    depth: int
    """Requests in flight, of each thread."""

    @property
    def request_bytes(self) -> int:
        """What one request moves."""
        return self.size * self.batch

    @property
    def region_bytes(self) -> int:
        """What all requests that may be in flight move, each to its own place."""
        return self.request_bytes * self.threads * self.depth

    @property
    def is_plain(self) -> bool:
        """One thread with one block at a time."""
        return self.batch == self.threads == self.depth == 1

    def repeats(self) -> tuple[int, int]:
        """(warm-up, timed) requests of each thread: nixlbench's, a sixteenth above 1 MiB a request, fewer far above."""
        divisor = _LARGE_DIVISOR if self.request_bytes > MIB else 1
        most = max(_LEAST_ITERATIONS, _MOST_BYTES_A_POINT // (self.request_bytes * self.threads))
        timed = min(_ITERATIONS // divisor, most)
        return max(1, min(_WARM // divisor, timed // 10)), timed

    def parameters(self) -> dict[str, Scalar]:
        """What was varied; what is 1 is left out, so that runs with and without these options compare."""
        many = {"batch": self.batch, "threads": self.threads, "depth": self.depth}
        return {"size_bytes": self.size, "operation": self.operation, **{k: v for k, v in many.items() if v != 1}}


class Timed(NamedTuple):
    """What the loops of one point measured."""

    seconds: list[float]
    """Post to done."""
    posts: list[float]
    rates: list[float]
    """Bytes/s: of each request where one is in flight, of each pass otherwise."""
    requests: int
    """How many were posted in all, warm-up included."""


def counts(most: int, most_counts: int) -> Callable[[str], tuple[int, ...]]:
    """A check for a comma-separated list of whole numbers from 1 to `most`, each once."""
    one = whole_number(most)

    def check(text: str) -> tuple[int, ...]:
        parts = text.split(",", most_counts)
        if len(parts) > most_counts:
            raise UsageError(f"more than {most_counts} numbers were given", hint="take fewer")
        return tuple(dict.fromkeys(one(part.strip()) for part in parts))

    return check


_BATCHES = counts(_MOST_BLOCKS, _MOST_BATCHES)
_OPERATIONS = choice("WRITE", "READ")
_WAYS = choice(*kv_exchange.WAYS)


def points(options: dict[str, str]) -> list[Point]:
    """All points in the order in which they are measured."""
    threads, depth = int(options["threads"]), int(options["depth"])
    return [
        Point("READ" if operation == "READ" else "WRITE", size, batch, threads, depth)
        for operation in _OPERATIONS(options["operations"])
        for batch in _BATCHES(options["batches"])
        for size in parse_sizes(options["sizes"])
    ]


def _room_bytes(options: dict[str, str]) -> int:
    """What the blocks in flight may need; one block is always measured, whatever its size."""
    return max(parse_size(options["buffer"]), *parse_sizes(options["sizes"]))


def _fitting(options: dict[str, str]) -> list[Point]:
    room = _room_bytes(options)
    return [point for point in points(options) if point.region_bytes <= room]


def _buffer_bytes(options: dict[str, str]) -> int:
    """What each rank allocates: room for the largest point that is measured, and for the metadata's proof."""
    return max([*(point.region_bytes for point in _fitting(options)), kv_exchange.PROOF_BYTES])


def _plan(job: Job) -> Plan:
    fitting = _fitting(job.options)
    posted = [(point.request_bytes, point.threads * sum(point.repeats())) for point in fitting]
    moved = sum(size * count for size, count in posted)
    exchanges = sum(_ESTIMATE_EXCHANGE_S[way] for way in _WAYS(job.options["metadata"]))
    descriptors = sum(point.batch * point.threads * sum(point.repeats()) for point in fitting)
    return Plan(
        path=f"{job.memory_of(0)}>{job.memory_of(1)}",
        seconds=2 + exchanges + moved / _ESTIMATE_BYTES_PER_S + descriptors * _ESTIMATE_TRANSFER_S,
        memory_bytes=2 * _buffer_bytes(job.options),
        moved_bytes=moved,
        waived="" if nixl.find_library() else nixl.NOT_INSTALLED,
    )


def _run(rank: Rank) -> Iterator[Result]:
    options = rank.job.options
    comm = rank.comm
    # Only now: the MPI library has its own UCX, which read its environment when it was loaded.
    os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(log_of(rank))})
    ways = _WAYS(options["metadata"])
    # A socket needs an address on either host.
    every = comm.allgather({way: kv_exchange.problem(way, options["etcd"], rank.job) for way in ways})
    problems = {way: every[0][way] or every[1][way] for way in ways}
    if rank.index == 0:
        yield from (_waived_exchange(rank, way, problems[way]) for way in ways if problems[way])
    sound = [way for way in ways if not problems[way]]
    with Buffer(_buffer_bytes(options)) as buffer:
        joined: Joined | None = None
        for way in reversed(sound):  # the first way's agents are the last, and make the transfers
            if joined is not None:
                kv_exchange.leave(joined)
            joined = kv_exchange.join(rank, way, buffer, int(options["threads"]), 1 if ways == ("mpi",) else 3)
            if ways != ("mpi",):  # that one has no limit here, and would keep every `prove` from being all ok
                yield from kv_exchange.result(rank, joined, buffer, _metadata_result(rank))
        for point in points(options):
            if joined is not None:
                yield from _measure(rank, joined, buffer, point)
        comm.barrier()
        if joined is not None:
            kv_exchange.leave(joined)


def _metadata_result(rank: Rank) -> Result:
    return Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        path="rank0>rank1",
        method="from a common start until both agents hold the other's metadata; new agents each time",
        ranks=rank.size,
    )


def _waived_exchange(rank: Rank, way: str, reason: str) -> Result:
    from msgspec.structs import replace

    parameters: dict[str, Scalar] = {"operation": "metadata", "metadata": way}
    return replace(_metadata_result(rank), parameters=parameters, outcome="waived", reason=reason)


def _measure(rank: Rank, joined: Joined, buffer: Buffer, point: Point) -> Iterator[Result]:
    """One point. Collective; rank 0 yields."""
    if point.region_bytes > buffer.size_bytes:
        if rank.index == 0:
            yield _too_large(rank, point)
        return
    many = "" if point.batch == 1 else f" x {point.batch}"
    rank.step(f"kv_transfer {point.operation} {format_size(point.size)}{many}")
    if rank.index == 0:
        yield from _initiate(rank, joined, buffer, point)
    else:
        _serve(rank, buffer, point)


def _too_large(rank: Rank, point: Point) -> Result:
    need, room = format_size(point.region_bytes), format_size(_room_bytes(rank.job.options))
    return Result(
        benchmark=BENCHMARK.name,
        quantity="bandwidth_bytes_per_s",
        path=f"{rank.job.memory_of(0)}>{rank.job.memory_of(1)}",
        method=BENCHMARK.method,
        parameters=point.parameters(),
        outcome="waived",
        reason=f"the blocks in flight need {need}, they may have {room}: -o buffer=",
        ranks=rank.size,
    )


def _seed(point: Point, who: int) -> int:
    return 8 * point.size + 4 * (point.operation == "READ") + who


def _serve(rank: Rank, buffer: Buffer, point: Point) -> None:
    """Rank 1: lay down data or poison, wait without spinning, and say what is in the memory afterwards."""
    buffer.fill(_seed(point, 1), point.region_bytes)
    rank.comm.barrier()
    fabric = FabricMeter()
    wait_for_initiator(rank)
    if rank.job.hosts:
        fabric.evidence(rank.comm, rank.job, 0)  # rank 0 knows how many bytes there were, and judges
    wrong = buffer.count_wrong(_seed(point, 0), point.region_bytes) if point.operation == "WRITE" else 0
    rank.comm.send(wrong, dest=0)


def _initiate(rank: Rank, joined: Joined, buffer: Buffer, point: Point) -> Iterator[Result]:
    buffer.fill(_seed(point, 0), point.region_bytes)
    rank.comm.barrier()
    requests = _requests(joined, buffer, point)
    cpus = _crew_cpus(rank.job, point.threads)
    meter, fabric = LoopbackMeter(), FabricMeter()
    timed = _time_alone(requests[0][0], point) if point.threads * point.depth == 1 else _time(requests, cpus, point)
    moved = meter.moved_bytes()
    for request in (one for mine in requests for one in mine):
        request.release()
    rank.comm.send(None, dest=1)
    payload = point.request_bytes * timed.requests
    across = fabric.evidence(rank.comm, rank.job, payload) if rank.job.hosts else None
    wrong = rank.comm.recv(source=1)
    if point.operation == "READ":
        wrong = buffer.count_wrong(_seed(point, 1), point.region_bytes)
    evidence = (
        ucx_protocol_evidence(log_of(rank), "get" if point.operation == "READ" else "put", point.size),
        across or transport_evidence(payload, moved, "not lo"),
    )
    common = Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        path=f"{rank.job.memory_of(0)}>{rank.job.memory_of(1)}",
        method=BENCHMARK.method,
        parameters=point.parameters(),
        settings=_settings(rank, joined, point, timed, cpus),
        ranks=rank.size,
        verification=Verification(method=PATTERN, bytes_checked=point.region_bytes, bytes_wrong=wrong),
        evidence=evidence,
    )
    yield from _as_results(common, timed, point)


def _requests(joined: Joined, buffer: Buffer, point: Point) -> list[list[nixl.Request]]:
    """For each thread one request for each that may be in flight, each to its own place."""

    def blocks(base: int, thread: int, slot: int) -> list[tuple[int, int]]:
        first = base + (thread * point.depth + slot) * point.request_bytes
        # From the last to the first: neighbours in rising order could be taken together as one descriptor.
        return [(first + block * point.size, point.size) for block in reversed(range(point.batch))]

    return [
        [
            joined.agent.request_blocks(
                point.operation,
                blocks(buffer.address, thread, slot),
                blocks(joined.address, thread, slot),
                joined.peer,
                worker=thread,
            )
            for slot in range(point.depth)
        ]
        for thread in range(point.threads)
    ]


def _crew_cpus(job: Job, threads: int) -> list[int]:
    """A CPU for each initiator thread, rank 0's first; not that of rank 1's progress thread if there is another."""
    spare = [cpu for cpu in job.cpus if cpu != job.cpu_of(1)] or list(job.cpus)
    return [spare[thread % len(spare)] for thread in range(threads)]


def _time_alone(request: nixl.Request, point: Point) -> Timed:
    warm, iterations = point.repeats()
    seconds, posts = request.time(warm=warm, iterations=iterations, patience_s=_PATIENCE_S)
    return Timed(seconds, posts, [point.request_bytes / second for second in seconds], warm + iterations)


def _time(requests: list[list[nixl.Request]], cpus: list[int], point: Point) -> Timed:
    warm, iterations = point.repeats()
    each = max(1, -(-iterations // _PASSES))
    moved = point.request_bytes * point.threads * each
    time_crew(requests, cpus, depth=point.depth, iterations=warm, patience_s=_PATIENCE_S)
    passes = [
        time_crew(requests, cpus, depth=point.depth, iterations=each, patience_s=_PATIENCE_S) for _ in range(_PASSES)
    ]
    return Timed(
        seconds=[second for one in passes for second in one.seconds],
        posts=[post for one in passes for post in one.posts],
        rates=[moved / one.elapsed_s for one in passes],
        requests=point.threads * (warm + _PASSES * each),
    )


def _settings(rank: Rank, joined: Joined, point: Point, timed: Timed, cpus: list[int]) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {
        "iterations": len(timed.seconds),
        "warm_up": timed.requests - len(timed.seconds),
        "descriptors": point.batch,
        "threads": point.threads,
        "in_flight": point.depth,
        "post_median_s": summarise(timed.posts).median,
        "metadata_exchange_s": summarise(joined.seconds).median,
        "metadata_by": joined.way,
        "mpi": library_version(),
        "backend": "UCX",
        "cpus": ",".join(map(str, [*cpus, rank.job.cpu_of(1)])),
    }
    if point.threads > 1:
        settings["oversubscribed"] = len(set(cpus)) < point.threads or rank.job.cpu_of(1) in cpus
    return settings


def _as_results(common: Result, timed: Timed, point: Point) -> Iterator[Result]:
    """A block at a time: small ones as latency, large ones as bandwidth, those of 64 KiB as both. Else always both."""
    from msgspec.structs import replace

    if point.size <= _LATENCY_UP_TO or not point.is_plain:
        every = -(-len(timed.seconds) // _MOST_SAMPLES)
        kept = {"samples_kept": f"1 of {every}"} if every > 1 else {}
        yield replace(
            common,
            settings={**common.settings, **kept},
            samples=tuple(timed.seconds[::every]),
            summary=summarise(timed.seconds),
        )
    if point.size >= _LATENCY_UP_TO or not point.is_plain:
        rates = tuple(timed.rates)
        yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))


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
        Option("operations", "WRITE,READ", "WRITE, READ, or WRITE,READ", _OPERATIONS),
        Option("batches", "1", "blocks in one request, like 1,16,256", _BATCHES),
        Option("threads", "1", "threads that post, each its own requests", whole_number(_MOST_THREADS)),
        Option("depth", "1", "requests in flight of each thread", whole_number(_MOST_DEPTH)),
        Option("buffer", "1G", "most memory for blocks in flight, like 1G", parse_size),
        Option("metadata", "mpi", "mpi, socket, etcd, or several: the first is used for the transfers", _WAYS),
        Option("etcd", "", "an etcd that runs, like http://127.0.0.1:2379", kv_exchange.etcd_address),
    ),
    needs_mpi=True,
    between_hosts=lambda _options: (Variant(),),
)
