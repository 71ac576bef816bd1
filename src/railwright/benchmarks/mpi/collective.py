"""The parts that MPI collectives share: sizes, repeats, timing over all ranks, data check and evidence.

Sizes and rates are nccl-tests' (`railwright.busbw`): an all_reduce's size is one rank's floats, that of the others is
all ranks' shares together. A sample is the mean over ranks of their time per operation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import ConnectionMeter, transport_evidence
from railwright.benchmarks.fabric import PROOF_BYTES, InterfaceMeter, crossing_bytes
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.mpi import gpu_memory, pair
from railwright.benchmarks.mpi.gpu_memory import ANY, MEMORY_OPTION, Transport
from railwright.benchmarks.options import Options, choice, option, whole_number
from railwright.benchmarks.record import complete, failed_if, format_cpus, format_wrong, rates
from railwright.benchmarks.together import waive_unavailable
from railwright.busbw import PER_RANK_COUNTED, busbw_factor
from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.memory import Buffer
from railwright.native.mpi import library_version, thread_level
from railwright.native.mpi_collectives import FLOAT_BYTES, MOST_FLOATS, PATTERN, Collective
from railwright.results import workload
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.units import KIB, MIB, format_size, parse_sizes

_ONE_PER_CORE = "cores"
_DEFAULT_MOST_RANKS = 64
_ON_GPUS = workload.Unlimited(why="no document gives the rate of MPI's collectives between GPUs")
_QUANTITIES: tuple[Quantity, ...] = ("bandwidth_bytes_per_s", "latency_s")
_MOST_RANKS = 512
"""The most ranks that may queue to connect to the parent."""
_LATENCY_BELOW_BYTES = 64 * KIB
_RANK_BYTES = 64 * MIB
"""The memory of an interpreter and an MPI library with its segments."""
_PROBE_OPERATIONS = 64
_PROBE_SIZE_BYTES = MIB
_FUNCTIONAL_PROBE_SIZE_BYTES = 16 * KIB
_ENOUGH_BYTES = 64 * MIB
"""The payload above which a library's control traffic does not mislead."""

# For the plan, on the slow side: the copy rate of a rank's thread, and the minimum time of an operation.
_ESTIMATE_BYTES_PER_S = 1.5e9
_ESTIMATE_OPERATION_S = 5e-6
# Ranks that share cores poll until their turn ends: MPICH moved 0.6 MB/s in 4 to 16 ranks on 2 cores.
_ESTIMATE_TURN_S = 4e-3
_ESTIMATE_SHARED_BYTES_PER_S = 0.5e6


class Repeats(NamedTuple):
    """The repeats of an operation at one size."""

    warm: int
    operations: int
    """Operations back to back between two barriers, which make one sample."""
    samples: int

    @property
    def total(self) -> int:
        """All operations of a size."""
        return self.warm + self.operations * self.samples


def repeats(size: int, *, functional: bool) -> Repeats:
    """Return the repeats of a size, more for small ones: a sample must be far longer than a barrier's skew."""
    if functional:
        return Repeats(1, 1, 3)
    if size <= 8 * KIB:
        return Repeats(100, 100, 100)
    if size <= MIB:
        return Repeats(10, 20, 50)
    return Repeats(2, 5, 15) if size <= 64 * MIB else Repeats(1, 2, 7)


def _parse_ranks(text: str) -> int:
    """Parse the number of ranks, 0 for one per core. Raises UsageError."""
    if text == _ONE_PER_CORE:
        return 0
    try:
        return whole_number(_MOST_RANKS, least=2)(text)
    except UsageError as error:
        raise UsageError(error.message.replace("must be a", f"must be {_ONE_PER_CORE!r} or a", 1)) from error


class CollectiveOptions(Options, frozen=True):
    """Options of a collective."""

    sizes: tuple[int, ...] = option("8:16M:x8", "sizes of the operation, like 8:1G:x2", parse_sizes)
    transports: tuple[str, ...] = option("shm", "shm, tcp, or shm,tcp", choice("shm", "tcp"))
    memory: tuple[str, ...] = MEMORY_OPTION
    ranks: int = option(
        _ONE_PER_CORE,
        f"{_ONE_PER_CORE} (one per core, 2 to {_DEFAULT_MOST_RANKS}) or a number of ranks",
        _parse_ranks,
    )
    """The number of ranks; 0 means one per core."""


