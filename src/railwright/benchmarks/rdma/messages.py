"""RDMA writes, reads and sends between two processes by verbs alone: streams, and ping-pongs of one queue pair.

The method is that of perftest: ib_write_bw, ib_read_bw, ib_send_bw and their _lat. Every sample of a stream is a whole
run of perftest, from the first request to the last completion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.gpu.job import waiver_reason
from railwright.benchmarks.rdma.connection import RdmaRank, connect, open_gpu
from railwright.benchmarks.rdma.measurement import PINGS_S, SAMPLE_S, SAMPLES, Measured, Measurement
from railwright.benchmarks.rdma.options import (
    GPU,
    MemoryCase,
    RdmaJob,
    RdmaOptions,
    Setup,
    explain_no_port,
    launch_memories,
    list_points,
    list_setups,
    name_path,
    region_bytes,
)
from railwright.benchmarks.rdma.registration import try_registrations
from railwright.benchmarks.record import complete, format_cpus, latencies
from railwright.benchmarks.together import open_on_all_ranks, waive_unavailable
from railwright.native.cuda import Device
from railwright.native.rdma import Operation
from railwright.native.verbs import bind
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Message
from railwright.units import format_size

_ESTIMATE_START_S, _ESTIMATE_BYTES_PER_S = 2.0, 10e9

RdmaBenchmark = Benchmark[RdmaOptions, MemoryCase]


def _plan(job: RdmaJob) -> Plan:
    setups = list_setups(job)
    points = sum(len(list_points(job, setup)) for setup in setups)
    streaming_s = points * SAMPLE_S * (SAMPLES + 1)
    regions = [2 * job.ranks * region_bytes(job.options, setup) for setup in setups]
    return Plan(
        path=name_path(job),
        seconds=_ESTIMATE_START_S + streaming_s + points * PINGS_S,
        memory_bytes=0 if job.case.memory == GPU else max(regions, default=0),
        moved_bytes=int(streaming_s * _ESTIMATE_BYTES_PER_S),
        waived=(waiver_reason(job) if job.case.memory == GPU else "") or explain_no_port(job),
    )


def _run(rank: RdmaRank, benchmark: RdmaBenchmark, operation: Operation) -> Iterator[Result]:
    blank = benchmark.blank(name_path(rank.job), rank.job.case, ranks=rank.size)
    yield from waive_unavailable(rank, blank, _run_setups(rank, benchmark, operation, blank))


def _run_setups(rank: RdmaRank, benchmark: RdmaBenchmark, operation: Operation, blank: Result) -> Iterator[Result]:
    with contextlib.ExitStack() as stack:
        rank.step("libibverbs")
        open_on_all_ranks(rank, bind)
        device = open_gpu(rank, stack)
        tried = try_registrations(device) if device is not None else ()
        for setup in list_setups(rank.job):
            varied = replace(blank, parameters=blank.parameters | setup.parameters(), evidence=tried)
            results = _run_setup(rank, benchmark, operation, setup, device)
            for result in waive_unavailable(rank, varied, results):
                yield replace(result, evidence=tuple(dict.fromkeys((*result.evidence, *tried))))


def _run_setup(
    rank: RdmaRank, benchmark: RdmaBenchmark, operation: Operation, setup: Setup, device: Device | None
) -> Iterator[Result]:
    with contextlib.ExitStack() as stack:
        connection = connect(rank, setup, device, stack)
        for point in list_points(rank.job, setup):
            rank.step(f"{benchmark.name} {format_size(point.size_bytes)}, {point.direction} way, {setup.nics}")
            measurement = Measurement(rank, operation, connection, point)
            settings = connection.settings | {"cpus": format_cpus(sorted({rank.job.find_cpu(one) for one in (0, 1)}))}
            blank = benchmark.blank(name_path(rank.job), point, ranks=rank.size, settings=settings)
            if measurement.has_latency:
                timed = measurement.latency()
                if rank.index == 0:
                    yield latencies(_add(blank, timed), timed.samples)
            timed = measurement.stream()
            if rank.index == 0:
                yield complete(_add(blank, timed), timed.samples, "bandwidth_bytes_per_s")
        rank.comm.barrier()  # a side that closed earlier would take its memory from the other


def _add(blank: Result, timed: Measured) -> Result:
    settings = blank.settings | timed.settings
    return replace(blank, settings=settings, verification=timed.verification, evidence=timed.evidence)


def _benchmark(operation: Operation, summary: str) -> RdmaBenchmark:
    def message(*, both_ways: bool) -> Message:
        return Message(by="verbs", one_sided=operation != "send", both_ways=both_ways)

    made: RdmaBenchmark = Benchmark(
        name=f"rdma_{operation}",
        summary=summary,
        method=f"perftest ib_{operation}_bw and ib_{operation}_lat: 128 requests in flight on each queue pair, from the"
        " first request to the last completion; "
        + ("the time of a single read" if operation == "read" else "half of a ping-pong's round trip"),
        results=(
            Declaration("latency_s", message(both_ways=False)),
            Declaration("bandwidth_bytes_per_s", message(both_ways=True), {"direction": ("both",)}),
            Declaration("bandwidth_bytes_per_s", message(both_ways=False)),
        ),
        options=RdmaOptions,
        case=MemoryCase,
        launches=launch_memories,
        plan=_plan,
        run=lambda rank: _run(rank, made, operation),
        spans_hosts=True,
        in_pairs=True,
    )
    return made


WRITE = _benchmark("write", "RDMA writes from one process into the memory of another, by verbs alone")
READ = _benchmark("read", "RDMA reads by one process from the memory of another, by verbs alone")
SEND = _benchmark("send", "RDMA sends into the receives of another process, by verbs alone")
