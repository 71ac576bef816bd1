"""Verdicts on links, derived from the paths that cross them.

A slow path is slow somewhere, not on each of its links. When another path shows that a link carries the rate that the
slow path needs, that link is cleared. Only the links that may be slow are then shown as slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import State
from railwright.diagnosis.verdicts.verdict import WORST_FIRST
from railwright.report.view import Row
from railwright.units import format_count


class LinkVerdict(NamedTuple):
    """The verdict shown for a link, and the paths over it; the paths that decided the verdict come first."""

    state: State | None
    """None if nothing was measured over the link."""
    rows: tuple[Row, ...]
    cleared: tuple[Row, ...]
    """Slow paths over the link that must be slow elsewhere."""

    @property
    def words(self) -> str:
        """A note on the cleared slow paths; empty if there are none."""
        if not self.cleared:
            return ""
        crossing = format_count(len(self.cleared), "slow path")
        verb, need = ("cross", "they need") if len(self.cleared) > 1 else ("crosses", "it needs")
        return f"{crossing} {verb} it and must be slow elsewhere: other paths over it reached the rate that {need}"


def judge_link(rows: Sequence[Row], same_way: Callable[[Row, Row], bool]) -> LinkVerdict:
    """Judge a link, or a chain of links, by the paths over it.

    `same_way` reports whether two paths cross the links that they share in the same direction.
    """
    measured = [row for row in rows if row.state != "waived"]
    cleared = tuple(
        row
        for row in measured
        if row.state == "slow" and _is_cleared(row, [other for other in measured if same_way(row, other)])
    )
    left = [row for row in measured if row not in cleared]
    if not measured:
        return LinkVerdict(None, (), ())
    states = [row.state for row in left]
    state: State = "slow" if "slow" in states else "ok" if "ok" in states else min(states, key=WORST_FIRST.index)
    # A path without a verdict says nothing about a link that other paths crossed well.
    ordered = sorted(left, key=lambda row: (row.state != state, WORST_FIRST.index(row.state)))
    return LinkVerdict(state, (*ordered, *cleared), cleared)


def _is_cleared(slow: Row, rows: Sequence[Row]) -> bool:
    """Report whether another path in the same direction reached the rate expected of the slow one."""
    expected = slow.head.expected if slow.head is not None else None
    if expected is None:
        return False
    quantity = slow.judged.quantity
    others = [row.head.value for row in rows if row.state == "ok" and row.judged.quantity == quantity and row.head]
    values = [value for value in others if value is not None]
    if quantity == "latency_s":
        return expected.high is not None and any(value <= expected.high for value in values)
    return any(value >= expected.low for value in values)
