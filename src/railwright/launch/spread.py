"""CPU-bound work on many items, spread over the CPUs of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from railwright.process import die_with_parent

Item = TypeVar("Item")
Output = TypeVar("Output")
_MIN_PARALLEL_ITEMS = 16
"""The minimum number of items that are spread. Fewer are done before worker processes have started."""
_CHUNK_ITEMS = 8
"""The number of items that a worker receives at a time."""


def spread(work: Callable[[Item], Output], items: Sequence[Item]) -> Iterator[Output]:
    """Yield the result of `work` for each item, in order. `work` must be a module-level function."""
    cpus = len(os.sched_getaffinity(0))
    if len(items) < _MIN_PARALLEL_ITEMS or cpus < 2:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(min(cpus, 16), initializer=_prepare_worker) as executor:
        yield from executor.map(work, items, chunksize=_CHUNK_ITEMS)


def _prepare_worker() -> None:
    """Make a worker end with its parent and ignore Ctrl-C, which the parent handles."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
