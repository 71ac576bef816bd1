"""Shared parts of the MPI point-to-point benchmarks: transports, buffers, the data check and the evidence.

A launch has one pair of ranks, or several that are at work at once: rank i of n pairs sends to rank i + n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import ConnectionMeter, transport_evidence
from railwright.benchmarks.fabric import PROOF_BYTES, InterfaceMeter
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import Options, choice, option
from railwright.benchmarks.pages import buffer_on, kinds_at, pages_evidence, pages_option, unless_elsewhere
from railwright.benchmarks.record import joined, measured, summed
from railwright.native.memory import Buffer
from railwright.native.mpi import PointToPoint, library_version, thread_level
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.topology.devices import Scalar
from railwright.units import MIB, format_size, parse_sizes

# Variables of both MPIs side by side: each ignores the other's.
_TRANSPORTS: dict[str, dict[str, str]] = {
    "shm": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"},
    "tcp": {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",  # MPICH's UCX does not reach a peer of its own host over tcp
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
_GIVE_UP_BYTES = 2**31 - 1
"""MPI counts are C ints."""
_PROBE_MESSAGE_BYTES = MIB
_PROBE_BYTES = 64 * MIB
"""Enough that what a library says of itself does not mislead."""
_CARRIER = "this rank's TCP"


class PairOptions(Options, frozen=True):
    """Options of a benchmark between pairs of ranks."""

    sizes: tuple[int, ...] = option("8:4M:x4", "message sizes, like 8:4M:x4", parse_sizes)
    transports: tuple[str, ...] = option("shm,tcp", "shm, tcp, or shm,tcp", choice(*_TRANSPORTS))
    pages: tuple[str, ...] = pages_option("small,huge", "messages (OSU's lie on small ones)")


class Transport(Case, frozen=True, kw_only=True):
    """Which way the messages of a launch are to take."""

    transport: str


class Message(Case, frozen=True, kw_only=True):
    """One size of a launch."""

    size_bytes: int
    transport: str
    pages: str = ""
    """`huge` or `small`; empty where the buffers have no choice of pages."""
    pairs: int = 1
    """Pairs that send at once; rates are their sum."""


PairJob = Job[PairOptions, Transport]
PairRank = Rank[PairOptions, Transport]
PairBenchmark = Benchmark[PairOptions, Transport]


class Timed(NamedTuple):
    """What a loop measured at one size."""

    samples: list[float]
    sent_bytes: int
    """Payload that one rank sent, or both of a pair if `both_ways`, warm-up included."""
    settings: dict[str, Scalar]
    messages_per_s: tuple[float, ...] = ()
    """The same samples as a rate of messages, for a record of its own."""
    both_ways: bool = False
    """Whether a bandwidth is that of both directions at once, so that every rank receives."""


Loop = Callable[[PairRank, PointToPoint, Buffer, Buffer, int], Timed]
"""Times one size in the pair of a rank. Collective over all ranks; what it returns counts on rank 0."""


def over_transports(transports: tuple[str, ...], ranks: int) -> tuple[Launch[Transport], ...]:
    """One launch for each transport, because an MPI library settles on one when it starts."""
    cases = ((Transport(transport=name), _TRANSPORTS[name]) for name in transports)
    return tuple(Launch(case=case, environment=variables, ranks=ranks) for case, variables in cases)


def between_hosts(ranks: int) -> tuple[Launch[Transport], ...]:
    """The one launch over several hosts: shared memory reaches none of them."""
    return (Launch(case=Transport(transport="tcp"), environment=_BETWEEN_HOSTS, ranks=ranks),)


def launches(options: PairOptions, machine: Machine, pairs: int = 1) -> tuple[Launch[Transport], ...]:
    """Those of so many pairs of ranks."""
    return between_hosts(2 * pairs) if machine.hosts else over_transports(options.transports, 2 * pairs)


def pairs_of(job: PairJob) -> int:
    """The number of pairs in a launch."""
    return job.ranks // 2


def plan(job: PairJob, messages: list[tuple[int, int]], message_s: float, bytes_per_s: float) -> Plan:
    """The plan of pairs of ranks that each send messages, (size, how many), which are estimated to take so long."""
    sizes = job.options.sizes
    too_large = [size for size in sizes if size > _GIVE_UP_BYTES]
    waived = f"MPI counts end at 2 GiB, {format_size(too_large[0])} was asked for" if too_large else ""
    repeated = [(size, count * len(_pages(job, size)) * pairs_of(job)) for size, count in messages]
    return Plan(
        path=_path(job),
        seconds=1 + sum(count * (message_s + size / bytes_per_s) for size, count in repeated),
        memory_bytes=2 * job.ranks * max(sizes),
        moved_bytes=sum(size * count for size, count in repeated),
        waived=waived,
    )


def _path(job: PairJob) -> str:
    """The path of the first pair."""
    return f"{job.memory_of(0)}>{job.memory_of(pairs_of(job))}"


def _pages(job: PairJob, size: int) -> tuple[str, ...]:
    """The pages of a size; between hosts one kind, since there the network decides."""
    return kinds_at(size, job.options.pages[:1] if job.hosts else job.options.pages)


def run(rank: PairRank, benchmark: PairBenchmark, loop: Loop) -> Iterator[Result]:
    """The loop at every size in all pairs, each size with its data check and its evidence."""
    comm, pairs, asked = rank.comm, pairs_of(rank.job), rank.job.case.transport
    partner = (rank.index + pairs) % rank.size
    pair = PointToPoint(comm if pairs == 1 else comm.Split(rank.index % pairs, rank.index))
    is_latency = benchmark.quantity == "latency_s"
    every = [(size, pages) for size in rank.job.options.sizes for pages in _pages(rank.job, size)]
    for size, pages in every:
        rank.step(f"{benchmark.name} {format_size(size)}, {pages} pages")
        with buffer_on(pages, size) as out, buffer_on(pages, size) as into:
            lies = pages_evidence(into)
            out.fill(_seed(rank, size, rank.index))
            into.fill(_seed(rank, size, rank.size))  # poison: what a rank that received nothing would hold
            meter, fabric = ConnectionMeter(), InterfaceMeter()
            comm.barrier()  # the other ranks' first messages are counted, too
            timed = loop(rank, pair, out, into, size)
            comm.barrier()  # what was sent may still lie in a socket: now it has been received
            seen = transport_evidence(timed.sent_bytes, meter.moved_bytes(), "shm", _CARRIER)
            # In a one-way loop the first of a pair receives nothing, and its poison must have stayed.
            one_way = not is_latency and not timed.both_ways
            check = into.verify(_seed(rank, size, rank.size if one_way and rank.index < pairs else partner), size)
        checks = comm.gather(check)
        ways = comm.gather(seen) or [seen]
        seen = next((way for way in ways[:pairs] if way.value != asked), seen)  # one pair may take another way
        # Few bytes and what the library says of itself can look like another transport; only then is it probed, for a
        # probe leaves the MPI library's pools larger, and small messages 10 % slower.
        if rank.job.hosts:
            enough = comm.bcast(pairs * timed.sent_bytes >= PROOF_BYTES)
            seen = fabric.evidence(comm, rank.job, pairs * timed.sent_bytes) if enough else _probe(rank, pair)
        elif comm.bcast((seen.value != "shm" or asked == "tcp") and timed.sent_bytes < _PROBE_BYTES):
            seen = _probe(rank, pair)
        if rank.index == 0 and checks is not None:
            message = Message(size_bytes=size, transport=asked, pages=pages, pairs=pairs)
            blank = _blank(rank, benchmark, message, timed, checks, (seen, lies))
            if timed.messages_per_s:
                yield measured(blank, timed.messages_per_s, "messages_per_s")
            yield measured(blank, timed.samples, "latency_s" if is_latency else "bandwidth_bytes_per_s")


def _probe(rank: PairRank, pair: PointToPoint) -> Evidence:
    """Return the transport of this launch, proved by enough bytes. Collective over all ranks."""
    payload_bytes = PROOF_BYTES if rank.job.hosts else _PROBE_BYTES
    meter, fabric = ConnectionMeter(), InterfaceMeter()
    with Buffer(_PROBE_MESSAGE_BYTES) as out, Buffer(_PROBE_MESSAGE_BYTES) as into:
        window = payload_bytes // _PROBE_MESSAGE_BYTES
        rank.comm.barrier()
        pair.window(out, into, _PROBE_MESSAGE_BYTES, window=window, warm=0, iterations=1)
        rank.comm.barrier()
    if rank.job.hosts:
        return fabric.evidence(rank.comm, rank.job, pairs_of(rank.job) * payload_bytes)
    return transport_evidence(payload_bytes, meter.moved_bytes(), "shm", _CARRIER)


def _seed(rank: PairRank, size: int, who: int) -> int:
    return 2 * rank.size * size + who


def _blank(
    rank: PairRank,
    benchmark: PairBenchmark,
    message: Message,
    timed: Timed,
    checks: list[Verification],
    evidence: tuple[Evidence, Evidence],
) -> Result:
    """The record without samples; `evidence` is of the way and of the pages."""
    job, asked = rank.job, rank.job.case.transport
    cpus = sorted({job.cpu_of(index) for index in range(rank.size)})
    blank = benchmark.blank(
        _path(job),
        message,
        ranks=rank.size,
        settings={
            **timed.settings,
            "mpi": library_version(),
            "thread_level": thread_level(),
            "cpus": joined(cpus),
            "oversubscribed": len(cpus) < job.ranks_on_cpus,
        },
        verification=summed(checks),
        evidence=evidence,
    )
    way, lies = evidence
    elsewhere = f"{asked} was asked for, but {way.seen}: it ran over {way.value}"
    return unless_elsewhere(blank, message.pages, lies, elsewhere if way.value != asked else "")


def benchmark(
    name: str,
    summary: str,
    method: str,
    results: tuple[Declaration, ...],
    plan: Callable[[PairJob], Plan],
    loop: Loop,
) -> PairBenchmark:
    """The benchmark of a loop in one pair."""
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
