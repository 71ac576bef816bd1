"""Direct reads of a file (O_DIRECT) by io_uring, or by pools of threads where io_uring is forbidden."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.files import direct_read
from railwright.benchmarks.files.direct_file import over_test_file
from railwright.benchmarks.files.direct_io import DirectOptions, Target, declared
from railwright.benchmarks.files.direct_read import DirectRank
from railwright.native.files import Extent
from railwright.results.records import Result
from railwright.results.workload import Files


def _run(rank: DirectRank) -> Iterator[Result]:
    whole = Extent(0, 0, rank.job.options.file_size)
    blank = BENCHMARK.blank(direct_read.path(rank.job))
    yield from over_test_file(rank, blank, lambda fd: direct_read.measure(rank, blank, Target(fd, (whole,))))


BENCHMARK = Benchmark(
    name="file_read",
    summary="direct reads of a file into host memory",
    method="fio randread: O_DIRECT, each block at most once a pass, so many in flight on each thread",
    results=declared(Files(), "file read"),
    options=DirectOptions,
    plan=direct_read.plan,
    run=_run,
)
