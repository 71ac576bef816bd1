"""Terminal report of two runs side by side: whether they are comparable, then each point with its statement."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Column
from rich.text import Text

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.groups import group_by_key
from railwright.report.pages.page import Page
from railwright.report.text import wording
from railwright.results.compare import ComparedPoint, Comparison, OneSided, Side, Statement, Together
from railwright.results.fairness import Difference
from railwright.units import format_count

STATEMENT_STYLE: dict[Statement, str] = {
    "slower": "bold yellow",
    "faster": "cyan",
    "within noise": "",
    "cannot tell": "dim",
}
EXIT_MEANING = {
    EXIT_OK: "nothing is slower",
    EXIT_SLOW: "something is slower beyond noise",
    EXIT_UNJUDGED: "something could not be decided, and nothing is known to be slower",
}

_WIDTHS = {"size": 8, "A": 10, "spread": 6, "B": 10, "spread ": 6, "B/A": 5, "interval": 12}
_NEEDED_COLUMNS = {"spread": 78, "interval": 64}
"""The width of the console from which a column is shown."""
_TOGETHER = (Column(ratio=1), Column(), Column(justify="right"), Column(no_wrap=True))
_INDENT = 2
_SHOWN_PLACES = 2


def render_comparison(comparison: Comparison, console: Console, meaning: str = "") -> None:
    """Print the comparison, fitted to the console's width; a statement is always a word, never a colour alone.

    `meaning` explains the exit status if more than the comparison decided it.
    """
    printer = _Printer(console)
    printer.runs(comparison)
    printer.differences(comparison.differences)
    printer.points(comparison.points)
    printer.together(comparison.together)
    printer.one_sided(comparison.one_sided)
    printer.closing(comparison, meaning)


class _Printer(Page):
    """Printer of the parts of a comparison on one console."""

    def runs(self, comparison: Comparison) -> None:
        """Print the two runs."""
        self.line("railwright compare", "bold")
        for name, label in (("A", comparison.a), ("B", comparison.b)):
            run = f"{label.host}, {label.started_at}, railwright {label.railwright}"
            self.line(f"{name}  {run}: {' '.join(label.command)}")
        if comparison.across:
            self.line(f"paired across {', '.join(comparison.across)}")

    def differences(self, differences: tuple[Difference, ...]) -> None:
        """Print the differences that make the runs incomparable, then those that ask for caution."""
        titles = {
            "blocking": "Not a fair comparison",
            "caution": "Differences and disturbances, possibly the reason for a difference",
        }
        for severity, title in titles.items():
            found = [item for item in differences if item.severity == severity]
            if not found:
                continue
            self.heading(title)
            for item in found:
                style = "bold yellow" if severity == "blocking" else ""
                self.line(f"{item.what}: {item.a} in A, {item.b} in B", style, indent=_INDENT)
                reason = "; ".join(part for part in (item.why, wording.join_first(item.where, _SHOWN_PLACES)) if part)
                if reason:
                    self.line(reason, "dim", indent=_INDENT * 2)

    def points(self, points: tuple[ComparedPoint, ...]) -> None:
        """Print a line for each size, under a line for its curve."""
        self.heading("Points")
        if not points:
            self.line("the two runs have no measured point in common", indent=_INDENT)
            return
        self.line(_interval_legend(points), "dim", indent=_INDENT)
        self._row([self.text(name.strip(), "dim") for name in (*_WIDTHS, "statement")])
        for title, group in group_by_key(points, _curve_words):
            self.line(title, "bold")
            shown: set[str] = set()  # a reason is printed once for each curve; every row has its numbers
            for point in group:
                self._point(point)
                if point.reason and (point.launches_needed or point.reason not in shown):
                    self.line(point.why, "dim", indent=_INDENT * 2)
                shown.add(point.reason)

    def _point(self, point: ComparedPoint) -> None:
        cells = [
            wording.size_words(point.parameters) or wording.ABSENT,
            *self._side(point, point.a),
            *self._side(point, point.b),
            wording.ratio(point.ratio),
            _interval_words(point),
        ]
        self._row([*(self.text(cell) for cell in cells), self.text(point.statement, STATEMENT_STYLE[point.statement])])

    def _side(self, point: ComparedPoint, side: Side) -> tuple[str, str]:
        return wording.quantity(point.quantity, side.median), wording.percent(side.spread)

    def _row(self, cells: list[Text]) -> None:
        """Print a line of the table; a narrow console has no columns for spreads, then none for the interval."""
        kept = [name for name in _WIDTHS if self.console.width >= _NEEDED_COLUMNS.get(name.strip(), 0)]
        numbers = (Column(width=_WIDTHS[name], justify="right", overflow="fold") for name in kept)
        by_name = dict(zip(_WIDTHS, cells, strict=False))
        self.grid([*numbers, Column(no_wrap=True)], [*(by_name[name] for name in kept), cells[-1]], gap=1)

    def together(self, together: tuple[Together, ...]) -> None:
        """Print a line for each benchmark, with the change that its points would have shown."""
        if not together:
            return
        self.heading("All points of a benchmark together")
        self.grid(_TOGETHER, *map(self._together_row, together), gap=2, indent=_INDENT)

    def _together_row(self, found: Together) -> list[Text]:
        low, high, ratio = map(wording.ratio, (found.interval.low, found.interval.high, found.ratio))
        cells = (
            f"{found.benchmark}  {wording.QUANTITY_WORDS[found.quantity]}, {format_count(found.points, 'point')}",
            f"B/A {ratio}, {low} to {high}",
            f"{wording.percent(found.shows)} would show",
        )
        style = STATEMENT_STYLE[found.statement]
        return [*(self.text(cell) for cell in cells), self.text(found.statement, style)]

    def one_sided(self, one_sided: tuple[OneSided, ...]) -> None:
        """Print the points that only one run has, grouped by curve and reason."""
        for side in ("a", "b"):
            found = [item for item in one_sided if item.measured_in == side]
            if not found:
                continue
            self.heading(f"Only in {side.upper()}")
            curves = group_by_key(found, lambda item: (_curve_words(item), item.other, item.why))
            for (title, other, why), group in curves:
                sizes = wording.sizes_words(group, listed=_SHOWN_PLACES)
                self.line(f"{title}  {sizes}".rstrip(), indent=_INDENT)
                if other != "absent":
                    self.line(f"{wording.state_word(other)} in the other run: {why}", "dim", indent=_INDENT * 2)

    def closing(self, comparison: Comparison, meaning: str) -> None:
        """Print the count of each statement, and the meaning of the exit status."""
        self.console.print()
        self.line(closing_words(comparison, meaning), "bold")


def closing_words(comparison: Comparison, meaning: str = "") -> str:
    """Format `12 points: 1 slower, 11 within noise. Exit status 1: something is slower beyond noise.`"""
    found = [point.statement for point in comparison.points]
    counted = ", ".join(f"{found.count(word)} {word}" for word in STATEMENT_STYLE if word in found)
    counts = f"{format_count(len(found), 'point')}: {counted}" if found else "no point could be compared"
    ratios = [point.ratio for point in comparison.points if point.ratio and point.statement in ("faster", "slower")]
    range_words = (
        f"; B/A from {wording.ratio(min(ratios))} to {wording.ratio(max(ratios))} where it differs" if ratios else ""
    )
    changed = [
        f"{one.benchmark} {one.statement}" for one in comparison.together if one.statement in ("faster", "slower")
    ]
    if changed:
        range_words += f"; all points together: {', '.join(dict.fromkeys(changed))}"
    meaning = meaning or EXIT_MEANING.get(comparison.exit_status, "not a status of a comparison")
    return f"{counts}{range_words}. Exit status {comparison.exit_status}: {meaning}."


def _curve_words(point: ComparedPoint | OneSided) -> str:
    varied = wording.parameter_words(point.parameters, without=("size_bytes",))
    parts = (point.benchmark, point.path, varied, wording.QUANTITY_WORDS[point.quantity])
    return "  ".join(wording.escape(part) for part in parts if part)


def _interval_words(point: ComparedPoint) -> str:
    if point.interval is None:
        return wording.ABSENT
    return f"{wording.ratio(point.interval.low)} to {wording.ratio(point.interval.high)}"


def _interval_legend(points: Iterable[ComparedPoint]) -> str:
    """Explain the column `interval` and its confidence."""
    sure = sorted(point.interval.confidence for point in points if point.interval and point.unit == "launches")
    if not sure:
        return "interval: from the samples of one launch, which says little about the next launch"
    lowest, highest = (f"{confidence * 100:.0f}" for confidence in (sure[0], sure[-1]))
    range_words = lowest if lowest == highest else f"{lowest} to {highest}"
    return f"interval: {range_words} % confidence interval of B/A, by the ranks of the launches"
