"""Direct reads of a file (O_DIRECT, random order) by io_uring, or by threads where io_uring is forbidden."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks import direct_read
from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.benchmarks.direct_read import Target
from railwright.native.files import Extent
from railwright.results.model import Result
from railwright.units import format_size, parse_size

_ESTIMATE_BYTES_PER_S = 0.5e9


def _plan(job: Job) -> Plan:
    size = parse_size(job.options["file-size"])
    return Plan(
        path=f"{direct_read.device_of(job.topology, job.options['directory'])}>{job.memory_of(0)}",
        seconds=2 + 10 * size / _ESTIMATE_BYTES_PER_S,
        memory_bytes=direct_read.memory_bytes(job.options),
        moved_bytes=17 * size,
        files=(f"a nameless file of {format_size(size)} in {job.options['directory']}",),
        waived=direct_read.problem(job),
    )


def _run(rank: Rank) -> Iterator[Result]:
    rank.step("writing the test file")
    with direct_read.test_file(rank.job) as fd:
        whole = Extent(0, 0, parse_size(rank.job.options["file-size"]))
        yield from direct_read.measure(rank, BENCHMARK.name, BENCHMARK.method, Target(fd, (whole,)))


BENCHMARK = Benchmark(
    name="file_read",
    summary="direct reads of a file into host memory",
    method="fio randread: O_DIRECT, every block once in random order, a fixed number in flight",
    quantities=("bandwidth_bytes_per_s", "operations_per_s", "latency_s"),
    ranks=1,
    plan=_plan,
    run=_run,
    options=direct_read.OPTIONS,
)
