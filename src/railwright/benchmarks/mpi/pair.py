"""What the two MPI point-to-point benchmarks share: transports, buffers, the data check and the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, Variant, choice
from railwright.benchmarks.evidence import LoopbackMeter, transport_evidence
from railwright.benchmarks.fabric import PROOF_BYTES, FabricMeter
from railwright.limits.model import Quantity
from railwright.native.memory import PATTERN, Buffer
from railwright.native.mpi import PointToPoint, library_version, thread_level
from railwright.results.model import Evidence, Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
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
"""Enough that nobody else's traffic over the loopback interface can mislead."""

OPTIONS = (
    Option("sizes", "8:4M:x4", "message sizes, like 8:4M:x4", parse_sizes),
    Option("transports", "shm,tcp", "shm, tcp, or shm,tcp", choice(*_TRANSPORTS)),
)


class Timed(NamedTuple):
    """What a loop measured at one size."""

    samples: list[float]
    sent_bytes: int
    """Payload that rank 0 sent, or both of them if `both_ways`, warm-up included."""
    settings: dict[str, Scalar]
    messages_per_s: tuple[float, ...] = ()
    """The same samples as a rate of messages, for a record of its own."""
    both_ways: bool = False
    """Whether a bandwidth is that of both directions at once, so that rank 0 receives too."""


Loop = Callable[[PointToPoint, Buffer, Buffer, int], Timed]


def variants(options: Mapping[str, str]) -> tuple[Variant, ...]:
    """One launch for each transport, because an MPI library settles on one when it starts."""
    chosen = choice(*_TRANSPORTS)(options["transports"])
    return tuple(Variant(parameters={"transport": name}, environment=_TRANSPORTS[name]) for name in chosen)


def between_hosts(options: Mapping[str, str]) -> tuple[Variant, ...]:
    """The one launch over several hosts: shared memory reaches none of them."""
    del options
    return (Variant(parameters={"transport": "tcp"}, environment=_BETWEEN_HOSTS),)


def plan(job: Job, seconds: float, moved_bytes: int) -> Plan:
    """The plan of a pair of ranks on this machine."""
    sizes = parse_sizes(job.options["sizes"])
    too_large = [size for size in sizes if size > _GIVE_UP_BYTES]
    waived = f"MPI counts end at 2 GiB, {format_size(too_large[0])} was asked for" if too_large else ""
    return Plan(path=path(job), seconds=seconds, memory_bytes=4 * max(sizes), moved_bytes=moved_bytes, waived=waived)


def path(job: Job) -> str:
    """From the memory of rank 0 to that of rank 1."""
    return f"{job.memory_of(0)}>{job.memory_of(1)}"


def run(rank: Rank, benchmark: Benchmark, quantity: Quantity, loop: Loop) -> Iterator[Result]:
    """The loop at every size between ranks 0 and 1, each size with its data check and its evidence."""
    comm = rank.comm
    pair = PointToPoint(comm)
    for size in parse_sizes(rank.job.options["sizes"]):
        rank.step(f"{benchmark.name} {format_size(size)}")
        with Buffer(max(size, 1)) as out, Buffer(max(size, 1)) as into:
            out.fill(_seed(size, rank.index))
            into.fill(_seed(size, 2))  # poison: what a rank that received nothing would hold
            meter, fabric = LoopbackMeter(), FabricMeter()
            timed = loop(pair, out, into, size)
            seen = transport_evidence(timed.sent_bytes, meter.moved_bytes(), "shm")
            # In a one-way loop rank 0 receives nothing, and its poison must have stayed.
            one_way = quantity == "bandwidth_bytes_per_s" and not timed.both_ways
            check = into.verify(_seed(size, 2 if one_way and rank.index == 0 else 1 - rank.index), size)
        checks = comm.gather((check.bytes_checked, check.bytes_wrong))
        asked = rank.job.variant.parameters["transport"]
        # Few bytes and somebody else's traffic over lo can look like another transport; only then is it probed, for
        # a probe leaves the MPI library's pools larger, and small messages 10 % slower.
        if rank.job.hosts:
            enough = comm.bcast(timed.sent_bytes >= PROOF_BYTES)
            seen = fabric.evidence(comm, rank.job, timed.sent_bytes) if enough else _probe_fabric(rank, pair)
        elif comm.bcast((seen.value != "shm" or asked == "tcp") and timed.sent_bytes < _PROBE_BYTES):
            seen = _probe(pair)
        if rank.index == 0 and checks is not None:
            result = _result(rank, benchmark, quantity, size, timed, checks, seen)
            if timed.messages_per_s:
                yield msgspec.structs.replace(
                    result,
                    quantity="messages_per_s",
                    samples=timed.messages_per_s,
                    summary=summarise(timed.messages_per_s),
                )
            yield result


def _probe(pair: PointToPoint) -> Evidence:
    """Which way this launch's messages take, by many bytes of them. Collective over both ranks."""
    with Buffer(_PROBE_MESSAGE_BYTES) as out, Buffer(_PROBE_MESSAGE_BYTES) as into:
        meter = LoopbackMeter()
        window = _PROBE_BYTES // _PROBE_MESSAGE_BYTES
        pair.window(out, into, _PROBE_MESSAGE_BYTES, window=window, warm=0, iterations=1)
        return transport_evidence(_PROBE_BYTES, meter.moved_bytes(), "shm")


def _probe_fabric(rank: Rank, pair: PointToPoint) -> Evidence:
    """The same between two hosts, by as many bytes as prove it there. Collective over both ranks."""
    with Buffer(_PROBE_MESSAGE_BYTES) as out, Buffer(_PROBE_MESSAGE_BYTES) as into:
        meter = FabricMeter()
        window = PROOF_BYTES // _PROBE_MESSAGE_BYTES
        pair.window(out, into, _PROBE_MESSAGE_BYTES, window=window, warm=0, iterations=1)
        return meter.evidence(rank.comm, rank.job, PROOF_BYTES)


def _seed(size: int, who: int) -> int:
    return 4 * size + who


def _result(
    rank: Rank,
    benchmark: Benchmark,
    quantity: Quantity,
    size: int,
    timed: Timed,
    checks: list[tuple[int, int]],
    evidence: Evidence,
) -> Result:
    job = rank.job
    asked = str(job.variant.parameters["transport"])
    ran_elsewhere = evidence.value != asked
    reason = f"{asked} was asked for, but {evidence.seen}: it ran over {evidence.value}" if ran_elsewhere else ""
    cpus = sorted({job.cpu_of(0), job.cpu_of(1)})
    return Result(
        benchmark=benchmark.name,
        quantity=quantity,
        path=path(job),
        outcome="failed" if ran_elsewhere else "measured",
        reason=reason,
        method=benchmark.method,
        parameters={"size_bytes": size, "transport": asked},
        settings={
            **timed.settings,
            "mpi": library_version(),
            "thread_level": thread_level(),
            "cpus": ",".join(map(str, cpus)),
            "oversubscribed": len(cpus) < job.ranks_on_cpus,
        },
        ranks=rank.size,
        samples=tuple(timed.samples),
        summary=summarise(timed.samples),
        verification=Verification(
            method=PATTERN,
            bytes_checked=sum(checked for checked, _ in checks),
            bytes_wrong=sum(wrong for _, wrong in checks),
        ),
        evidence=(evidence,),
    )
