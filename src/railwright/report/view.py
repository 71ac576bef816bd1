"""One view of a judged run: its order, groups, words and numbers, made once. Reports only lay them out.

The order is that of the questions: what is the answer, what is slow and why, what could not be judged and what would
judge it, every path, what was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from railwright.checks.finding import Finding
from railwright.diagnosis.peers.gpu_health import watched_words
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, State
from railwright.expected.nccl_collectives import decides_nothing
from railwright.groups import grouped
from railwright.limits.limit import Limit
from railwright.report.nccl_choice import cost_lines
from railwright.report.storage_ways import WayTable, way_tables
from railwright.report.text import wording
from railwright.results.records import End, Result, Run
from railwright.topology.devices import Scalar
from railwright.units import count

METER_LIMIT = 80.0
"""Where the limit stands on a bar that is 100 long: what is above the limit must be seen to be above it."""


class Meter(NamedTuple):
    """The fraction of limit as a bar: how far it reaches, and where the expected band begins."""

    reached: float
    band_from: float | None
    limit: float = METER_LIMIT


class Row(NamedTuple):
    """One path as every report shows it, in words."""

    number: int
    """Its place in the run, counted from 1: what links point at."""
    state: State
    benchmark: str
    path: str
    kind: str
    ranks: str
    varied: str
    """What tells it from others of the same benchmark and path, with its size."""
    common: str
    """What it shares with the others of its benchmark and path."""
    measured: str
    spread: str
    limit: str
    share: str
    because: str
    """What sets the limit, or why there is none."""
    expected: str
    why: str
    """What the verdict says; empty where `because` says it."""
    needs: str
    meter: Meter | None
    judged: JudgedPath

    @property
    def name(self) -> str:
        """Its benchmark, its way and what was varied."""
        return ", ".join(filter(None, (f"{self.benchmark} {self.path}", self.varied)))

    @property
    def head(self) -> Judged | None:
        """The point that stands for it."""
        return self.judged.headline


class Group(NamedTuple):
    """Paths that share a reason."""

    state: State
    reason: str
    needs: str
    rows: tuple[Row, ...]


class Absent(NamedTuple):
    """What was not measured for one reason, once."""

    state: State
    reason: str
    what: tuple[str, ...]
    """Each benchmark with its path and what was varied."""


class View(NamedTuple):
    """A judged run in the order in which it is told."""

    run: Run
    end: End | None
    """How it ended; None where it was cut off."""
    results: tuple[Result, ...]
    """The raw records, of what was held while measuring."""
    watched: str
    """What the GPUs did meanwhile."""
    diagnosis: Diagnosis
    """Every point in the run's order, what was found of the machine, and the exit status."""
    state: State
    """The worst verdict, which the answer is about."""
    answer: str
    relative: str
    """What the answer rests on: references, which nothing judged; empty where there are none."""
    counts: tuple[tuple[State, int], ...]
    closing: str
    slow_groups: tuple[Group, ...]
    """What is slow, by benchmark and by what explains it, which is the group's reason."""
    causes: tuple[Finding, ...]
    """What explains the slow paths, each once."""
    unjudged: tuple[Group, ...]
    all_rows: tuple[Row, ...]
    """Every path in the run's order, whatever became of it."""
    rows: tuple[Row, ...]
    """Every path but references and those that were not measured."""
    references: tuple[Row, ...]
    best_by_size: tuple[str, ...]
    """What a forced choice would win at each size, as lines; empty where nothing was forced."""
    ways: tuple[WayTable, ...]
    """Files to and from memory by each way, where more than one was measured."""
    absent: tuple[Absent, ...]
    findings: tuple[Finding, ...]
    """Of the machine's settings, which no slow path shows."""

    @property
    def every(self) -> tuple[Row, ...]:
        """All paths that were measured, in the run's order."""
        return tuple(row for row in self.all_rows if row.state != "waived")

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """The causes of the paths, then the findings of the machine, each once."""
        return _once((*(cause for row in self.all_rows for cause in row.judged.causes), *self.diagnosis.findings))


