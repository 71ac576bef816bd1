"""What NCCL's own choice of algorithm and protocol costs, size by size, against the best one that was forced.

From the judged points of NCCL benchmarks with the options `algorithms` and `protocols`; pure, text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import Judged
from railwright.report.text import wording
from railwright.results.records import size_of
from railwright.units import format_duration, format_size

_FORCED = ("algorithm", "protocol")
_FREE = "free"
_CLAIM = "algorithm"
_TITLES = ("size", "best", "time", "NCCL's own", "time", "own / best", "")
_OWN = "NCCL's own"


class Cost(NamedTuple):
    """One size: the fastest combination, and NCCL's own choice beside it."""

    size_bytes: int
    best: str
    """`Tree/LL128` as it was forced (`Tree` where the protocol was left free), or that NCCL's own was the fastest."""
    best_s: float
    own: str
    """What NCCL's log says that it chose, `not known` where nothing tells."""
    own_s: float
    within_noise: bool
    """Whether the samples of the two overlap, so that neither is known to be faster."""

    @property
    def ratio(self) -> float:
        """How many times as long NCCL's own choice takes."""
        return self.own_s / self.best_s


class CostTable(NamedTuple):
    """All sizes of one curve."""

    title: str
    rows: tuple[Cost, ...]


def cost_tables(points: Iterable[Judged]) -> tuple[CostTable, ...]:
    """A table for each curve where NCCL was left free and something was forced as well."""
    curves: dict[str, dict[int, list[Judged]]] = {}
    for point in points:
        size = size_of(point.parameters)
        if not _counts(point) or size is None:
            continue
        varied = {key: value for key, value in point.parameters.items() if key not in (*_FORCED, "size_bytes")}
        title = "  ".join((point.benchmark, point.path, wording.parameter_words(varied)))
        curves.setdefault(title, {}).setdefault(size, []).append(point)
    found = []
    for title, sizes in curves.items():
        rows = tuple(row for size, group in sorted(sizes.items()) for row in _cost(size, group))
        if rows:
            found.append(CostTable(title, rows))
    return tuple(found)


def lines(tables: Iterable[CostTable]) -> Iterator[str]:
    """The tables as text, each under its title."""
    for table in tables:
        cells = [_TITLES, *(_cells(row) for row in table.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_TITLES))]
        yield wording.visible(table.title)
        for row in cells:
            yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(row: Cost) -> tuple[str, ...]:
    """One line; what came from NCCL's log is escaped."""
    return (
        format_size(row.size_bytes),
        wording.visible(row.best),
        format_duration(row.best_s),
        wording.visible(row.own),
        format_duration(row.own_s),
        f"{row.ratio:.2f}",
        "within noise" if row.within_noise and row.best != _OWN else "",
    )


def _counts(point: Judged) -> bool:
    """Whether it is a measured time that is not known to be wrong."""
    fine = point.outcome == "measured" and point.verdict.state != "failed"
    return fine and point.quantity == "latency_s" and point.value is not None and point.value > 0


def _cost(size_bytes: int, group: list[Judged]) -> Iterator[Cost]:
    own = next((point for point in group if _combination(point) == (_FREE, _FREE)), None)
    if own is None or len(group) < 2:
        return
    best = min(group, key=lambda point: (_value(point), point is not own))
    words = _OWN if best is own else "/".join(part for part in _combination(best) if part != _FREE)
    overlap = _range(own)[0] <= _range(best)[1]
    yield Cost(size_bytes, words, _value(best), _chosen(own), _value(own), overlap)


def _combination(point: Judged) -> tuple[str, str]:
    """What was forced; a parameter that was not varied was left free."""
    algorithm, protocol = (str(point.parameters.get(name, _FREE)) for name in _FORCED)
    return algorithm, protocol


def _chosen(point: Judged) -> str:
    known = (seen.value for seen in point.evidence if seen.claim == _CLAIM and seen.value != "unknown")
    return next(known, "not known")


def _value(point: Judged) -> float:
    assert point.value is not None
    return point.value


def _range(point: Judged) -> tuple[float, float]:
    """The lowest and the highest end of the medians' intervals over all launches."""
    if not point.launches:
        return _value(point), _value(point)
    return min(one.median_low for one in point.launches), max(one.median_high for one in point.launches)
