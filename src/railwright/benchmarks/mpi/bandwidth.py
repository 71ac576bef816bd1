"""MPI bandwidth from one rank to another: windows of 64 non-blocking sends and an answer, as osu_bw measures it."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import PairOptions, PairRank, Transport, Windows
from railwright.results.model import Result

_WINDOWS = Windows()


def _run(rank: PairRank) -> Iterator[Result]:
    return pair.run(rank, BENCHMARK, _WINDOWS.loop)


BENCHMARK = Benchmark(
    name="mpi_bandwidth",
    summary="MPI windows of 64 messages from one rank to another",
    method="OSU osu_bw 7.4: windows of 64 non-blocking sends from one buffer, then a one-byte answer",
    results=pair.bandwidth(),
    options=PairOptions,
    case=Transport,
    launches=pair.launches,
    plan=_WINDOWS.plan,
    run=_run,
    spans_hosts=True,
)
