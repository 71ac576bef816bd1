"""What comes later, with times of its own, is put into the rows of its time: a driver's own samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from railwright.native.sampler import Row
from railwright.sampling.sources import Source

_AWAITED_S = 2.5
"""A row that is older has nothing to come: the driver samples no more."""

Samples = Callable[[], dict[str, list[tuple[float, int]]]]


class GpuNumbers(Protocol):
    """Where the numbers of GPUs are read."""

    @property
    def address(self) -> int:
        """Of those that are kept up to date."""

    def samples(self) -> dict[str, list[tuple[float, int]]]:
        """By source, what has come since the last call: times and numbers."""


class Late:
    """Holds rows until what belongs to them has come."""

    def __init__(self, sources: Sequence[Source], samples: Samples) -> None:
        self._columns = {source.name: number for number, source in enumerate(sources) if source.late}
        self._samples = samples
        self._come: dict[str, deque[tuple[float, int]]] = {name: deque() for name in self._columns}
        self._newest_s = dict.fromkeys(self._columns, float("-inf"))
        self._rows: deque[Row] = deque()

    def add(self, rows: Sequence[Row]) -> None:
        """Rows as they were sampled."""
        self._rows.extend(rows)
        for name, come in self._samples().items():
            if come:
                self._come[name].extend(come)
                self._newest_s[name] = come[-1][0]

    @property
    def is_complete(self) -> bool:
        """Whether everything has come for every row."""
        return not self._rows or self._rows[-1].at_s <= min(self._newest_s.values(), default=float("inf"))

    def ready(self, *, all_of_them: bool = False) -> list[Row]:
        """The rows for which everything has come, or will not come any more."""
        found = []
        until_s = min(self._newest_s.values(), default=float("inf"))
        while self._rows and (
            all_of_them or self._rows[0].at_s <= until_s or self._rows[-1].at_s - self._rows[0].at_s > _AWAITED_S
        ):
            row = self._rows.popleft()
            for name, number in self._columns.items():
                row.values[number] = self._at(name, row.at_s)
            found.append(row)
        return found

    def _at(self, name: str, at_s: float) -> int | None:
        """The last that came since the row before; None where none did."""
        found, come = None, self._come[name]
        while come and come[0][0] <= at_s:
            found = come.popleft()[1]
        return found
