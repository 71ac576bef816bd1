"""What the paths over a link say of the link itself, which is less than the worst of them.

A slow path is slow somewhere, not on each of its links. A link that another path shows to carry what the slow one needs
is cleared of it, so that only those links look slow that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import State
from railwright.diagnosis.verdicts.verdict import WORST_FIRST
from railwright.report.view import Row
from railwright.units import count


class Said(NamedTuple):
    """The verdict that a link is shown with, and the paths over it, those that it is shown for first."""

    state: State | None
    """None where nothing was measured over it."""
    rows: tuple[Row, ...]
    cleared: tuple[Row, ...]
    """Slow paths over it that are slow elsewhere."""

    @property
    def words(self) -> str:
        """What must be said of the slow paths that it is not shown for; empty where there are none."""
        if not self.cleared:
            return ""
        crossing = count(len(self.cleared), "slow path")
        verb, they = ("cross", "they need") if len(self.cleared) > 1 else ("crosses", "it needs")
        return f"{crossing} {verb} it and must be slow elsewhere: others got over it what {they}"


def said_of(rows: Sequence[Row], same_way: Callable[[Row, Row], bool]) -> Said:
    """Of the paths over one link, or over several that follow each other; `same_way`: whether two cross it alike."""
    measured = [row for row in rows if row.state != "waived"]
    cleared = tuple(
        row
        for row in measured
        if row.state == "slow" and _is_cleared(row, [one for one in measured if same_way(row, one)])
    )
    left = [row for row in measured if row not in cleared]
    if not measured:
        return Said(None, (), ())
    states = [row.state for row in left]
    state: State = "slow" if "slow" in states else "ok" if "ok" in states else min(states, key=WORST_FIRST.index)
    # What could not be judged says nothing of a link that others crossed well.
    ordered = sorted(left, key=lambda row: (row.state != state, WORST_FIRST.index(row.state)))
    return Said(state, (*ordered, *cleared), cleared)


def _is_cleared(slow: Row, rows: Sequence[Row]) -> bool:
    """Whether another path, in the same direction over the link, was as fast as this one should have been."""
    expected = slow.head.expected if slow.head is not None else None
    if expected is None:
        return False
    quantity = slow.judged.quantity
    others = [row.head.value for row in rows if row.state == "ok" and row.judged.quantity == quantity and row.head]
    values = [value for value in others if value is not None]
    if quantity == "latency_s":
        return expected.high is not None and any(value <= expected.high for value in values)
    return any(value >= expected.low for value in values)