def view_of(run: Run, diagnosis: Diagnosis, end: End | None, results: Sequence[Result] = ()) -> View:
    """The view of a judged run; `results` are needed for what is told from samples and settings."""
    shared = _shared(diagnosis.paths)
    rows = [_row(number, path, shared) for number, path in enumerate(diagnosis.paths, start=1)]
    counts = wording.state_counts(path.verdict.state for path in diagnosis.paths)
    slow = tuple(row for row in rows if row.state == "slow")
    causes = _once(cause for row in slow for cause in row.judged.causes)
    measured = [row for row in rows if row.state != "waived"]
    references = tuple(row for row in measured if row.state == "reference")
    known = {row.number for row in references}
    return View(
        run=run,
        end=end,
        results=tuple(results),
        watched=wording.visible(watched_words(results)),
        diagnosis=diagnosis,
        state=_worst(dict(counts), diagnosis),
        answer=_answer(dict(counts), slow, diagnosis),
        relative=_relative(references),
        counts=counts,
        closing=wording.closing_words(diagnosis),
        slow_groups=_slow_groups(slow),
        causes=causes,
        unjudged=_unjudged(measured),
        all_rows=tuple(rows),
        rows=tuple(row for row in measured if row.number not in known),
        references=references,
        best_by_size=tuple(cost_lines(diagnosis.points)),
        ways=way_tables(results),
        absent=_absent(diagnosis),
        findings=tuple(finding for finding in diagnosis.findings if finding not in causes),
    )


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    for finding in findings:
        if finding not in found:
            found.append(finding)
    return tuple(found)


def slow_edge(point: Judged) -> float | None:
    """The end of the expected band beyond which its value is slow."""
    if point.expected is None:
        return None
    return point.expected.high if point.quantity == "latency_s" else point.expected.low


def _shared(paths: Sequence[JudgedPath]) -> dict[tuple[str, str], dict[str, Scalar]]:
    """The parameters that several paths of one benchmark and way have in common, so that no row repeats them."""
    found = {}
    for key, group in grouped(paths, lambda path: (path.benchmark, path.path)):
        every = [set(path.parameters.items()) for path in group]
        found[key] = dict(set.intersection(*every)) if len(every) > 1 else {}
    return found


def _row(number: int, path: JudgedPath, shared: dict[tuple[str, str], dict[str, Scalar]]) -> Row:
    common = shared[path.benchmark, path.path]
    head = path.headline
    limit, share = wording.limit_and_share(head)
    size = wording.size_words(head.parameters) if head else ""
    varied = ", ".join(
        filter(None, (wording.parameter_words(path.parameters, without=tuple(common)), f"at {size}" if size else ""))
    )
    return Row(
        number=number,
        state=path.verdict.state,
        benchmark=wording.visible(path.benchmark),
        path=wording.visible(path.path),
        kind=path.path_kind or "",
        ranks=wording.ranks_words([head.ranks]) if head else "",
        varied=varied or wording.QUANTITY_WORDS[path.quantity],
        common=wording.parameter_words({key: path.parameters[key] for key in path.parameters if key in common}),
        measured=wording.quantity(path.quantity, head.value if head else None),
        spread=wording.percent(head.launch_spread if head else None),
        limit=limit,
        share=share,
        because=wording.because(head.limit) if head else "",
        expected=f"expected {wording.band_words(head.expected)}" if head and head.expected else "",
        why=wording.why_words(path),
        needs=wording.visible(path.verdict.needs),
        meter=_meter(head),
        judged=path,
    )


def _meter(head: Judged | None) -> Meter | None:
    if head is None or head.fraction_of_limit is None or not head.fraction_of_limit >= 0:
        return None
    if decides_nothing(head.limit, head.expected):
        return None
    edge, band_from = slow_edge(head), None
    if edge and isinstance(head.limit, Limit) and head.limit.value > 0:
        share = head.limit.value / edge if head.quantity == "latency_s" else edge / head.limit.value
        band_from = round(min(share, 1.0) * METER_LIMIT, 2)
    return Meter(reached=round(min(head.fraction_of_limit * METER_LIMIT, 100.0), 2), band_from=band_from)


