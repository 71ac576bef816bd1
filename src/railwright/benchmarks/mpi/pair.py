"""The parts that MPI point-to-point benchmarks share: transports, buffers, data check and evidence.

A launch has one pair of ranks or several at once: rank i of n pairs sends to rank i + n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import ConnectionMeter, transport_evidence
from railwright.benchmarks.fabric import PROOF_BYTES, InterfaceMeter
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.mpi import gpu_memory
from railwright.benchmarks.mpi.gpu_memory import ANY, GPU, HOST, MEMORY_OPTION, Transport
from railwright.benchmarks.options import Options, choice, option
from railwright.benchmarks.pages import allocate_buffer, check_placement, choose_pages, pages_evidence, pages_option
from railwright.benchmarks.record import complete, format_cpus, sum_checks
from railwright.benchmarks.together import waive_unavailable
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint, library_version, thread_level
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.topology.devices import Scalar
from railwright.units import MIB, format_size, parse_sizes

# Variables of both MPIs together: each ignores the other's.
_TRANSPORTS: dict[str, dict[str, str]] = {
    "shm": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"},
    "tcp": {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",  # MPICH's UCX does not reach a peer on its own host over tcp
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
    },
}
_BETWEEN_HOSTS = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
}
"""TCP to other hosts, over the interfaces that the launch names; shared memory inside each."""
_MOST_MESSAGE_BYTES = 2**31 - 1
"""The limit of MPI counts, which are C ints."""
_PROBE_MESSAGE_BYTES = MIB
_PROBE_BYTES = 64 * MIB
"""The payload above which a library's control traffic does not mislead."""
_CARRIER = "this rank's TCP"


class PairOptions(Options, frozen=True):
    """Options of a benchmark between pairs of ranks."""

    sizes: tuple[int, ...] = option("8:4M:x4", "message sizes, like 8:4M:x4", parse_sizes)
    transports: tuple[str, ...] = option("shm,tcp", "shm, tcp, or shm,tcp", choice(*_TRANSPORTS))
    pages: tuple[str, ...] = pages_option("small,huge", "messages (OSU's lie on small ones)")
    memory: tuple[str, ...] = MEMORY_OPTION


class Message(Case, frozen=True, kw_only=True):
    """A message size of a launch."""

    size_bytes: int
    transport: str
    pages: str = ""
    """`huge` or `small`; empty if the buffers have no choice of pages."""
    pairs: int = 1
    """Pairs that send at once; rates are their sum."""
    memory: str = HOST


PairJob = Job[PairOptions, Transport]
PairRank = Rank[PairOptions, Transport]
PairBenchmark = Benchmark[PairOptions, Transport]


class Timed(NamedTuple):
    """A loop's measurements at one size."""

    samples: list[float]
    sent_bytes: int
    """Payload that one rank sent, or both of a pair if `both_ways`, warm-up included."""
    settings: dict[str, Scalar]
    messages_per_s: tuple[float, ...] = ()
    """The same samples as a rate of messages, for a separate record."""
    both_ways: bool = False
    """Whether a bandwidth covers both directions at once, so that every rank receives."""


AnyBuffer = Buffer | DeviceBuffer
Loop = Callable[[PairRank, PointToPoint, AnyBuffer, AnyBuffer, int], Timed]
"""Times one size in a rank's pair. Collective over all ranks; only rank 0's result is used."""


def launch_transports(transports: tuple[str, ...], ranks: int) -> tuple[Launch[Transport], ...]:
    """Return a launch for each transport, because an MPI library chooses one when it starts."""
    cases = ((Transport(transport=name), _TRANSPORTS[name]) for name in transports)
    return tuple(Launch(case=case, environment=variables, ranks=ranks) for case, variables in cases)


def launch_hosts(ranks: int) -> tuple[Launch[Transport], ...]:
    """Return the single launch over several hosts, which shared memory does not connect."""
    return (Launch(case=Transport(transport="tcp"), environment=_BETWEEN_HOSTS, ranks=ranks),)


def launches(options: PairOptions, machine: Machine, pairs: int = 1) -> tuple[Launch[Transport], ...]:
    """Return the launches of this many pairs of ranks."""
    return launch_memories(options.memory, options.transports, machine, 2 * pairs)


