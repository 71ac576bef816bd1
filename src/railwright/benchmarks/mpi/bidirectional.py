"""MPI bandwidth between two ranks in both directions at once: windows of 64 sends each way, as osu_bibw measures it."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import PairOptions, PairRank, Transport, Windows
from railwright.results.model import Result

_WINDOWS = Windows(both_ways=True)


def _run(rank: PairRank) -> Iterator[Result]:
    return pair.run(rank, BENCHMARK, _WINDOWS.loop)


BENCHMARK = Benchmark(
    name="mpi_bidirectional",
    summary="MPI windows of 64 messages each way at once between two ranks",
    method="OSU osu_bibw 7.4: windows of 64 non-blocking sends and receives on both sides, both directions counted",
    results=pair.bandwidth(times=2),
    options=PairOptions,
    case=Transport,
    launches=pair.launches,
    plan=_WINDOWS.plan,
    run=_run,
    spans_hosts=True,
)
