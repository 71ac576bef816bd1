"""Samples that are read ahead into a few slots and consumed at a pace, as inference does."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from railwright.benchmarks.samples.hdf5_files import Sample
from railwright.benchmarks.samples.readers import Reader


class Delivered(NamedTuple):
    """A pass of one rank over its samples."""

    elapsed_s: float
    """The time until the last sample's use ended."""
    starved_s: float = 0.0
    """The time that the consumer waited for a sample."""
    full_s: float = 0.0
    """The time that the reader waited for a slot."""


class Consumer:
    """Sleeps for each sample's share of a second at `pace`, as while a GPU computes.

    A sample that was ready follows the one before it at once, so that late sleeps do not reduce the pace.
    """

    def __init__(self, pace: float) -> None:
        self._pace, self._done = pace, 0.0
        self.last: dict[int, Sample] = {}
        """The sample in each slot."""

    def __call__(self, sample: Sample, slot: int, *, was_ready: bool) -> None:
        """Use the sample."""
        self.last[slot] = sample
        now = time.perf_counter()
        self._done = (self._done if was_ready and self._done else now) + 1 / self._pace
        time.sleep(max(0.0, self._done - now))


def read_alone(reader: Reader, samples: Sequence[Sample], last: dict[int, Sample], slots: int) -> Delivered:
    """Run the reader without a consumer; `last` receives the sample in each slot."""
    began = time.perf_counter()
    for number, sample in enumerate(samples):
        reader.read(sample, number % slots)
        last[number % slots] = sample
    return Delivered(time.perf_counter() - began)


class Use(Protocol):
    """The use of a sample in its slot."""

    def __call__(self, sample: Sample, slot: int, *, was_ready: bool) -> object:
        """Use the sample. `was_ready` tells whether it was ready before it was requested."""


def deliver(reader: Reader, samples: Sequence[Sample], slots: int, use: Use) -> Delivered:
    """Read all samples in order into free slots while others are used.

    Raises the reader's errors.
    """
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    filled: queue.SimpleQueue[tuple[Sample, int] | BaseException] = queue.SimpleQueue()
    for slot in range(slots):
        free.put(slot)
    full = 0.0

    def read_ahead() -> None:
        nonlocal full
        try:
            for sample in samples:
                asked = time.perf_counter()
                slot = free.get()
                full += time.perf_counter() - asked
                reader.read(sample, slot)
                filled.put((sample, slot))
        except BaseException as error:  # raised again below, in the thread that waits for samples
            filled.put(error)

    thread = threading.Thread(target=read_ahead, daemon=True)
    starved, began = 0.0, time.perf_counter()
    thread.start()
    for _ in samples:
        asked, was_ready = time.perf_counter(), not filled.empty()
        found = filled.get()
        starved += time.perf_counter() - asked
        if isinstance(found, BaseException):
            raise found
        use(*found, was_ready=was_ready)
        free.put(found[1])
    elapsed = time.perf_counter() - began
    thread.join()
    return Delivered(elapsed, starved, full)