def launch_memories(
    memories: tuple[str, ...], transports: tuple[str, ...], machine: Machine, ranks: int
) -> tuple[Launch[Transport], ...]:
    """Return the launches with buffers in host memory, one for each transport, and the one with GPU memory."""
    on_hosts = launch_hosts(ranks) if machine.hosts else launch_transports(transports, ranks)
    on_gpus = (gpu_memory.launch_on_gpus(machine, ranks),)
    return (*on_hosts * (HOST in memories), *on_gpus * (GPU in memories))


def count_pairs(job: PairJob) -> int:
    """Return the number of pairs in a launch."""
    return job.ranks // 2


def plan(job: PairJob, messages: list[tuple[int, int]], message_s: float, bytes_per_s: float) -> Plan:
    """Plan pairs of ranks that each send messages, given as (size, count), from estimates of time and rate."""
    sizes = job.options.sizes
    too_large = [size for size in sizes if size > _MOST_MESSAGE_BYTES]
    waived = f"sizes must be below 2 GiB, the limit of MPI counts; got {format_size(too_large[0])}" if too_large else ""
    waived = waived or gpu_memory.explain_waiver(job)
    repeated = [(size, count * len(_choose_pages(job, size)) * count_pairs(job)) for size, count in messages]
    return Plan(
        path=_path(job),
        seconds=1 + sum(count * (message_s + size / bytes_per_s) for size, count in repeated),
        memory_bytes=2 * job.ranks * max(sizes),
        moved_bytes=sum(size * count for size, count in repeated),
        waived=waived,
    )


def _path(job: PairJob) -> str:
    """Return the path of the first pair."""
    return gpu_memory.name_path(job, 0, count_pairs(job))


def _choose_pages(job: PairJob, size: int) -> tuple[str, ...]:
    """Return the pages of a size; between hosts a single kind, because the network decides there."""
    if job.case.memory == GPU:
        return ("",)
    return choose_pages(size, job.options.pages[:1] if job.hosts else job.options.pages)


def run(rank: PairRank, benchmark: PairBenchmark, loop: Loop) -> Iterator[Result]:
    """Run the loop at every size in all pairs, each size with its data check and its evidence."""
    gpu_memory.prepare_ucx(rank)
    blank = benchmark.blank(_path(rank.job), rank.job.case, ranks=rank.job.ranks)
    yield from waive_unavailable(rank, blank, _run_sizes(rank, benchmark, loop))


def _run_sizes(rank: PairRank, benchmark: PairBenchmark, loop: Loop) -> Iterator[Result]:
    comm, pairs = rank.comm, count_pairs(rank.job)
    pair = PointToPoint(comm if pairs == 1 else comm.Split(rank.index % pairs, rank.index))
    with gpu_memory.open_gpu(rank) as device:
        for size in rank.job.options.sizes:
            for pages in _choose_pages(rank.job, size):
                yield from _measure(rank, benchmark, loop, pair, _Point(size, pages, device))


class _Point(NamedTuple):
    """A size, and the kind of its buffers."""

    size: int
    pages: str
    device: Device | None
    """The GPU that has the buffers, or None for host memory."""

    def allocate(self) -> AnyBuffer:
        """Allocate a buffer."""
        if self.device is not None:
            return DeviceBuffer(self.device, max(1, self.size))
        return allocate_buffer(self.pages, self.size)


