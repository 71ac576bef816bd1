"""MPI windows of 64 non-blocking sends and an answer: bandwidth in one direction and both, and the message rate.

A hundred windows of small messages end within a millisecond and show a moment rather than the path. The message rate
therefore uses ten times as many of them as osu_mbw_mr; large messages have its defaults.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.fabric import WINDOW, windows
from railwright.benchmarks.mpi import pair
from railwright.benchmarks.mpi.pair import AnyBuffer, PairBenchmark, PairJob, PairRank, Timed
from railwright.native.mpi import PointToPoint
from railwright.results.declarations import Declaration
from railwright.results.workload import Message, Unlimited
from railwright.topology.devices import Scalar

_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_MESSAGE_S = 2e-6


class Windows(NamedTuple):
    """A loop of windows of 64 messages, with its repeats."""

    small: tuple[int, int] = (10, 100)
    """(warm-up, timed) windows of messages up to 8 KiB: the defaults of OSU 7.4."""
    both_ways: bool = False
    rates_messages: bool = False

    def repeats(self, job: PairJob, size: int) -> tuple[int, int]:
        """Return (warm-up, timed) windows, fewer over slow links."""
        return windows(job, size, self.small)

    def plan(self, job: PairJob) -> Plan:
        """Plan all sizes."""
        ways = 1 + self.both_ways
        messages = [(size, ways * WINDOW * sum(self.repeats(job, size))) for size in job.options.sizes]
        return pair.plan(job, messages, _ESTIMATE_MESSAGE_S, _ESTIMATE_BYTES_PER_S)

    def loop(self, rank: PairRank, between: PointToPoint, out: AnyBuffer, into: AnyBuffer, size: int) -> Timed:
        """Time one size. Rank 1 times nothing and its zeros are not used."""
        warm, timed = self.repeats(rank.job, size)
        seconds = between.window(out, into, size, window=WINDOW, warm=warm, iterations=timed, both_ways=self.both_ways)
        moved = (1 + self.both_ways) * WINDOW * size
        samples = [moved / second if second else 0.0 for second in seconds]
        settings: dict[str, Scalar] = {"window": WINDOW, "windows": timed, "warm_up_windows": warm}
        return Timed(
            samples,
            moved * (warm + timed),
            settings | ({"pairs": 1} if self.rates_messages else {}),
            tuple(sample / size for sample in samples) if self.rates_messages else (),
            both_ways=self.both_ways,
        )


def _benchmark(name: str, summary: str, method: str, windows: Windows) -> PairBenchmark:
    # Records until version 0.1 call messages operations.
    rates = tuple(
        Declaration(quantity, Unlimited(why="no document gives a rate of messages"))
        for quantity in ("messages_per_s", "operations_per_s")
    )
    tcp = {"transport": ("tcp",)}

    results = (
        *(rates if windows.rates_messages else ()),
        Declaration(
            "bandwidth_bytes_per_s",
            Message(from_gpu=True, to_gpu=True, both_ways=windows.both_ways),
            {"memory": ("gpu",)},
        ),
        Declaration("bandwidth_bytes_per_s", Message(over="tcp", both_ways=windows.both_ways), tcp),
        Declaration("bandwidth_bytes_per_s", Message(over="shm", both_ways=windows.both_ways)),
    )
    return pair.benchmark(name, summary, method, results, windows.plan, windows.loop)


BANDWIDTH = _benchmark(
    "mpi_bandwidth",
    "MPI windows of 64 messages from one rank to another",
    "OSU osu_bw 7.4: windows of 64 non-blocking sends from one buffer, then a one-byte answer",
    Windows(),
)
BIDIRECTIONAL = _benchmark(
    "mpi_bidirectional",
    "MPI windows of 64 messages each way at once between two ranks",
    "OSU osu_bibw 7.4: windows of 64 non-blocking sends and receives on both sides, both directions counted",
    Windows(both_ways=True),
)
MESSAGE_RATE = _benchmark(
    "mpi_message_rate",
    "MPI messages per second from one rank to another",
    "OSU osu_mbw_mr 7.4, one pair: windows of 64 non-blocking sends, then an answer; timer around each window",
    Windows(small=(100, 1000), rates_messages=True),
)
