"""The view of a judged run: its order, groups, words and numbers. Reports only format them.

The order follows the reader's questions: the answer, the slow paths with their causes, the unjudged paths with the
commands that would judge them, all paths, and those not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from railwright.checks.finding import Finding
from railwright.diagnosis.peers.gpu_health import format_samples
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, State
from railwright.diagnosis.verdicts.policy import UNJUDGED
from railwright.groups import group_by_key
from railwright.limits.limit import Limit
from railwright.report.nccl_choice import cost_lines
from railwright.report.nccl_scaling import scaling_lines
from railwright.report.storage_ways import WayTable, way_tables
from railwright.report.text import wording
from railwright.results.records import End, Result, Run
from railwright.topology.devices import Scalar
from railwright.units import format_count

METER_LIMIT = 80.0
"""The position of the limit on a bar of length 100, with room to show values above it."""


class Meter(NamedTuple):
    """The fraction of limit as a bar: its length, and the start of the expected band."""

    reached: float
    band_from: float | None
    limit: float = METER_LIMIT


class Row(NamedTuple):
    """A path in words, as every report shows it."""

    number: int
    """Its place in the run, counted from 1; links use it."""
    state: State
    benchmark: str
    path: str
    kind: str
    ranks: str
    varied: str
    """The parameters that differ from others of the same benchmark and path, with the size."""
    common: str
    """The parameters shared with others of the same benchmark and path."""
    measured: str
    spread: str
    wide: str
    """A sentence on launches that differ widely; empty for others."""
    limit: str
    share: str
    because: str
    """The kind and the reason of the limit, or the reason why there is none."""
    expected: str
    why: str
    """The verdict's reason; empty if `because` states it."""
    needs: str
    meter: Meter | None
    judged: JudgedPath

    @property
    def name(self) -> str:
        """The benchmark, the path and the varied parameters."""
        return ", ".join(filter(None, (f"{self.benchmark} {self.path}", self.varied)))

    @property
    def head(self) -> Judged | None:
        """The point that represents the path."""
        return self.judged.headline


class Group(NamedTuple):
    """A group of paths that share a reason."""

    state: State
    reason: str
    needs: str
    rows: tuple[Row, ...]


class Absent(NamedTuple):
    """The paths that were not measured for a common reason."""

    state: State
    reason: str
    what: tuple[str, ...]
    """Each benchmark with its path and its parameters."""


class View(NamedTuple):
    """A judged run in the order of its reports."""

    run: Run
    end: End | None
    """The run's last record; None if the run was cut off."""
    results: tuple[Result, ...]
    """The raw records, with samples and settings."""
    watched: str
    """The state of the GPUs during the run, in words."""
    diagnosis: Diagnosis
    """All points in the run's order, the findings on the machine, and the exit status."""
    state: State
    """The worst verdict, which the answer states."""
    answer: str
    relative: str
    """A sentence on what the verdicts rest on; empty without verdicts."""
    counts: tuple[tuple[State, int], ...]
    closing: str
    slow_groups: tuple[Group, ...]
    """The slow paths by benchmark and cause; the cause is the group's reason."""
    causes: tuple[Finding, ...]
    """The causes of the slow paths, each once."""
    unjudged: tuple[Group, ...]
    all_rows: tuple[Row, ...]
    """All paths in the run's order, whatever their verdict."""
    rows: tuple[Row, ...]
    """All measured paths except the baselines."""
    references: tuple[Row, ...]
    best_by_size: tuple[str, ...]
    """The gain of a forced choice at each size, as lines; empty if nothing was forced."""
    scaling: tuple[str, ...]
    """The efficiency of growing groups of hosts, as lines; empty if no groups grew."""
    ways: tuple[WayTable, ...]
    """Transfers between files and memory by each way, if more than one was measured."""
    absent: tuple[Absent, ...]
    findings: tuple[Finding, ...]
    """The findings on the machine's settings that explain no slow path."""

    @property
    def every(self) -> tuple[Row, ...]:
        """All measured paths, in the run's order."""
        return tuple(row for row in self.all_rows if row.state != "waived")

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """The causes of the paths, then the findings of the machine, each once."""
        return _deduplicate(
            (*(cause for row in self.all_rows for cause in row.judged.causes), *self.diagnosis.findings)
        )


