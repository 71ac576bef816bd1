"""Direct reads of a file (O_DIRECT, random order) by io_uring, or by threads where io_uring is forbidden."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks import direct_read
from railwright.benchmarks.base import Benchmark, Rank
from railwright.benchmarks.direct_read import Target
from railwright.native.files import Extent
from railwright.results.model import Result
from railwright.units import parse_size


def _run(rank: Rank) -> Iterator[Result]:
    rank.step("writing the test file")
    with direct_read.test_file(rank.job) as fd:
        whole = Extent(0, 0, parse_size(rank.job.options["file-size"]))
        yield from direct_read.measure(rank, BENCHMARK.name, BENCHMARK.method, Target(fd, (whole,)))


BENCHMARK = Benchmark(
    name="file_read",
    summary="direct reads of a file into host memory",
    method="fio randread: O_DIRECT, blocks in random order, each at most once a pass, a fixed number in flight",
    quantities=("bandwidth_bytes_per_s", "operations_per_s", "latency_s"),
    ranks=1,
    plan=direct_read.plan,
    run=_run,
    options=direct_read.OPTIONS,
)
