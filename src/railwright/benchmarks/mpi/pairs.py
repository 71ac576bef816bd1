"""MPI bandwidth of several pairs of ranks at once: windows of 64 non-blocking sends and an answer, as osu_mbw_mr.

The rate is OSU's: all pairs' bytes over the mean time of the pairs, but for each window instead of for all windows
together.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Benchmark, Rank
from railwright.benchmarks.fabric import WINDOW
from railwright.benchmarks.job import Launch, Machine
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.gpu_memory import Transport
from railwright.benchmarks.mpi.pair import AnyBuffer, PairOptions, PairRank, Timed
from railwright.benchmarks.mpi.windows import Windows
from railwright.benchmarks.options import option, whole_number
from railwright.native.mpi import PointToPoint
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Message

_MOST_PAIRS = 256
"""The most pairs, whose ranks all queue to connect to the parent."""
_WINDOWS = Windows()


class PairsOptions(PairOptions, frozen=True):
    """Options of a benchmark with several pairs."""

    pairs: int = option("2", "pairs of ranks that send at once", whole_number(_MOST_PAIRS))


def _launches(options: PairsOptions, machine: Machine) -> tuple[Launch[Transport], ...]:
    return pair.launches(options, machine, options.pairs)


def _loop(rank: PairRank, between: PointToPoint, out: AnyBuffer, into: AnyBuffer, size: int) -> Timed:
    """Time one size. All pairs synchronise between the warm-up and the timed windows."""
    job, pairs = rank.job, pair.count_pairs(rank.job)
    warm, windows = _WINDOWS.repeats(job, size)
    between.window(out, into, size, window=WINDOW, warm=warm, iterations=0)
    rank.comm.barrier()
    seconds = between.window(out, into, size, window=WINDOW, warm=0, iterations=windows)
    of_senders = (rank.comm.gather(seconds) or [seconds])[:pairs]
    means = [sum(times) / len(times) for times in zip(*of_senders, strict=True)]
    return Timed(
        [pairs * WINDOW * size / mean if mean else 0.0 for mean in means],
        WINDOW * size * (warm + windows),
        {
            "window": WINDOW,
            "windows": windows,
            "warm_up_windows": warm,
            "functional": job.ranks_on_cpus > len(job.cpus),
        },
    )


def _run(rank: Rank[PairsOptions, Transport]) -> Iterator[Result]:
    return pair.run(rank, BENCHMARK, _loop)


BENCHMARK = Benchmark(
    name="mpi_pairs_bandwidth",
    summary="MPI windows of 64 messages in several pairs of ranks at once",
    method=(
        "OSU osu_mbw_mr 7.4: windows of 64 non-blocking sends from rank i to rank i + pairs, then a one-byte answer; "
        "bytes of all pairs over the mean over pairs of each window's time"
    ),
    results=(
        Declaration("bandwidth_bytes_per_s", Message(from_gpu=True, to_gpu=True), {"memory": ("gpu",)}),
        Declaration("bandwidth_bytes_per_s", Message(over="tcp"), {"transport": ("tcp",)}),
        Declaration("bandwidth_bytes_per_s", Message(over="shm")),
    ),
    options=PairsOptions,
    case=Transport,
    launches=_launches,
    plan=_WINDOWS.plan,
    run=_run,
    spans_hosts=True,
)
