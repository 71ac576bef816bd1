"""The report on a terminal: the machine, every path beside its limit, what holds it back, and what was not measured.

Everything printed comes from the records that `report.records` writes, and a path is never told by colour alone.
Text from the machine is shown with its control characters escaped and is never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Column
from rich.text import Text

from railwright.diagnosis.gpu_health import watched_words
from railwright.diagnosis.judged import Diagnosis, JudgedPath
from railwright.faults.fault import Finding
from railwright.groups import grouped
from railwright.report import wording
from railwright.report.iteration_text import render_iterations
from railwright.report.nccl_choice import cost_tables, lines
from railwright.report.page import Page
from railwright.results.bounds import Declarations
from railwright.results.records import End, Result, Run
from railwright.units import count

_WIDE_COLUMNS = 120
_NUMBER_WIDTHS = {"measured": 10, "spread": 6, "limit": 10, "of limit": 8, "verdict": 10}
_INDENT = 2
_GAP = 2


def render(
    run: Run,
    diagnosis: Diagnosis,
    end: End | None,
    console: Console,
    results: Sequence[Result] = (),
    declarations: Declarations | None = None,
) -> None:
    """Print the report, fitted to the console's width; without colour where the console has none.

    `results` are needed for what is told from samples: how GPUs were watched, and with what their benchmarks declare
    the bars of training steps.
    """
    printer = _Printer(console)
    printer.header(run, results)
    printer.paths(diagnosis.paths)
    printer.lines_under("Best by size", lines(cost_tables(diagnosis.points)))
    printer.lines_under("Training steps", render_iterations(results, declarations or {}, console.width).splitlines())
    printer.findings(diagnosis)
    printer.unmeasured(diagnosis)
    printer.counters(end)
    printer.closing(diagnosis, end)


class _Printer(Page):
    """Prints the parts of one report, each to the same console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.wide = console.width >= _WIDE_COLUMNS
        room = max(console.width - sum(_NUMBER_WIDTHS.values()) - _GAP * len(_NUMBER_WIDTHS) - _INDENT, 12)
        varied_width = min(room, 34) if self.wide else room
        self.columns = [Column(width=varied_width, overflow="fold")]
        for name, width in _NUMBER_WIDTHS.items():
            self.columns.append(Column(width=width, justify="left" if name == "verdict" else "right", overflow="fold"))
        if self.wide:
            self.columns.append(Column(width=room - varied_width - _GAP, overflow="fold"))

    def row(self, *cells: Text) -> None:
        """A line of the table of paths; what sets the limit has no column where the console is narrow."""
        self.grid(self.columns, cells[: len(self.columns)], gap=_GAP, indent=_INDENT)

    def facts(self, pairs: Iterable[tuple[str, str]], indent: int = 0) -> None:
        """Names and values in two columns."""
        rows = [(self.text(name, "dim"), self.text(value)) for name, value in pairs if value]
        if rows:
            self.grid([Column(no_wrap=True), Column(overflow="fold")], *rows, gap=_GAP, indent=indent)

    def header(self, run: Run, results: Sequence[Result]) -> None:
        """Where, with what and how quietly it was measured."""
        context = run.context
        self.line(f"railwright {run.railwright}, {run.started_at}", "bold")
        self.facts(
            (
                ("command", " ".join(run.command)),
                ("host", wording.machine_words(context)),
                ("CPU", context.cpu or "not known"),
                ("GPUs", wording.gpu_words(run.topology)),
                ("kernel", ", ".join(part for part in (context.kernel, context.operating_system) if part)),
                ("noise", wording.noise_words(context)),
                ("busy", wording.busy_words(context)),
                ("watched", watched_words(results)),
                ("unreadable", _unreadable(run)),
            )
        )

    def paths(self, paths: tuple[JudgedPath, ...]) -> None:
        """The table: one line for each curve, under a line for its benchmark and path."""
        self.heading("Paths")
        if not paths:
            self.line("no path was measured", indent=_INDENT)
            return
        self.row(*(self.text(name, "dim") for name in ("varied", *_NUMBER_WIDTHS, "because")))
        by_path = grouped(paths, lambda each: (each.benchmark, each.path, each.path_kind))
        for (benchmark, path, kind), group in by_path:
            title = self.text(f"{benchmark}  ", "bold")
            ranks = wording.ranks_words(judged.headline.ranks for judged in group if judged.headline)
            title.append_text(self.text("  ".join(part for part in (path, kind, ranks) if part)))
            self.console.print(title)
            for judged in group:
                self._path(judged)

    def _path(self, judged: JudgedPath) -> None:
        head = judged.headline
        state = judged.verdict.state
        lines = list(_because_lines(judged))
        limit, share = wording.limit_and_share(head)
        self.row(
            self.text(_varied(judged)),
            self.text(wording.quantity(judged.quantity, head.value if head else None)),
            self.text(wording.percent(head.launch_spread if head else None), "dim"),
            self.text(limit),
            self.text(share),
            self.text(state, wording.STATES[state].style),
            Text("\n").join(self.text(words, "dim") for words in lines),
        )
        if not self.wide:
            for words in lines:
                self.line(words, "dim", indent=_INDENT * 2)

    def lines_under(self, heading: str, found: Iterable[str]) -> None:
        """Lines that are laid out already, under their heading; no heading without lines."""
        for number, words in enumerate(found):
            if not number:
                self.heading(heading)
            if words:
                self.line(words)
            else:
                self.console.print()

    def findings(self, diagnosis: Diagnosis) -> None:
        """What holds a path back, each with its evidence and remedy."""
        found = all_findings(diagnosis)
        if not found:
            return
        self.heading("What holds it back")
        for finding in found:
            self.line(f"{finding.fault} ({finding.certainty})  {', '.join(finding.where)}", "bold", indent=_INDENT)
            self.line(finding.says, indent=_INDENT * 2)
            evidence = tuple(("seen", f"{seen.claim} {seen.value} ({seen.seen})") for seen in finding.evidence)
            self.facts((("costs", finding.costs), ("remedy", finding.remedy), *evidence), indent=_INDENT * 2)

    def unmeasured(self, diagnosis: Diagnosis) -> None:
        """What was waived or failed, and why."""
        missing = wording.unmeasured(diagnosis.points)
        if not missing:
            return
        self.heading("Not measured")
        for entry in missing:
            title = self.text(f"{entry.state}  ", wording.STATES[entry.state].style)
            parts = (entry.benchmark, entry.path, entry.parameters, entry.size_words)
            title.append_text(self.text("  ".join(part for part in parts if part), "default"))
            self.console.print(Padding(title, (0, 0, 0, _INDENT), expand=False))
            self.line(entry.reason, indent=_INDENT * 2)

    def counters(self, end: End | None) -> None:
        """NIC, link and TCP counters that changed."""
        if end is None or not end.counters_moved:
            return
        self.heading("Counters that moved during the run")
        self.facts(wording.moved_words(end.counters_moved), indent=_INDENT)

    def closing(self, diagnosis: Diagnosis, end: End | None) -> None:
        """Whether the run is whole, and the one sentence that says how it went."""
        self.console.print()
        cut_off = wording.cut_off_words(end)
        if cut_off:
            self.line(cut_off, wording.STATES["slow"].style)
        self.line(wording.closing_words(diagnosis), "bold")


def all_findings(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """The causes of the paths, then the findings of the machine, each once."""
    causes = (cause for path in diagnosis.paths for cause in path.causes)
    found: list[Finding] = []
    for finding in (*causes, *diagnosis.findings):
        if finding not in found:
            found.append(finding)
    return tuple(found)


def _varied(judged: JudgedPath) -> str:
    size = wording.size_words(judged.headline.parameters) if judged.headline else ""
    words = (wording.parameter_words(judged.parameters), f"at {size}" if size else "")
    return ", ".join(filter(None, words)) or wording.QUANTITY_WORDS[judged.quantity]


def _because_lines(judged: JudgedPath) -> Iterator[str]:
    """What sets the limit, what is expected of it, and what the verdict says where that is not simply ok."""
    if judged.headline is not None:
        yield wording.because(judged.headline.limit)
        if judged.headline.expected is not None:
            yield f"expected {wording.band_words(judged.headline.expected)}"
    why = wording.why_words(judged)
    if why and judged.verdict.state != "ok":
        yield f"{judged.verdict.state}: {why}"


def _unreadable(run: Run) -> str:
    unknown = run.topology.unknown
    if not unknown:
        return ""
    return f"{count(len(unknown), 'fact')} of this machine (railwright topo lists them)"