def build_view(run: Run, diagnosis: Diagnosis, end: End | None, results: Sequence[Result] = ()) -> View:
    """Build the view of a judged run; `results` provide the parts that need samples and settings."""
    shared = _find_shared(diagnosis.paths)
    rows = [_row(number, path, shared) for number, path in enumerate(diagnosis.paths, start=1)]
    counts = wording.state_counts(path.verdict.state for path in diagnosis.paths)
    slow = tuple(row for row in rows if row.state == "slow")
    causes = _deduplicate(cause for row in slow for cause in row.judged.causes)
    measured = [row for row in rows if row.state != "waived"]
    references = tuple(row for row in measured if row.state == "reference")
    known = {row.number for row in references}
    return View(
        run=run,
        end=end,
        results=tuple(results),
        watched=wording.escape(format_samples(results)),
        diagnosis=diagnosis,
        state=_find_worst(dict(counts), diagnosis),
        answer=_answer(dict(counts), slow, diagnosis),
        relative=_basis_words(measured, references),
        counts=counts,
        closing=wording.closing_words(diagnosis),
        slow_groups=_slow_groups(slow),
        causes=causes,
        unjudged=_group_unjudged(measured),
        all_rows=tuple(rows),
        rows=tuple(row for row in measured if row.number not in known),
        references=references,
        best_by_size=tuple(cost_lines(diagnosis.points)),
        scaling=tuple(scaling_lines(diagnosis.points)),
        ways=way_tables(results),
        absent=_group_absent(diagnosis),
        findings=tuple(finding for finding in diagnosis.findings if finding not in causes),
    )


