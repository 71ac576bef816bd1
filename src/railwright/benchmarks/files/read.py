"""Direct reads of a file (O_DIRECT) by io_uring, or by pools of threads where io_uring is forbidden."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Rank
from railwright.benchmarks.files import direct_read
from railwright.benchmarks.files.direct_file import over_test_file
from railwright.benchmarks.files.direct_read import Target
from railwright.native.files import Extent
from railwright.results.model import Result
from railwright.units import parse_size


def _run(rank: Rank) -> Iterator[Result]:
    whole = Extent(0, 0, parse_size(rank.job.options["file-size"]))
    blank = direct_read.blank(rank, BENCHMARK.name, BENCHMARK.method)
    yield from over_test_file(rank, blank, lambda fd: direct_read.measure(rank, blank, Target(fd, (whole,))))


BENCHMARK = Benchmark(
    name="file_read",
    summary="direct reads of a file into host memory",
    method="fio randread: O_DIRECT, each block at most once a pass, so many in flight on each thread",
    quantities=("bandwidth_bytes_per_s", "operations_per_s", "latency_s"),
    ranks=1,
    plan=direct_read.plan,
    run=_run,
    options=direct_read.OPTIONS,
)
