"""Rows of paths that differ in their path alone, as one row of a page: eight GPUs have hundreds of paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import State
from railwright.groups import group_by_key
from railwright.limits.limit import Limit, Source
from railwright.report.text import wording
from railwright.report.view import Meter, Row

_NAMED = 2


class PathGroup(NamedTuple):
    """Paths with the same benchmark, parameters and verdict, in the run's order."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        """The first path, whose benchmark, parameters and verdict are those of all."""
        return self.rows[0]

    @property
    def state(self) -> State:
        """The verdict of all paths."""
        return self.first.state

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the first paths."""
        return tuple(row.path for row in self.rows[:_NAMED])

    @property
    def left_out(self) -> int:
        """The number of the paths that are not named."""
        return max(0, len(self.rows) - _NAMED)

    @property
    def kinds(self) -> str:
        """The kinds of the paths, each once."""
        return " ".join(dict.fromkeys(row.kind for row in self.rows if row.kind))

    @property
    def measured(self) -> str:
        """The measured values, from the lowest to the highest."""
        return _span(self.rows, [row.head.value if row.head else None for row in self.rows], "measured")

    @property
    def limit(self) -> str:
        """The limits, from the lowest to the highest; empty without one."""
        values = [_shown_limit(row) for row in self.rows]
        return _span(self.rows, values, "limit").replace(wording.ABSENT, "")

    @property
    def share(self) -> str:
        """The shares of the limits, from the lowest to the highest; empty without one."""
        values = [row.head.fraction_of_limit if row.head and _shown_limit(row) else None for row in self.rows]
        return _span(self.rows, values, "share").replace(wording.ABSENT, "")

    @property
    def spread(self) -> str:
        """The spreads of the launches, from the lowest to the highest; empty without one."""
        values = [row.head.launch_spread if row.head else None for row in self.rows]
        return _span(self.rows, values, "spread").replace(wording.ABSENT, "")

    @property
    def meters(self) -> tuple[Meter, ...]:
        """The bars of the worst and of the best path, or of the only one."""
        found = sorted((row.meter for row in self.rows if row.meter), key=lambda meter: meter.reached)
        return (found[0], *found[-1:]) if len(found) > 1 else tuple(found)


def _shown_limit(row: Row) -> float | None:
    if row.limit == wording.ABSENT or row.head is None or not isinstance(row.head.limit, Limit):
        return None
    return row.head.limit.value


def _span(rows: Sequence[Row], values: Sequence[float | None], field: str) -> str:
    """Format the lowest to the highest value, the unit once if it is the same."""
    known = sorted((value, getattr(row, field)) for value, row in zip(values, rows, strict=True) if value is not None)
    if not known:
        return wording.ABSENT
    low, high = known[0][1], known[-1][1]
    if low == high:
        return str(low)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def group_paths(rows: Iterable[Row]) -> list[PathGroup]:
    """Group the rows, in the order in which the groups first appear."""
    return [PathGroup(tuple(group)) for _, group in group_by_key(rows, _likeness)]


def _likeness(row: Row) -> tuple[str, ...]:
    return row.benchmark, row.judged.quantity, row.state, row.varied, row.common, row.ranks


class Sources:
    """The documents that a page refers to, each with its number; a limit repeats those of many others."""

    def __init__(self) -> None:
        self.numbers: dict[Source, int] = {}

    def number(self, source: Source) -> int:
        """Return the number of a document, counted from 1."""
        return self.numbers.setdefault(source, len(self.numbers) + 1)
