"""NIXL transfers between the host memories of two processes, as from prefill to decode.

Rank 0 posts and polls, from one thread or many; rank 1 owns the other memory. Metadata is exchanged over MPI, NIXL's
sockets or etcd (`agents`). The transport is read from UCX's own log and compared with the loopback interface's byte
counter, or between hosts with the counters of their other interfaces.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import transport_evidence, ucx_protocol_evidence
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.kv import agents, between_hosts
from railwright.benchmarks.kv.agents import Connection
from railwright.benchmarks.kv.between_hosts import NicCase, NicOptions, launch_pair
from railwright.benchmarks.kv.services import Service, etcd_address
from railwright.benchmarks.kv.timed import Point, Timed, combine_passes, record_timed, time_alone
from railwright.benchmarks.kv.verified import Ends, Outcome, Region, Seeds, transfer
from railwright.benchmarks.options import choice, option, whole_number, whole_numbers
from railwright.benchmarks.record import complete, format_cpus, waived
from railwright.native import nixl
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_crew import time_crew
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.results.workload import Message, Unlimited
from railwright.topology.devices import Scalar
from railwright.units import KIB, format_size, parse_size, parse_sizes

_PASSES = 7
_PATIENCE_S = 20.0
_PROOF_BYTES = 4 * KIB
_MOST_BLOCKS, _MOST_THREADS, _MOST_DEPTH, _MOST_BATCHES = 65_536, 64, 256, 16
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_TRANSFER_S = 3e-6
_ESTIMATE_EXCHANGE_S = {"mpi": 0.0, "socket": 1.5, "etcd": 1.5}


class TransferOptions(NicOptions, frozen=True):
    """Options of transfers."""

    sizes: tuple[int, ...] = option("4K:64M:x4", "block sizes, like 4K:64M:x4", parse_sizes)
    operations: tuple[nixl.Operation, ...] = option("WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ"))
    batches: tuple[int, ...] = option(
        "1", "blocks in one request, like 1,16,256", whole_numbers(_MOST_BLOCKS, _MOST_BATCHES)
    )
    threads: int = option("1", "threads that post requests, each its own", whole_number(_MOST_THREADS))
    depth: int = option("1", "requests in flight per thread", whole_number(_MOST_DEPTH))
    buffer: int = option("1G", "memory limit of the blocks in flight, like 1G", parse_size)
    metadata: tuple[str, ...] = option(
        "mpi", "mpi, socket, etcd, or several: the first is used for the transfers", choice(*agents.WAYS)
    )
    etcd: Service | None = option("", "the address of a running etcd, like http://127.0.0.1:2379", etcd_address)

    def points(self) -> list[Point]:
        """List all points in order of measurement."""
        return [
            Point(size_bytes=size, operation=operation, batch=batch, threads=self.threads, depth=self.depth)
            for operation in self.operations
            for batch in self.batches
            for size in self.sizes
        ]

    @property
    def room_bytes(self) -> int:
        """The memory limit of blocks in flight; a single block is always measured, whatever its size."""
        return max(self.buffer, *self.sizes)

    def list_fitting(self) -> list[Point]:
        """List the points whose blocks in flight fit."""
        return [point for point in self.points() if point.region_bytes <= self.room_bytes]

    @property
    def buffer_bytes(self) -> int:
        """The memory of each rank: the largest measured point, and the proof of the metadata."""
        return max([*(point.region_bytes for point in self.list_fitting()), _PROOF_BYTES])


class _Metadata(Case, frozen=True, kw_only=True):
    operation: str
    metadata: str


TransferRank = Rank[TransferOptions, NicCase]


def _plan(job: Job[TransferOptions, NicCase]) -> Plan:
    options = job.options
    posted = [(point, point.threads * sum(point.repeats())) for point in options.list_fitting()]
    moved = sum(point.request_bytes * count for point, count in posted)
    descriptors = sum(point.batch * count for point, count in posted)
    exchanges = sum(_ESTIMATE_EXCHANGE_S[way] for way in options.metadata)
    return Plan(
        path=job.rank_path(),
        seconds=2 + exchanges + moved / _ESTIMATE_BYTES_PER_S + descriptors * _ESTIMATE_TRANSFER_S,
        memory_bytes=2 * options.buffer_bytes,
        moved_bytes=moved,
        waived=("" if nixl.find_library() else nixl.explain_missing())
        or between_hosts.explain_no_nic(job, *between_hosts.list_memories(job)),
    )


def _run(rank: TransferRank) -> Iterator[Result]:
    options, comm = rank.job.options, rank.comm
    agents.write_log(rank)
    chosen = between_hosts.choose_transports(rank, between_hosts.list_memories(rank.job)[rank.index])
    # A socket needs an address on both hosts.
    every = comm.allgather({way: agents.find_problem(way, options.etcd, rank.job) for way in options.metadata})
    problems = {way: every[0][way] or every[1][way] for way in options.metadata}
    if rank.index == 0:
        yield from (waived(_blank_exchange(way), why) for way, why in problems.items() if why)
    seeds = Seeds.draw(rank)
    is_asked = options.metadata != ("mpi",)  # it has no limit here, and would keep every `prove` from being ok
    with Buffer(options.buffer_bytes) as buffer:
        pair: Connection | None = None
        sound = [way for way in options.metadata if not problems[way]]
        for way in reversed(sound):  # the agents of the first way come last and make the transfers
            if pair is not None:
                agents.leave(pair)
            times = 3 if is_asked else 1
            pair = agents.join(rank, {"": buffer}, way, etcd=options.etcd, threads=options.threads, times=times)
            if is_asked:
                yield from _prove_metadata(rank, pair, buffer, seeds.take())
        for point in options.points():
            if pair is not None:
                for result in _measure(rank, pair, buffer, point, seeds.take()):
                    yield replace(result, settings=result.settings | chosen)
        comm.barrier()
        if pair is not None:
            agents.leave(pair)


def _blank_exchange(way: str) -> Result:
    blank = BENCHMARK.blank("rank0>rank1", _Metadata(operation="metadata", metadata=way), ranks=2)
    return replace(
        blank, method="from a common start until both agents hold the other's metadata; new agents each time"
    )


def _prove_metadata(rank: TransferRank, pair: Connection, buffer: Buffer, seed: int) -> Iterator[Result]:
    """Record the exchange, with a write to prove the metadata. Collective; rank 0 yields."""

    def write() -> None:
        ours, theirs = ([(address, _PROOF_BYTES)] for address in (buffer.address, pair.places[""].address))
        request = pair.agent.request_blocks("WRITE", ours, theirs, pair.peer)
        request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
        request.release()

    seen = transfer(rank, _make_ends(rank, buffer, _PROOF_BYTES), "WRITE", seed, write)
    if seen is None:
        return
    settings: dict[str, Scalar] = {"mpi": library_version(), "proof_bytes": _PROOF_BYTES}
    if pair.way != "mpi":
        settings["nixl_looks_every_s"] = nixl.LISTENER_DELAY_US / 1e6
    yield complete(
        _blank_exchange(pair.way), pair.seconds, settings=settings, verification=seen.check(PATTERN, _PROOF_BYTES)
    )


def _make_ends(rank: TransferRank, buffer: Buffer, size_bytes: int) -> Ends:
    region = Region(buffer, size_bytes)
    return Ends(None, region) if rank.index else Ends(region, None)


def _measure(rank: TransferRank, pair: Connection, buffer: Buffer, point: Point, seed: int) -> Iterator[Result]:
    """Measure one point. Collective; rank 0 yields."""
    blank = BENCHMARK.blank(rank.job.rank_path(), point, ranks=rank.size)
    blank = replace(blank, parameters=blank.parameters | rank.job.case.parameters())
    if point.region_bytes > buffer.size_bytes:
        need, room = format_size(point.region_bytes), format_size(rank.job.options.room_bytes)
        if rank.index == 0:
            yield waived(blank, f"the blocks in flight need {need}, more than the {room} allowed: -o buffer=")
        return
    many = "" if point.batch == 1 else f" x {point.batch}"
    rank.step(f"kv_transfer {point.operation} {format_size(point.size_bytes)}{many}")
    cpus = _choose_crew_cpus(rank.job, point.threads)
    seen = transfer(
        rank,
        _make_ends(rank, buffer, point.region_bytes),
        point.operation,
        seed,
        lambda: _time_requests(_prepare_requests(pair, buffer, point), cpus, point),
        payload_bytes=lambda timed: point.request_bytes * timed.requests,
    )
    if seen is not None:
        yield from _results(rank, blank, pair, point, seen, cpus, seed)


def _prepare_requests(pair: Connection, buffer: Buffer, point: Point) -> list[list[nixl.Request]]:
    """Prepare, for each thread, the requests in flight, each at its own place."""

    def blocks(base: int, thread: int, slot: int) -> list[tuple[int, int]]:
        first = base + (thread * point.depth + slot) * point.request_bytes
        # From the last to the first: NIXL could merge neighbours in rising order into one descriptor.
        return [(first + block * point.size_bytes, point.size_bytes) for block in reversed(range(point.batch))]

    return [
        [
            pair.agent.request_blocks(
                point.operation,
                blocks(buffer.address, thread, slot),
                blocks(pair.places[""].address, thread, slot),
                pair.peer,
                worker=thread,
            )
            for slot in range(point.depth)
        ]
        for thread in range(point.threads)
    ]


def _choose_crew_cpus(job: Job[TransferOptions, NicCase], threads: int) -> list[int]:
    """Choose a CPU for each initiator thread, rank 0's first; avoids that of rank 1's progress thread if possible."""
    spare = [cpu for cpu in job.cpus if cpu != job.find_cpu(1)] or list(job.cpus)
    return [spare[thread % len(spare)] for thread in range(threads)]


def _time_requests(requests: list[list[nixl.Request]], cpus: list[int], point: Point) -> Timed:
    """Time a single request in a loop, or several in flight in passes of all threads."""
    warm, iterations = point.repeats()
    if point.threads * point.depth == 1:
        timed = time_alone(requests[0][0], point.request_bytes, warm, iterations, _PATIENCE_S)
    else:
        each = max(1, -(-iterations // _PASSES))
        time_crew(requests, cpus, depth=point.depth, iterations=warm, patience_s=_PATIENCE_S)
        passes = [
            time_crew(requests, cpus, depth=point.depth, iterations=each, patience_s=_PATIENCE_S)
            for _ in range(_PASSES)
        ]
        timed = combine_passes(passes, point.request_bytes * point.threads * each, point.threads * warm)
    for request in (one for mine in requests for one in mine):
        request.release()
    return timed


def _results(
    rank: TransferRank, blank: Result, pair: Connection, point: Point, seen: Outcome[Timed], cpus: list[int], seed: int
) -> Iterator[Result]:
    target_cpu, timed = rank.job.find_cpu(1), seen.done
    settings: dict[str, Scalar] = {
        **timed.settings(),
        "descriptors": point.batch,
        "threads": point.threads,
        "in_flight": point.depth,
        "metadata_exchange_s": summarise(pair.seconds).median,
        "metadata_by": pair.way,
        "mpi": library_version(),
        "backend": "UCX",
        "pattern_seed": seed,
        "cpus": format_cpus([*cpus, target_cpu]),
    }
    if point.threads > 1:
        settings["oversubscribed"] = len(set(cpus)) < point.threads or target_cpu in cpus
    payload = point.request_bytes * timed.requests
    blank = replace(
        blank,
        settings=settings,
        verification=seen.check(PATTERN, point.region_bytes),
        evidence=(
            ucx_protocol_evidence(agents.find_log(rank), point.operation, point.size_bytes),
            seen.across or transport_evidence(payload, seen.loopback_bytes, "not lo"),
        ),
    )
    yield from record_timed(blank, timed, point.size_bytes, both=not point.is_plain)


BENCHMARK = Benchmark(
    name="kv_transfer",
    summary="NIXL WRITE and READ between the host memories of two processes",
    method="nixlbench 1.4: one request of one descriptor, post and poll until done; 1000 iterations, 1/16 above 1 MiB",
    results=(
        Declaration(
            "latency_s",
            Unlimited(why="no document gives how long an exchange of metadata takes"),
            {"operation": ("metadata",)},
        ),
        Declaration("latency_s", Message(one_sided=True)),
        Declaration("bandwidth_bytes_per_s", Message(one_sided=True)),
    ),
    options=TransferOptions,
    case=NicCase,
    launches=launch_pair,
    plan=_plan,
    run=_run,
    spans_hosts=True,
    in_pairs=True,
)
