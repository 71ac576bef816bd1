"""Samples that are read ahead into a few slots, and taken from there at a pace, as inference takes them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from railwright.benchmarks.samples.hdf5_files import Sample
from railwright.benchmarks.samples.readers import Reader


class Delivered(NamedTuple):
    """One pass of one rank over its samples."""

    elapsed_s: float
    """To the end of the last sample's use."""
    starved_s: float = 0.0
    """How long the consumer had nothing to use."""
    full_s: float = 0.0
    """How long the reader had no slot to read to."""


class Consumer:
    """Has each sample for as long as `pace` of them take in a second, asleep, as while a GPU computes.

    A sample that was ready follows the one before it at once: the pace is kept, whatever a sleep is late.
    """

    def __init__(self, pace: float) -> None:
        self._pace, self._done = pace, 0.0
        self.last: dict[int, Sample] = {}
        """What is in each slot."""

    def __call__(self, sample: Sample, slot: int, *, was_ready: bool) -> None:
        """Use the sample."""
        self.last[slot] = sample
        now = time.perf_counter()
        self._done = (self._done if was_ready and self._done else now) + 1 / self._pace
        time.sleep(max(0.0, self._done - now))


def alone(reader: Reader, samples: Sequence[Sample], last: dict[int, Sample], slots: int) -> Delivered:
    """The reader without a consumer; `last` is told what is in each slot."""
    began = time.perf_counter()
    for number, sample in enumerate(samples):
        reader.read(sample, number % slots)
        last[number % slots] = sample
    return Delivered(time.perf_counter() - began)


class Use(Protocol):
    """What is done with a sample in its slot."""

    def __call__(self, sample: Sample, slot: int, *, was_ready: bool) -> object:
        """`was_ready` tells whether it lay there before it was asked for."""


def deliver(reader: Reader, samples: Sequence[Sample], slots: int, use: Use) -> Delivered:
    """All samples in their order, each read into a free slot while others are used.

    Raises what the reader raises.
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
        except BaseException as error:  # raised again below, by whoever waits for samples
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
