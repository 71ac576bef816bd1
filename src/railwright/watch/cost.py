"""The cost of watching: a tight load on all cores, alone and next to a monitor, in pairs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from random import Random

import msgspec

from railwright.native.load import load_s
from railwright.process import Child
from railwright.results.paired import estimate_slowdown
from railwright.sampling.session import BATCH_S, INTERVAL_S, Session
from railwright.sampling.sources import find_sources
from railwright.watch.gpus import Gpus

THRESHOLD = 0.005
"""The maximum slowdown of the load by a monitor. Our requirement; others measured 2 to 4 % for nvidia-smi."""
LOAD_S = 2.0
_FIRST_ROUNDS = 200
_AGAIN_S = 1.0

Monitor = Callable[[], AbstractContextManager[None]]


class Cost(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="watch-cost"):
    """The record of `railwright watch --cost` and `--cost-of`."""

    monitor: str
    """The monitor that ran next to the load."""
    threads: int
    """Threads of the load, on all cores that this process may use."""
    load_s: float
    """The median time of the load alone."""
    pairs: tuple[tuple[float, float], ...]
    """Seconds of the load alone and next to the monitor."""
    slowed_by: float
    """The mean slowdown, as a fraction of the load's time."""
    slowed_by_low: float
    """The lower end of the 95 % interval."""
    slowed_by_high: float
    threshold: float
    pairs_needed: int | None
    """The pairs needed to show a slowdown below the threshold; None if the mean is not below it."""
    sampling_cpu_share: float | None
    """CPU time of the sampling thread, as a fraction of a core; None for another monitor."""


class OwnMonitor:
    """Railwright's own sampling, as in `railwright watch`: rows are fetched each second."""

    name = f"railwright watch at {1 / INTERVAL_S:.0f} Hz"

    def __init__(self) -> None:
        self._cpu_s = self._seconds = 0.0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Sample while the context is open."""
        with Gpus(INTERVAL_S) as gpus:
            yield from self._sample(gpus)

    def _sample(self, gpus: Gpus) -> Iterator[None]:
        session = Session(gpus.add_to(find_sources()), None, gpus=gpus)
        stops, begun_s = threading.Event(), time.monotonic()

        def fetch() -> None:
            while not stops.wait(BATCH_S):
                session.fetch()

        fetcher = threading.Thread(target=fetch)
        with session:
            fetcher.start()
            try:
                yield
            finally:
                stops.set()
                fetcher.join()
                self._cpu_s += session.costs().cpu_s + gpus.cpu_s
                self._seconds += time.monotonic() - begun_s

    @property
    def cpu_share(self) -> float | None:
        """CPU time of sampling and of reading NVML, as a fraction of a core."""
        return self._cpu_s / self._seconds if self._seconds else None


class CommandMonitor:
    """A user's command, restarted one second after it exits."""

    cpu_share = None

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.name = " ".join(words)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Run the command while the context is open. Raises UsageError if it cannot be started."""
        with Child(self._words):
            pass
        stops = threading.Event()

        def again() -> None:
            while not stops.is_set():
                with Child(self._words) as child:
                    while child.poll() is None and not stops.wait(0.05):
                        pass
                stops.wait(_AGAIN_S)

        runner = threading.Thread(target=again)
        runner.start()
        try:
            yield
        finally:
            stops.set()
            runner.join()


def measure_cost(
    monitor: OwnMonitor | CommandMonitor, pairs: int, tell: Callable[[str], None], seconds: float = LOAD_S
) -> Cost:
    """Measure the load alone and with the monitor, `pairs` times, in a random order within each pair.

    Raises UsageError if the monitor's command cannot be started, CannotJudge if no counter can be sampled.
    """
    threads = len(os.sched_getaffinity(0))
    rounds = _FIRST_ROUNDS
    for _ in range(2):  # the first run is cold
        rounds = max(1, round(rounds * seconds / load_s(threads, rounds)))
    random, found = Random(0), []
    for number in range(pairs):
        alone_first = random.random() < 0.5
        alone_s = load_s(threads, rounds) if alone_first else 0.0
        with monitor():
            monitored_s = load_s(threads, rounds)
        alone_s = alone_s or load_s(threads, rounds)
        found.append((alone_s, monitored_s))
        tell(f"pair {number + 1} of {pairs}: {alone_s:.3f} s alone, {monitored_s:.3f} s with the monitor")
    slowed = estimate_slowdown(found, THRESHOLD)
    return Cost(
        monitor=monitor.name,
        threads=threads,
        load_s=sorted(alone for alone, _ in found)[len(found) // 2],
        pairs=tuple(found),
        slowed_by=slowed.mean,
        slowed_by_low=slowed.low,
        slowed_by_high=slowed.high,
        threshold=THRESHOLD,
        pairs_needed=slowed.pairs_needed,
        sampling_cpu_share=monitor.cpu_share,
    )
