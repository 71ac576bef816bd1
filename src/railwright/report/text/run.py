"""The terminal report: the answer, slow paths with causes, unjudged paths, all paths, and those not run.

`report.view` defines its order and words. Colour is never the only sign of a verdict.
Text from the machine is shown with its control characters escaped and is never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Column
from rich.text import Text

from railwright.checks.finding import Finding
from railwright.groups import group_by_key
from railwright.report import storage_ways
from railwright.report.pages.page import Page
from railwright.report.text import growth as growth_text
from railwright.report.text import host_ranking, wording
from railwright.report.text.iterations import render_iterations
from railwright.report.view import Absent, Group, Row, View
from railwright.results.declarations import Declarations
from railwright.results.records import Run
from railwright.units import format_count

_WIDE_COLUMNS, _NARROW_COLUMNS = 120, 70
_NUMBER_WIDTHS = {"measured": 10, "spread": 6, "limit": 10, "of limit": 8, "verdict": 10}
_INDENT = 2
_GAP = 2
_SHOWN = 3
"""The number of paths of a group that are named without --verbose."""


def render(
    view: View, console: Console, declarations: Declarations | None = None, *, verbose: bool = False
) -> None:  # fmt: skip
    """Print the report, fitted to the console's width, in colour if the console supports it.

    `declarations` provide the bars of training steps. `verbose` adds the reason of each limit, and all names.
    """
    printer = _Printer(console, verbose=verbose)
    printer.answer(view)
    printer.header(view)
    printer.slow(view)
    printer.unjudged(view.unjudged)
    printer.findings("Settings", view.findings)
    printer.table("Paths", view.rows)
    printer.baselines(view.references)
    printer.lines_under("Single hosts, the fastest first", host_ranking.lines(view.results))
    printer.lines_under("Merged groups of hosts", growth_text.lines(view.results))
    printer.lines_under("Best by size", view.best_by_size)
    printer.lines_under("Growing groups of hosts", view.scaling)
    printer.lines_under(storage_ways.TITLE, storage_ways.lines(view.ways))
    steps = render_iterations(view.results, declarations or {}, console.width)
    printer.lines_under("Training steps", steps.splitlines())
    printer.absent(view.absent)
    printer.counters(view)
    printer.closing(view)


class _Printer(Page):
    """Printer of the parts of a report on one console."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        super().__init__(console)
        self.verbose = verbose
        self.wide = console.width >= _WIDE_COLUMNS
        self.dropped = () if console.width >= _NARROW_COLUMNS else ("spread", "of limit")
        widths = {name: width for name, width in _NUMBER_WIDTHS.items() if name not in self.dropped}
        room = max(console.width - sum(widths.values()) - _GAP * len(widths) - _INDENT, 12)
        varied_width = min(room, 34) if self.wide else room
        self.columns = [Column(width=varied_width, overflow="fold")]
        for name, width in widths.items():
            self.columns.append(Column(width=width, justify="left" if name == "verdict" else "right", overflow="fold"))
        if self.wide:
            self.columns.append(Column(width=room - varied_width - _GAP, overflow="fold"))

    def cells(self, *cells: Text) -> None:
        """Print a line of a table of paths; a narrow console lacks columns, the limit's reason first."""
        names = ("varied", *_NUMBER_WIDTHS, "because")
        kept = [cell for name, cell in zip(names, cells, strict=True) if name not in self.dropped]
        self.grid(self.columns, kept[: len(self.columns)], gap=_GAP, indent=_INDENT)

    def facts(self, pairs: Iterable[tuple[str, str]], indent: int = 0) -> None:
        """Print names and values in two columns."""
        rows = [(self.text(name, "dim"), self.text(value)) for name, value in pairs if value]
        if rows:
            self.grid([Column(no_wrap=True), Column(overflow="fold")], *rows, gap=_GAP, indent=indent)

    def answer(self, view: View) -> None:
        """Print the answer in one sentence, then its baselines, and the reason if the run was cut off."""
        look = wording.STATES[view.state]
        self.line(f"{view.answer}.", f"bold {look.style}" if view.state in ("ok", "unknown") else look.style)
        if view.relative:
            self.line(f"{view.relative}.")
        if cut_off := wording.cut_off_words(view.end):
            self.line(cut_off, wording.STATES["slow"].style)

    def header(self, view: View) -> None:
        """Print the host, its hardware, its noise and the version; `verbose` adds command, kernel, load and gaps."""
        run = view.run
        context = run.context
        self.console.print()
        more = (
            ("command", " ".join(run.command)),
            ("kernel", ", ".join(part for part in (context.kernel, context.operating_system) if part)),
            ("busy", wording.busy_words(context)),
            ("unreadable", _unreadable(run)),
        )
        self.facts(
            (
                ("host", wording.machine_words(context)),
                ("CPU", context.cpu or "not known"),
                ("GPUs", wording.gpu_words(run.topology)),
                ("noise", wording.noise_words(context)),
                ("watched", view.watched),
                *(more if self.verbose else ()),
                ("run", f"railwright {run.railwright}, {run.started_at}"),
            )
        )

    def slow(self, view: View) -> None:
        """Print the slow paths, then their causes with the next command."""
        if view.slow_groups:
            self.heading("Slow")
        for group in view.slow_groups:
            shown = group.rows if self.verbose else group.rows[:_SHOWN]
            for row in shown:
                self.line(f"{row.name}", "bold", indent=_INDENT)
                self.line(row.why, indent=_INDENT * 2)
            self._more(len(group.rows) - len(shown), _INDENT)
            if group.reason:
                self.line(f"cause: {group.reason}", indent=_INDENT * 2)
        self.findings("Causes", view.causes)

    def findings(self, heading: str, found: Sequence[Finding]) -> None:
        """Print faults, each with its evidence and remedy."""
        if not found:
            return
        self.heading(heading)
        for finding in found:
            where = wording.join_first(finding.where, len(finding.where) if self.verbose else _SHOWN)
            self.line(f"{finding.fault} ({finding.certainty})  {where}", "bold", indent=_INDENT)
            self.line(finding.says, indent=_INDENT * 2)
            seen = finding.evidence if self.verbose else finding.evidence[:_SHOWN]
            evidence = tuple(("seen", f"{item.claim} {item.value} ({item.seen})") for item in seen)
            self.facts((("costs", finding.costs), ("remedy", finding.remedy), *evidence), indent=_INDENT * 2)

    def unjudged(self, groups: Sequence[Group]) -> None:
        """Print the paths without a verdict by reason, with the command that would judge them."""
        if not groups:
            return
        self.heading("Could not be judged")
        for group in groups:
            self.line(
                f"{wording.state_word(group.state)}: {group.reason}", wording.STATES[group.state].style, indent=_INDENT
            )
            if group.needs:
                self.line(f"to judge it: {group.needs}", indent=_INDENT * 2)
            self._names([row.name for row in group.rows])

    def _names(self, names: Sequence[str]) -> None:
        shown = names if self.verbose else names[:_SHOWN]
        for name in shown:
            self.line(name, "dim", indent=_INDENT * 2)
        self._more(len(names) - len(shown), _INDENT * 2)

    def _more(self, left: int, indent: int) -> None:
        """Print the number of names left out, if any."""
        if left:
            self.line(f"and {left} more (--verbose lists {'them' if left > 1 else 'it'})", "dim", indent=indent)

    def table(self, heading: str, rows: Sequence[Row]) -> None:
        """Print a line for each path, under a line for its benchmark and path name."""
        if not rows:
            return
        self.heading(heading)
        self.cells(*(self.text(name, "dim") for name in ("varied", *_NUMBER_WIDTHS, "because")))
        for (benchmark, path, kind), group in group_by_key(rows, lambda row: (row.benchmark, row.path, row.kind)):
            title = self.text(f"{benchmark}  ", "bold")
            ranks = wording.ranks_words(row.head.ranks for row in group if row.head)
            common = group[0].common if self.wide or self.verbose else ""
            title.append_text(self.text("  ".join(part for part in (path, kind, ranks, common) if part)))
            self.console.print(title)
            for row in group:
                self._row(row)

    def _row(self, row: Row) -> None:
        because = list(filter(None, (row.because, row.expected))) if self.verbose or self.wide else []
        if row.wide:
            because.append(row.wide)
        if self.verbose and row.why and row.state != "ok":
            because.append(f"{wording.state_word(row.state)}: {row.why}")
        self.cells(
            self.text(row.varied),
            self.text(row.measured),
            self.text(row.spread, "dim"),
            self.text(row.limit),
            self.text(row.share),
            self.text(wording.state_word(row.state), wording.STATES[row.state].style),
            Text("\n").join(self.text(words, "dim") for words in because),
        )
        if not self.wide:
            for words in because:
                self.line(words, "dim", indent=_INDENT * 2)

    def baselines(self, rows: Sequence[Row]) -> None:
        """Print a line for each baseline, then the reason of each limit once with the benchmarks that it concerns."""
        if not rows:
            return
        self.heading("Baselines, which the other paths are compared with")
        names = ["benchmark", "varied", "measured", "spread", *["limit", "of limit"] * _has_limits(rows)]
        numbers = [Column(no_wrap=True, justify="right") for _ in names[2:]]
        cells = [[self.text(name, "dim") for name in names]]
        for benchmark, group in group_by_key(rows, lambda row: row.benchmark):
            for number, row in enumerate(group):
                found = [row.measured, row.spread, *[row.limit, row.share] * _has_limits(rows)]
                name = self.text("" if number else benchmark, "bold")
                cells.append([name, self.text(row.varied), *map(self.text, found)])
        self.grid([Column(no_wrap=True), Column(overflow="fold"), *numbers], *cells, indent=_INDENT)
        for because, group in group_by_key(rows, lambda row: row.because):
            self.line(f"{_name_benchmarks(group)}: {because}", "dim", indent=_INDENT)
        for _, group in group_by_key((row for row in rows if row.wide), lambda row: row.benchmark):
            widest = max(group, key=lambda row: row.head.launch_spread or 0.0 if row.head else 0.0)
            more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
            self.line(f"{widest.benchmark}, {widest.varied}: {widest.wide}{more}", "dim", indent=_INDENT)

    def lines_under(self, heading: str, found: Iterable[str]) -> None:
        """Print preformatted lines under a heading, or nothing if there are no lines."""
        for number, words in enumerate(found):
            if not number:
                self.heading(heading)
            if words:
                self.line(words)
            else:
                self.console.print()

    def absent(self, found: Sequence[Absent]) -> None:
        """Print the paths that were not run or failed, a line per reason. Names failed paths; `verbose` names all."""
        if not found:
            return
        self.heading("Not measured")
        for group in found:
            names = dict.fromkeys(name.partition(" ")[0] for name in group.what)
            self.line(f"{wording.state_word(group.state)}: {', '.join(names)}: {group.reason}", indent=_INDENT)
            if self.verbose or group.state == "failed":
                self._names(group.what)

    def counters(self, view: View) -> None:
        """Print the NIC, link and TCP counters that changed, only if `verbose`."""
        moved = wording.moved_words(view.end)
        if moved and self.verbose:
            self.heading("Counters that moved during the run")
            self.facts(moved, indent=_INDENT)

    def closing(self, view: View) -> None:
        """Print the count of each verdict, and the exit status."""
        self.console.print()
        self.line(view.closing, "bold")


def _has_limits(rows: Sequence[Row]) -> bool:
    return any(row.limit != wording.ABSENT for row in rows)


def _name_benchmarks(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(row.benchmark for row in rows))


def _unreadable(run: Run) -> str:
    unknown = run.topology.unknown
    if not unknown:
        return ""
    return f"{format_count(len(unknown), 'fact')} of this machine (railwright topo lists them)"
