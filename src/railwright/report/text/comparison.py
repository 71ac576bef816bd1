"""Two runs side by side on a terminal: whether they may be compared, then every point with what can be said of it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Column
from rich.text import Text

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.groups import grouped
from railwright.report.pages.page import Page
from railwright.report.text import wording
from railwright.results.compare import ComparedPoint, Comparison, OneSided, Side, Statement
from railwright.results.fairness import Difference
from railwright.units import count

STATEMENT_STYLE: dict[Statement, str] = {
    "slower": "bold yellow",
    "faster": "cyan",
    "within noise": "",
    "cannot tell": "dim",
}
EXIT_MEANING = {
    EXIT_OK: "nothing is slower",
    EXIT_SLOW: "something is slower beyond noise",
    EXIT_UNJUDGED: "something cannot be told, and nothing is known to be slower",
}

_WIDTHS = {"size": 8, "A": 10, "spread": 6, "B": 10, "spread ": 6, "B/A": 5, "interval": 12}
_INDENT = 2
_SHOWN_PLACES = 2


def render_comparison(comparison: Comparison, console: Console, meaning: str = "") -> None:
    """Print the comparison, fitted to the console's width; a statement is always a word, never a colour alone.

    `meaning` is that of its exit status where more than the comparison decided it.
    """
    printer = _Printer(console)
    printer.runs(comparison)
    printer.differences(comparison.differences)
    printer.points(comparison.points)
    printer.one_sided(comparison.one_sided)
    printer.closing(comparison, meaning)


class _Printer(Page):
    """Prints the parts of one comparison, each to the same console."""

    def runs(self, comparison: Comparison) -> None:
        """Which two runs these are."""
        self.line("railwright compare", "bold")
        for name, label in (("A", comparison.a), ("B", comparison.b)):
            run = f"{label.host}, {label.started_at}, railwright {label.railwright}"
            self.line(f"{name}  {run}: {' '.join(label.command)}")
        if comparison.across:
            self.line(f"paired across {', '.join(comparison.across)}")

    def differences(self, differences: tuple[Difference, ...]) -> None:
        """What makes the runs incomparable, and what must be kept in mind."""
        titles = {
            "blocking": "Not a fair comparison",
            "caution": "Not the same in both runs, so it may be the reason for a difference",
        }
        for severity, title in titles.items():
            found = [each for each in differences if each.severity == severity]
            if not found:
                continue
            self.heading(title)
            for each in found:
                style = "bold yellow" if severity == "blocking" else ""
                self.line(f"{each.what}: {each.a} in A, {each.b} in B", style, indent=_INDENT)
                reason = "; ".join(part for part in (each.why, wording.first_of(each.where, _SHOWN_PLACES)) if part)
                if reason:
                    self.line(reason, "dim", indent=_INDENT * 2)

    def points(self, points: tuple[ComparedPoint, ...]) -> None:
        """The table: a line for each size, under a line for its curve."""
        self.heading("Points")
        if not points:
            self.line("the two runs have no measured point in common", indent=_INDENT)
            return
        self.line(_interval_legend(points), "dim", indent=_INDENT)
        self._row([self.text(name.strip(), "dim") for name in (*_WIDTHS, "statement")])
        for title, group in grouped(points, _curve_words):
            self.line(title, "bold")
            told: set[str] = set()  # a reason is given once for a curve; its numbers are in every row
            for point in group:
                self._point(point)
                if point.reason and point.reason not in told:
                    self.line(point.why, "dim", indent=_INDENT * 2)
                told.add(point.reason)

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
        numbers = (Column(width=width, justify="right", overflow="fold") for width in _WIDTHS.values())
        self.grid([*numbers, Column(no_wrap=True)], cells, gap=1)

    def one_sided(self, one_sided: tuple[OneSided, ...]) -> None:
        """Points that only one run has. Points of one curve with one reason are shown together."""
        for side in ("a", "b"):
            found = [each for each in one_sided if each.measured_in == side]
            if not found:
                continue
            self.heading(f"Only in {side.upper()}")
            curves = grouped(found, lambda each: (_curve_words(each), each.other, each.why))
            for (title, other, why), group in curves:
                sizes = wording.sizes_words(group, listed=_SHOWN_PLACES)
                self.line(f"{title}  {sizes}".rstrip(), indent=_INDENT)
                if other != "absent":
                    self.line(f"{other} in the other run: {why}", "dim", indent=_INDENT * 2)

    def closing(self, comparison: Comparison, meaning: str) -> None:
        """The counts of every statement, and what the exit status means."""
        self.console.print()
        self.line(closing_words(comparison, meaning), "bold")


def closing_words(comparison: Comparison, meaning: str = "") -> str:
    """`12 points: 1 slower, 11 within noise. Exit status 1: something is slower beyond noise.`"""
    found = [point.statement for point in comparison.points]
    counted = ", ".join(f"{found.count(word)} {word}" for word in STATEMENT_STYLE if word in found)
    counts = f"{count(len(found), 'point')}: {counted}" if found else "no point could be compared"
    ratios = [point.ratio for point in comparison.points if point.ratio and point.statement in ("faster", "slower")]
    range_words = (
        f"; B/A from {wording.ratio(min(ratios))} to {wording.ratio(max(ratios))} where it differs" if ratios else ""
    )
    meaning = meaning or EXIT_MEANING.get(comparison.exit_status, "not a status of a comparison")
    return f"{counts}{range_words}. Exit status {comparison.exit_status}: {meaning}."


def _curve_words(point: ComparedPoint | OneSided) -> str:
    varied = wording.parameter_words(point.parameters, without=("size_bytes",))
    parts = (point.benchmark, point.path, varied, wording.QUANTITY_WORDS[point.quantity])
    return "  ".join(wording.visible(part) for part in parts if part)


def _interval_words(point: ComparedPoint) -> str:
    if point.interval is None:
        return wording.ABSENT
    return f"{wording.ratio(point.interval.low)} to {wording.ratio(point.interval.high)}"


def _interval_legend(points: Iterable[ComparedPoint]) -> str:
    """What the column `interval` means, and how sure it is."""
    sure = sorted(point.interval.confidence for point in points if point.interval and point.unit == "launches")
    if not sure:
        return "interval: of samples inside one launch, which says little about the next launch"
    least, most = (f"{confidence * 100:.0f}" for confidence in (sure[0], sure[-1]))
    range_words = least if least == most else f"{least} to {most}"
    return f"interval: where B/A lies, {range_words} % sure, by the ranks of the launches"
