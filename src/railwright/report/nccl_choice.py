"""What NCCL's own choice of algorithm and protocol costs, size by size, against the best one that was forced.

From the judged points of NCCL benchmarks with the options `algorithms` and `protocols`; pure, text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import grouped
from railwright.report.text import wording
from railwright.results.records import size_of
from railwright.units import format_duration, format_size

_FORCED = ("algorithm", "protocol")
_CLAIM = "algorithm"
TITLES = ("size", "best", "time", "NCCL's own", "time", "own / best", "")
_OWN = "NCCL's own"


def cost_lines(points: Iterable[Judged]) -> Iterator[str]:
    """Lays out the tables as text, each under its title."""
    for title, rows in cost_tables(points):
        yield from wording.table_lines(title, [TITLES, *rows])


def cost_tables(points: Iterable[Judged]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """A title and rows for each curve where NCCL was left free and something was forced as well."""
    for title, curve in grouped(filter(_counts, points), _curve):
        sizes = sorted(grouped(curve, lambda point: size_of(point.parameters) or 0))
        rows = [row for size, group in sizes for row in _row(size, group)]
        if rows:
            yield wording.visible(title), rows


def _counts(point: Judged) -> bool:
    """Whether it is a measured time at a size that is not known to be wrong."""
    fine = point.outcome == "measured" and point.verdict.state != "failed" and size_of(point.parameters) is not None
    return fine and point.quantity == "latency_s" and point.value is not None and point.value > 0


def _curve(point: Judged) -> str:
    varied = wording.parameter_words(point.parameters, without=(*_FORCED, "size_bytes"))
    return f"{point.benchmark}  {point.path}  {varied}"


def _row(size_bytes: int, group: Sequence[Judged]) -> Iterator[tuple[str, ...]]:
    """The fastest combination at one size, and NCCL's own choice beside it; what came from NCCL's log is escaped."""
    own = next((point for point in group if not _forced(point)), None)
    if own is None or len(group) < 2:
        return
    best = min(group, key=lambda point: (point.value, point is not own))
    own_s, best_s = own.value or 0.0, best.value or 0.0
    own_low_s = min((one.median_low for one in own.launches), default=own_s)
    best_high_s = max((one.median_high for one in best.launches), default=best_s)
    chosen = (seen.value for seen in own.evidence if seen.claim == _CLAIM and seen.value != "unknown")
    yield (
        format_size(size_bytes),
        wording.visible(_OWN if best is own else "/".join(_forced(best))),
        format_duration(best_s),
        wording.visible(next(chosen, "not known")),
        format_duration(own_s),
        f"{own_s / best_s:.2f}",
        # The samples of the two overlap, so that neither is known to be faster.
        "within noise" if best is not own and own_low_s <= best_high_s else "",
    )


def _forced(point: Judged) -> list[str]:
    """`Tree` and `LL128` as far as they were forced; a parameter that was not varied was left free."""
    parts = [str(point.parameters.get(name, "free")) for name in _FORCED]
    return [part for part in parts if part != "free"]