CollectiveJob = Job[CollectiveOptions, Transport]
CollectiveRank = Rank[CollectiveOptions, Transport]
CollectiveBenchmark = Benchmark[CollectiveOptions, Transport]


def _launches(name: str, options: CollectiveOptions, machine: Machine) -> tuple[Launch[Transport], ...]:
    """Return a launch for each transport; over several hosts a single launch with the ranks that they have."""
    places = machine.host_ranks if machine.hosts else len(machine.cpus)
    ranks = options.ranks or max(2, min(_DEFAULT_MOST_RANKS, places))
    if machine.hosts and ranks != places:
        given = f"{len(machine.hosts)} hosts with {machine.ranks_per_host} each have {places}"
        raise UsageError(f"ranks is {ranks} for {name}, but {given}",
                         hint=f"give -o ranks={places}, or another --ranks-per-host")  # fmt: skip
    return pair.launch_memories(options.memory, options.transports, machine, ranks)


def is_functional(job: CollectiveJob) -> bool:
    """Report whether ranks share cores, so that the run proves function but not speed."""
    return job.ranks_on_cpus > len(job.cpus)


def counts(operation: str, job: CollectiveJob) -> tuple[int, ...]:
    """Return the floats of each size, at least one: of the whole for all_reduce, else of one rank's share, rounded
    down.
    """
    share = FLOAT_BYTES * (job.ranks if operation in PER_RANK_COUNTED else 1)
    return tuple(dict.fromkeys(max(1, size // share) for size in job.options.sizes))


def size_bytes(operation: str, count: int, ranks: int) -> int:
    """Return the size of the operation as nccl-tests counts it."""
    return count * FLOAT_BYTES * (ranks if operation in PER_RANK_COUNTED else 1)


def moved_bytes(operation: str, size: int, ranks: int) -> int:
    """Return the minimum payload that all ranks together send in one operation: busbw's bytes times the ranks."""
    return int(ranks * busbw_factor(operation, ranks) * size)


def plan(operation: str, job: CollectiveJob) -> Plan:
    """Plan all sizes; the memory is the buffers of all ranks, the library's own and the ranks themselves."""
    functional = is_functional(job)
    operation_s, rate = _ESTIMATE_OPERATION_S, _ESTIMATE_BYTES_PER_S
    if functional:
        operation_s, rate = _ESTIMATE_TURN_S, _ESTIMATE_SHARED_BYTES_PER_S
    seconds, moved, memory, waived = 1 + 0.02 * job.ranks, 0, 0, ""
    for count in counts(operation, job):
        size = size_bytes(operation, count, job.ranks)
        often = repeats(size, functional=functional).total
        one = moved_bytes(operation, size, job.ranks)
        seconds += often * (job.ranks * operation_s + size / rate)
        moved += often * one
        memory = max(memory, job.ranks * (_buffer_bytes(operation, size, job.ranks) + _RANK_BYTES))
        if count > MOST_FLOATS:
            waived = f"sizes must be at most {MOST_FLOATS} floats, the limit of MPI counts; got {format_size(size)}"
    waived = waived or gpu_memory.explain_waiver(job)
    return Plan(path=path(job), seconds=seconds, memory_bytes=memory, moved_bytes=moved, waived=waived)


def _buffer_bytes(operation: str, size: int, ranks: int) -> int:
    """Return one rank's buffers, plus one of the size if the library reduces in memory of its own."""
    share = size // ranks
    own = {"all_reduce": size + size, "all_gather": share + size, "reduce_scatter": size + share}
    return own.get(operation, size + size) + (size if operation in ("all_reduce", "reduce_scatter") else 0)


def path(job: CollectiveJob) -> str:
    """Return the path from rank 0's memory to that of the last rank on its own core, in the farthest NUMA node."""
    last = job.ranks if job.hosts else min(job.ranks, len(job.cpus))
    return gpu_memory.name_path(job, 0, last - 1)


def run(benchmark: CollectiveBenchmark, operation: str, rank: CollectiveRank) -> Iterator[Result]:
    """Run the operation at every size over all ranks, each size with its data check and its evidence."""
    gpu_memory.prepare_ucx(rank)
    blank = benchmark.blank(path(rank.job), rank.job.case, ranks=rank.job.ranks)
    yield from waive_unavailable(rank, blank, _run_sizes(benchmark, operation, rank))


def _run_sizes(benchmark: CollectiveBenchmark, operation: str, rank: CollectiveRank) -> Iterator[Result]:
    with gpu_memory.open_gpu(rank) as device:
        yield from _measure(benchmark, operation, rank, device)


def _measure(
    benchmark: CollectiveBenchmark, operation: str, rank: CollectiveRank, device: Device | None
) -> Iterator[Result]:
    comm = rank.comm
    for count in counts(operation, rank.job):
        size = size_bytes(operation, count, rank.size)
        rank.step(f"{benchmark.name} {format_size(size)}")
        often = repeats(size, functional=is_functional(rank.job))
        collective = Collective(comm, operation, count)
        with _allocate(device, collective.sent_bytes) as out, _allocate(device, collective.received_bytes) as into:
            with (
                gpu_memory.stage(out, collective.sent_bytes, back=False) as first,
                gpu_memory.stage(into, collective.received_bytes, back=False) as second,
            ):
                collective.fill(first, second)
            meter, fabric = ConnectionMeter(), InterfaceMeter()
            seconds = collective.time(out, into, warm=often.warm, operations=often.operations, samples=often.samples)
            sent = often.total * moved_bytes(operation, size, rank.size)
            crossed = often.total * crossing_bytes(operation, size, rank.job) if rank.job.hosts else 0
            seen = fabric.evidence(comm, rank.job, crossed) if rank.job.hosts else _sum_received(rank, sent, meter)
            with gpu_memory.stage(into, collective.received_bytes, back=True) as received:
                check = collective.verify(received)
        everyone = comm.gather((seconds, check.bytes_checked, check.bytes_wrong))
        if not rank.job.hosts and rank.job.case.transport != ANY:
            seen = _confirm(rank, operation, sent, seen)
        elif rank.job.hosts and crossed < PROOF_BYTES:
            seen = _probe_transport(rank, operation)
        if rank.index == 0 and everyone is not None:
            times, checked, wrong = zip(*everyone, strict=True)
            mean = [sum(one) / rank.size for one in zip(*times, strict=True)]
            yield from _results(benchmark, operation, rank, _Measurements(size, often, mean, sum(checked), wrong, seen))


def _allocate(device: Device | None, size_bytes: int) -> Buffer | DeviceBuffer:
    return Buffer(size_bytes) if device is None else DeviceBuffer(device, size_bytes)


def _confirm(rank: CollectiveRank, operation: str, sent: int, seen: Evidence) -> Evidence:
    """Probe the transport if few bytes were sent, because control traffic can look like another transport."""
    requested = rank.job.case.transport
    is_sure = rank.comm.bcast(seen.value == requested or sent >= _ENOUGH_BYTES)
    return seen if is_sure else _probe_transport(rank, operation)


def _probe_transport(rank: CollectiveRank, operation: str) -> Evidence:
    """Return the transport of this launch, proved by many bytes. Collective over all ranks."""
    functional = is_functional(rank.job) and not rank.job.hosts
    wanted = _FUNCTIONAL_PROBE_SIZE_BYTES if functional else _PROBE_SIZE_BYTES
    count = max(1, wanted // (FLOAT_BYTES * (rank.size if operation in PER_RANK_COUNTED else 1)))
    size = size_bytes(operation, count, rank.size)
    crossing = crossing_bytes(operation, size, rank.job) if rank.job.hosts else 0
    operations = -(-PROOF_BYTES // crossing) if crossing else _PROBE_OPERATIONS
    collective = Collective(rank.comm, operation, count)
    with Buffer(collective.sent_bytes) as out, Buffer(collective.received_bytes) as into:
        meter, fabric = ConnectionMeter(), InterfaceMeter()
        collective.time(out, into, warm=0, operations=operations, samples=1)
        if crossing:
            return fabric.evidence(rank.comm, rank.job, operations * crossing)
        return _sum_received(rank, operations * moved_bytes(operation, size, rank.size), meter)


def _sum_received(rank: CollectiveRank, sent: int, meter: ConnectionMeter) -> Evidence:
    """Return the evidence of all ranks' received bytes. Collective; only rank 0 gets it."""
    every = rank.comm.gather(meter.received_bytes()) or [None]
    moved = None if None in every else sum(every)
    return transport_evidence(sent, moved, "shm", "the ranks' TCP")


class _Measurements(NamedTuple):
    """The measurements of one size on all ranks."""

    size: int
    often: Repeats
    seconds: list[float]
    bytes_checked: int
    bytes_wrong: tuple[int, ...]
    """Wrong bytes on each rank."""
    evidence: Evidence


def _results(
    benchmark: CollectiveBenchmark, operation: str, rank: CollectiveRank, seen: _Measurements
) -> Iterator[Result]:
    """Yield both rates, and below 64 KiB the time, from the same samples."""
    blank = _blank(benchmark, rank, seen)
    yield from rates(blank, operation, rank.size, seen.size, seen.seconds)
    if seen.size < _LATENCY_BELOW_BYTES:
        yield complete(blank, seen.seconds, "latency_s")


def _blank(benchmark: CollectiveBenchmark, rank: CollectiveRank, seen: _Measurements) -> Result:
    job, requested = rank.job, rank.job.case.transport
    blank = benchmark.blank(
        path(job),
        pair.Message(size_bytes=seen.size, transport=requested, memory=job.case.memory),
        settings={
            "operations": seen.often.operations,
            "warm_up": seen.often.warm,
            "element": "float32",
            "placement": "out of place",
            "mpi": library_version(),
            "thread_level": thread_level(),
            "cpus": format_cpus(sorted({job.find_cpu(index) for index in range(rank.size)})),
            "functional": is_functional(job),
        },
        ranks=rank.size,
        verification=Verification(method=PATTERN, bytes_checked=seen.bytes_checked, bytes_wrong=sum(seen.bytes_wrong)),
        evidence=(seen.evidence, *gpu_memory.list_evidence(rank, seen.size)),
    )
    return failed_if(blank, _failure(seen, requested))


def _failure(seen: _Measurements, requested: str) -> str:
    """Return the reason why a measured size is invalid, or an empty string."""
    if wrong := format_wrong(seen.bytes_wrong, "bytes"):
        return f"wrong result at {format_size(seen.size)}: {wrong}"
    if requested not in (ANY, seen.evidence.value):
        return f"{requested} was requested, but {seen.evidence.seen}: it ran over {seen.evidence.value}"
    return ""


def _benchmark(operation: str, summary: str) -> CollectiveBenchmark:
    """Return the benchmark of one operation."""
    name = f"mpi_{operation}"
    by_copies = workload.Collective(operation=operation, by="mpi", over="shm")
    by_sockets = workload.Collective(operation=operation, by="mpi", over="tcp")
    benchmark = Benchmark(
        name=name,
        summary=summary,
        method=(
            "nccl-tests' definitions: float sum, out of place, mean over ranks of the time of back-to-back operations "
            "between barriers, size and busbw factor as nccl-tests"
        ),
        results=(
            *(Declaration(what, _ON_GPUS, when={"memory": ("gpu",)}) for what in _QUANTITIES),
            *(Declaration(what, by_sockets, when={"transport": ("tcp",)}) for what in _QUANTITIES),
            *(Declaration(what, by_copies) for what in _QUANTITIES),
        ),
        options=CollectiveOptions,
        case=Transport,
        launches=functools.partial(_launches, name),
        plan=functools.partial(plan, operation),
        run=lambda rank: run(benchmark, operation, rank),
        spans_hosts=True,
    )
    return benchmark


COLLECTIVES = (
    _benchmark("all_reduce", "MPI all_reduce: the sum of all ranks' floats, on every rank"),
    _benchmark("all_gather", "MPI all_gather: the share of every rank, on every rank"),
    _benchmark("reduce_scatter", "MPI reduce_scatter: the sum of all ranks' floats, shared out"),
    _benchmark("all_to_all", "MPI all_to_all: a share of every rank for each of the others"),
)