def _worst(counts: dict[State, int], diagnosis: Diagnosis) -> State:
    if diagnosis.required:
        return (
            "slow" if any(state == "slow" for _, state in diagnosis.unmet) else "unknown" if diagnosis.unmet else "ok"
        )
    worst = next((state for state in counts if state not in ("reference", "waived", "ok")), None)
    return worst or ("ok" if counts.get("ok") else "unknown")


def _answer(counts: dict[State, int], slow: Sequence[Row], diagnosis: Diagnosis) -> str:
    """One sentence: how it went, of what was or should have been judged."""
    if diagnosis.required:
        return _answer_of_required(diagnosis)
    fine, not_judged = counts.get("ok", 0), sum(counts.get(one, 0) for one in ("suspicious", "failed", "unknown"))
    total = count(len(slow) + fine + not_judged, "path")
    if slow:
        first = f"{slow[0].benchmark} {slow[0].path}"
        more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
        return f"{len(slow)} of {total} {'is' if len(slow) == 1 else 'are'} slow: {first}{more}"
    sure = [finding for finding in diagnosis.findings if finding.certainty in ("seen", "likely")]
    if not_judged:
        return f"{not_judged} of {total} could not be judged, and nothing is slow"
    if sure:
        return f"No path is slow, and the machine is misconfigured: {wording.visible(sure[0].fault)}"
    if fine == 1:
        return "The one path that can be judged is as fast as expected"
    return f"All {fine} paths that can be judged are as fast as expected" if fine else "Nothing was judged"


def _answer_of_required(diagnosis: Diagnosis) -> str:
    if not diagnosis.unmet:
        return f"All that was required is ok: {wording.visible(', '.join(diagnosis.required))}"
    unmet = [f"{wording.visible(name)} is {state}" for name, state in diagnosis.unmet]
    return f"Not all that was required is ok: {wording.first_of(unmet, _NAMED)}"


_NAMED = 3


def _relative(references: Sequence[Row]) -> str:
    if not references:
        return ""
    names = ", ".join(dict.fromkeys(row.benchmark for row in references))
    known = any(row.limit != wording.ABSENT for row in references)
    own = "which were held against their own limits alone" if known else "which nothing judged"
    return f"That is relative to {count(len(references), 'reference')} of this run, {own}: {names}"


def _slow_groups(rows: Sequence[Row]) -> tuple[Group, ...]:
    """What is slow, by benchmark and cause: one fault can hold back many paths."""
    causes = {row.number: ", ".join(f"{one.fault} ({one.certainty})" for one in row.judged.causes) for row in rows}
    return tuple(
        Group("slow", wording.visible(reason), "", tuple(group))
        for (_, reason), group in grouped(rows, lambda row: (row.benchmark, causes[row.number]))
    )


def _unjudged(rows: Sequence[Row]) -> tuple[Group, ...]:
    """What should have been judged and could not, by reason, the worst first."""
    found = [row for row in rows if row.state in ("suspicious", "failed", "unknown")]
    groups = [
        Group(state, reason, needs, tuple(group))
        for (state, reason, needs), group in grouped(found, lambda row: (row.state, row.why or row.because, row.needs))
    ]
    order = [state for state, _ in wording.state_counts(group.state for group in groups)]
    return tuple(sorted(groups, key=lambda group: order.index(group.state)))


def _absent(diagnosis: Diagnosis) -> tuple[Absent, ...]:
    """What was waived, one line for each reason; what failed is there too, with the points that did."""
    missing = (point for point in diagnosis.points if point.verdict.state in ("waived", "failed"))
    found = []
    for (state, reason), group in grouped(missing, _reason):
        curves = ((*curve, wording.sizes_words(same, listed=1)) for curve, same in grouped(group, _curve))
        found.append(Absent(state, reason, tuple(dict.fromkeys(" ".join(filter(None, curve)) for curve in curves))))
    return tuple(found)


def _reason(point: Judged) -> tuple[State, str]:
    return point.verdict.state, wording.visible(point.verdict.why or point.reason)


def _curve(point: Judged) -> tuple[str, str, str]:
    varied = wording.parameter_words(point.parameters, without=("size_bytes",))
    return wording.visible(point.benchmark), wording.visible(point.path), varied