def _measure(
    rank: PairRank, benchmark: PairBenchmark, loop: Loop, pair: PointToPoint, point: _Point
) -> Iterator[Result]:
    """Measure one size in all pairs. Collective; rank 0 yields."""
    comm, pairs, requested, size = rank.comm, count_pairs(rank.job), rank.job.case.transport, point.size
    partner = (rank.index + pairs) % rank.size
    is_latency = benchmark.quantity == "latency_s"
    where = "GPU memory" if point.device is not None else f"{point.pages} pages"
    rank.step(f"{benchmark.name} {format_size(size)}, {where}")
    with point.allocate() as out, point.allocate() as into:
        lies = pages_evidence(into) if isinstance(into, Buffer) else None
        out.fill(_seed(rank, size, rank.index))
        into.fill(_seed(rank, size, rank.size))  # poison: a rank that receives nothing keeps it
        meter, fabric = ConnectionMeter(), InterfaceMeter()
        comm.barrier()  # the other ranks' first messages count as well
        timed = loop(rank, pair, out, into, size)
        comm.barrier()  # sent data may still be in a socket; by now it has been received
        seen = transport_evidence(timed.sent_bytes, meter.moved_bytes(), "shm", _CARRIER)
        # In a one-way loop the first of a pair receives nothing, and its poison must remain.
        one_way = not is_latency and not timed.both_ways
        check = into.verify(_seed(rank, size, rank.size if one_way and rank.index < pairs else partner), size)
    checks = comm.gather(check)
    ways = comm.gather(seen) or [seen]
    seen = next((way for way in ways[:pairs] if way.value != requested), seen)  # pairs may use different transports
    # With few bytes, control traffic can look like another transport. Only then is it probed, because a probe
    # leaves the MPI library's pools larger, and small messages 10 % slower.
    if rank.job.hosts:
        enough = comm.bcast(pairs * timed.sent_bytes >= PROOF_BYTES)
        seen = fabric.evidence(comm, rank.job, pairs * timed.sent_bytes) if enough else _probe_transport(rank, pair)
    elif requested != ANY and comm.bcast(
        (seen.value != "shm" or requested == "tcp") and timed.sent_bytes < _PROBE_BYTES
    ):
        seen = _probe_transport(rank, pair)
    if requested == ANY and seen.value == "shm":
        seen = replace(seen, value="not tcp")
    if rank.index == 0 and checks is not None:
        message = Message(
            size_bytes=size, transport=requested, pages=point.pages, pairs=pairs, memory=rank.job.case.memory
        )
        evidence = (seen, *((lies,) if lies is not None else ()), *gpu_memory.list_evidence(rank, size))
        blank = _blank(rank, benchmark, message, timed, checks, evidence)
        if timed.messages_per_s:
            yield complete(blank, timed.messages_per_s, "messages_per_s")
        yield complete(blank, timed.samples, "latency_s" if is_latency else "bandwidth_bytes_per_s")


def _probe_transport(rank: PairRank, pair: PointToPoint) -> Evidence:
    """Return the transport of this launch, proved by enough bytes. Collective over all ranks."""
    payload_bytes = PROOF_BYTES if rank.job.hosts else _PROBE_BYTES
    meter, fabric = ConnectionMeter(), InterfaceMeter()
    with Buffer(_PROBE_MESSAGE_BYTES) as out, Buffer(_PROBE_MESSAGE_BYTES) as into:
        window = payload_bytes // _PROBE_MESSAGE_BYTES
        rank.comm.barrier()
        pair.window(out, into, _PROBE_MESSAGE_BYTES, window=window, warm=0, iterations=1)
        rank.comm.barrier()
    if rank.job.hosts:
        return fabric.evidence(rank.comm, rank.job, count_pairs(rank.job) * payload_bytes)
    return transport_evidence(payload_bytes, meter.moved_bytes(), "shm", _CARRIER)


def _seed(rank: PairRank, size: int, who: int) -> int:
    return 2 * rank.size * size + who


def _blank(
    rank: PairRank,
    benchmark: PairBenchmark,
    message: Message,
    timed: Timed,
    checks: list[Verification],
    evidence: tuple[Evidence, ...],
) -> Result:
    """Return the record without samples; `evidence` begins with transport and pages."""
    job, requested = rank.job, rank.job.case.transport
    cpus = sorted({job.find_cpu(index) for index in range(rank.size)})
    blank = benchmark.blank(
        _path(job),
        message,
        ranks=rank.size,
        settings={
            **timed.settings,
            "mpi": library_version(),
            "thread_level": thread_level(),
            "cpus": format_cpus(cpus),
            "oversubscribed": len(cpus) < job.ranks_on_cpus,
        },
        verification=sum_checks(checks),
        evidence=evidence,
    )
    if message.memory == GPU:
        return blank
    way, lies = evidence
    elsewhere = f"{requested} was requested, but {way.seen}: it ran over {way.value}"
    return check_placement(blank, message.pages, lies, elsewhere if way.value != requested else "")


def benchmark(
    name: str,
    summary: str,
    method: str,
    results: tuple[Declaration, ...],
    plan: Callable[[PairJob], Plan],
    loop: Loop,
) -> PairBenchmark:
    """Return the benchmark of a loop."""
    made: PairBenchmark = Benchmark(
        name=name,
        summary=summary,
        method=method,
        results=results,
        options=PairOptions,
        case=Transport,
        launches=launches,
        plan=plan,
        run=lambda rank: run(rank, made, loop),
        spans_hosts=True,
    )
    return made