def _deduplicate(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    for finding in findings:
        if finding not in found:
            found.append(finding)
    return tuple(found)


def slow_edge(point: Judged) -> float | None:
    """Return the end of the expected band beyond which the point's value is slow."""
    if point.expected is None:
        return None
    return point.expected.high if point.quantity == "latency_s" else point.expected.low


def _find_shared(paths: Sequence[JudgedPath]) -> dict[tuple[str, str], dict[str, Scalar]]:
    """Return the parameters that all paths of a benchmark and path name share, so that no row repeats them."""
    found = {}
    for key, group in group_by_key(paths, lambda path: (path.benchmark, path.path)):
        parameter_sets = [set(path.parameters.items()) for path in group]
        found[key] = dict(set.intersection(*parameter_sets)) if len(parameter_sets) > 1 else {}
    return found


def _row(number: int, path: JudgedPath, shared: dict[tuple[str, str], dict[str, Scalar]]) -> Row:
    common = shared[path.benchmark, path.path]
    head = path.headline
    limit, share = wording.bound_and_share(head)
    size = wording.size_words(head.parameters) if head else ""
    varied = ", ".join(
        filter(None, (wording.parameter_words(path.parameters, without=tuple(common)), f"at {size}" if size else ""))
    )
    return Row(
        number=number,
        state=path.verdict.state,
        benchmark=wording.escape(path.benchmark),
        path=wording.escape(path.path),
        kind=path.path_kind or "",
        ranks=wording.ranks_words([head.ranks]) if head else "",
        varied=varied or wording.QUANTITY_WORDS[path.quantity],
        common=wording.parameter_words({key: path.parameters[key] for key in path.parameters if key in common}),
        measured=wording.quantity(path.quantity, head.value if head else None),
        spread=wording.percent(head.launch_spread if head else None),
        wide=wording.wide_spread_words(head),
        limit=limit,
        share=share,
        because=wording.because_of(head) if head else "",
        expected=f"expected {wording.band_words(head.expected)}" if head and head.expected else "",
        why=wording.why_words(path),
        needs=wording.escape(path.verdict.needs),
        meter=_meter(head),
        judged=path,
    )


def _meter(head: Judged | None) -> Meter | None:
    """Return the bar of a point: its share of the limit, or of a latency its share of the end of its band."""
    if head is None or not head.value or head.value < 0:
        return None
    band = head.expected
    if head.quantity == "latency_s":
        if band is None or not band.high:
            return None
        return Meter(reached=_on_bar(head.value / band.high), band_from=_on_bar(min(band.low / band.high, 1.0)))
    if head.fraction_of_limit is None or not isinstance(head.limit, Limit) or not head.limit.value > 0:
        return None
    band_from = _on_bar(min(band.low / head.limit.value, 1.0)) if band is not None and band.low else None
    return Meter(reached=_on_bar(head.fraction_of_limit), band_from=band_from)


def _on_bar(share: float) -> float:
    return round(min(share * METER_LIMIT, 100.0), 2)


def _find_worst(counts: dict[State, int], diagnosis: Diagnosis) -> State:
    if diagnosis.required:
        return (
            "slow" if any(state == "slow" for _, state in diagnosis.unmet) else "unknown" if diagnosis.unmet else "ok"
        )
    worst = next((state for state in counts if state not in ("reference", "waived", "ok")), None)
    return worst or ("ok" if counts.get("ok") else "unknown")


def _answer(counts: dict[State, int], slow: Sequence[Row], diagnosis: Diagnosis) -> str:
    """Summarize in one sentence the paths that were judged or should have been."""
    if diagnosis.required:
        return _summarize_required_paths(diagnosis)
    fine, not_judged = counts.get("ok", 0), sum(counts.get(state, 0) for state in UNJUDGED)
    total = format_count(len(slow) + fine + not_judged, "path")
    points = f" ({wording.unjudged_points(diagnosis)})" if not_judged else ""
    if slow:
        first = f"{slow[0].benchmark} {slow[0].path}"
        more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
        unknown = f"; {not_judged} could not be judged{points}" if not_judged else ""
        return f"{len(slow)} of {total} {'is' if len(slow) == 1 else 'are'} slow: {first}{more}{unknown}"
    sure = [finding for finding in diagnosis.findings if finding.certainty in ("seen", "likely")]
    if not_judged:
        return f"{not_judged} of {total} could not be judged{points}, and nothing is slow"
    if sure:
        return f"No path is slow, and the machine is misconfigured: {wording.escape(sure[0].fault)}"
    if fine == 1:
        return "The one path that can be judged is as fast as expected"
    return f"All {fine} paths that can be judged are as fast as expected" if fine else "Nothing was judged"


def _summarize_required_paths(diagnosis: Diagnosis) -> str:
    if not diagnosis.unmet:
        return f"All required paths are ok: {wording.escape(', '.join(diagnosis.required))}"
    unmet = [f"{wording.escape(name)} is {wording.state_word(state)}" for name, state in diagnosis.unmet]
    return f"Not all required paths are ok: {wording.join_first(unmet, _MAX_NAMED)}"


_MAX_NAMED = 3


def _basis_words(rows: Sequence[Row], references: Sequence[Row]) -> str:
    """Explain in one sentence the measurements and facts that the verdicts rest on."""
    kinds = [row.head.limit.kind for row in rows if row.state in ("ok", "slow") and row.head is not None
             and isinstance(row.head.limit, Limit)]  # fmt: skip
    by_kind = {kind: kinds.count(kind) for kind in ("measured_ceiling", "derived")}
    names = ", ".join(dict.fromkeys(row.benchmark.replace("_", " ") for row in references))
    measured = f"simpler measurements of this machine{f' ({names})' if names else ''}"
    if not by_kind["measured_ceiling"]:
        return "The verdicts rest on the rates of the hardware" if kinds else ""
    if by_kind["derived"]:
        facts = "the rates of the hardware"
        return f"{by_kind['derived']} verdicts rest on {facts}, {by_kind['measured_ceiling']} on {measured}"
    return f"The verdicts rest on {measured}: they do not show whether the machine as a whole is slow"


def _slow_groups(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Group the slow paths by benchmark and cause, because a fault can slow many paths."""
    causes = {
        row.number: ", ".join(f"{cause.fault} ({cause.certainty})" for cause in row.judged.causes) for row in rows
    }
    return tuple(
        Group("slow", wording.escape(reason), "", tuple(group))
        for (_, reason), group in group_by_key(rows, lambda row: (row.benchmark, causes[row.number]))
    )


def _group_unjudged(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Group the paths without a verdict by reason, the worst first."""
    found = [row for row in rows if row.state in UNJUDGED]
    groups = [
        Group(state, reason, needs, tuple(group))
        for (state, reason, needs), group in group_by_key(
            found, lambda row: (row.state, row.why or row.because, row.needs)
        )
    ]
    order = [state for state, _ in wording.state_counts(group.state for group in groups)]
    return tuple(sorted(groups, key=lambda group: order.index(group.state)))


def _group_absent(diagnosis: Diagnosis) -> tuple[Absent, ...]:
    """Group the points that were not run or failed by reason."""
    missing = (point for point in diagnosis.points if point.verdict.state in ("waived", "failed"))
    found = []
    for (state, reason), group in group_by_key(missing, _reason):
        curves = ((*curve, wording.sizes_words(same, listed=1)) for curve, same in group_by_key(group, _curve))
        found.append(Absent(state, reason, tuple(dict.fromkeys(" ".join(filter(None, curve)) for curve in curves))))
    return tuple(found)


def _reason(point: Judged) -> tuple[State, str]:
    return point.verdict.state, wording.escape(point.verdict.why or point.reason)


def _curve(point: Judged) -> tuple[str, str, str]:
    varied = wording.parameter_words(point.parameters, without=("size_bytes",))
    return wording.escape(point.benchmark), wording.escape(point.path), varied
