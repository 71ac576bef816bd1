"""Merges samples that arrive late with their own timestamps, such as a driver's, into the rows of their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from railwright.native.sampler import Row
from railwright.sampling.sources import Source

_MAX_WAIT_S = 2.5
"""A row waits this long for its samples; by then the driver has stopped."""

Samples = Callable[[], dict[str, list[tuple[float, int]]]]


class GpuNumbers(Protocol):
    """A source of GPU counters in shared memory."""

    @property
    def address(self) -> int:
        """The address of the current numbers."""

    def samples(self) -> dict[str, list[tuple[float, int]]]:
        """Return the samples since the last call by source, as times and numbers."""


class LateSamples:
    """A queue that holds rows until their late samples have arrived."""

    def __init__(self, sources: Sequence[Source], samples: Samples) -> None:
        self._columns = {source.name: number for number, source in enumerate(sources) if source.late}
        self._samples = samples
        self._arrived: dict[str, deque[tuple[float, int]]] = {name: deque() for name in self._columns}
        self._newest_s = dict.fromkeys(self._columns, float("-inf"))
        self._rows: deque[Row] = deque()

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows in the order of sampling, and fetch the samples that have arrived."""
        self._rows.extend(rows)
        for name, come in self._samples().items():
            if come:
                self._arrived[name].extend(come)
                self._newest_s[name] = come[-1][0]

    @property
    def is_complete(self) -> bool:
        """Whether every row has all its samples."""
        return not self._rows or self._rows[-1].at_s <= min(self._newest_s.values(), default=float("inf"))

    def ready(self, *, all_of_them: bool = False) -> list[Row]:
        """Remove and return the rows whose samples have arrived or will not arrive; `all_of_them` returns every row."""
        found = []
        until_s = min(self._newest_s.values(), default=float("inf"))
        while self._rows and (
            all_of_them or self._rows[0].at_s <= until_s or self._rows[-1].at_s - self._rows[0].at_s > _MAX_WAIT_S
        ):
            row = self._rows.popleft()
            for name, number in self._columns.items():
                row.values[number] = self._pop_last_sample(name, row.at_s)
            found.append(row)
        return found

    def _pop_last_sample(self, name: str, at_s: float) -> int | None:
        """Remove the samples up to `at_s` and return the last of them; None if there is none."""
        found, come = None, self._arrived[name]
        while come and come[0][0] <= at_s:
            found = come.popleft()[1]
        return found
