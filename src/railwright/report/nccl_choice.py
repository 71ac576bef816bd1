"""The cost of NCCL's own choice of algorithm and protocol, by size, against the best forced combination.

Works on the judged points of NCCL benchmarks with the options `algorithms` and `protocols`. Pure, text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.results.records import find_size
from railwright.units import format_duration, format_size

_FORCED = ("algorithm", "protocol")
_CLAIM = "algorithm"
TITLES = ("size", "best", "time", "NCCL's own", "time", "own / best", "")
_OWN = "NCCL's own"


def cost_lines(points: Iterable[Judged]) -> Iterator[str]:
    """Yield the tables as text, each under its title."""
    for title, rows in cost_tables(points):
        yield from wording.table_lines(title, [TITLES, *rows])


def cost_tables(points: Iterable[Judged]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield a title and rows for each curve that has both a free and a forced measurement."""
    for title, curve in group_by_key(filter(_is_usable, points), _curve):
        sizes = sorted(group_by_key(curve, lambda point: find_size(point.parameters) or 0))
        rows = [row for size, group in sizes for row in _row(size, group)]
        if rows:
            yield wording.escape(title), rows


def _is_usable(point: Judged) -> bool:
    """Report whether the point is a measured time at a known size and did not fail."""
    fine = point.outcome == "measured" and point.verdict.state != "failed" and find_size(point.parameters) is not None
    return fine and point.quantity == "latency_s" and point.value is not None and point.value > 0


def _curve(point: Judged) -> str:
    varied = wording.parameter_words(point.parameters, without=(*_FORCED, "size_bytes"))
    return f"{point.benchmark}  {point.path}  {varied}"


def _row(size_bytes: int, group: Sequence[Judged]) -> Iterator[tuple[str, ...]]:
    """Yield a row with the fastest combination at a size and NCCL's own choice, or nothing if one was not measured.

    Text from NCCL's log is escaped.
    """
    free_choice = next((point for point in group if not _format_forced(point)), None)
    if free_choice is None or len(group) < 2:
        return
    best = min(group, key=lambda point: (point.value, point is not free_choice))
    free_s, best_s = free_choice.value or 0.0, best.value or 0.0
    free_low_s = min((launch.median_low for launch in free_choice.launches), default=free_s)
    best_high_s = max((launch.median_high for launch in best.launches), default=best_s)
    chosen = (seen.value for seen in free_choice.evidence if seen.claim == _CLAIM and seen.value != "unknown")
    yield (
        format_size(size_bytes),
        wording.escape(_OWN if best is free_choice else "/".join(_format_forced(best))),
        format_duration(best_s),
        wording.escape(next(chosen, "not known")),
        format_duration(free_s),
        f"{free_s / best_s:.2f}",
        # The samples of the two overlap, so neither is known to be faster.
        "within noise" if best is not free_choice and free_low_s <= best_high_s else "",
    )


def _format_forced(point: Judged) -> list[str]:
    """List the forced values, like `Tree` and `LL128`; a parameter that did not vary was left free."""
    parts = [str(point.parameters.get(name, "free")) for name in _FORCED]
    return [part for part in parts if part != "free"]
