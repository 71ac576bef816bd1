"""Is this table normal? A known tool's output on a machine that is given: rows, verdict, likely causes."""

from __future__ import annotations

import msgspec

from railwright.diagnosis.curve_findings import seen_in
from railwright.diagnosis.curve_shape import cut_off, shape_notes
from railwright.diagnosis.doubts import weighed
from railwright.diagnosis.foreign import (
    Machine,
    busbw_scale,
    differences,
    is_busbw,
    judge_rows,
    machine_for,
)
from railwright.diagnosis.hypotheses import Fitted, fit
from railwright.diagnosis.judged import Judged, State, Verdict
from railwright.diagnosis.nccl_paths import NO_MACHINE
from railwright.diagnosis.said_of_links import contradictions_of_links
from railwright.diagnosis.verdict import WORST_FIRST
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.faults.fault import Facts, Finding
from railwright.faults.registry import FAULTS
from railwright.limits.limit import NoLimit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Verification, size_of
from railwright.units import format_size


class Explained(msgspec.Struct, frozen=True, kw_only=True, tag="explained", tag_field="record", omit_defaults=True,
                forbid_unknown_fields=True):  # fmt: skip
    """One run of one tool: what `railwright explain --json` prints."""

    tool: str
    version: str
    test: str
    ranks: int | None = None
    hosts: int | None = None
    machine: str = ""
    """Empty if no machine was given: then no row could be judged."""
    rows: tuple[Judged, ...]
    shown: tuple[str, ...]
    """The tool's own string of each row, with its own unit."""
    headline: int | None = None
    """The row that stands for the table: the largest size."""
    verdict: Verdict
    hypotheses: tuple[Fitted, ...] = ()
    """The healthy machine first, then the faults whose curves are nearest."""
    findings: tuple[Finding, ...] = ()
    """What the table's own settings (evidence `setting`) and the machine given show."""
    contradictions: tuple[str, ...] = ()
    """What the table says of itself, where the machine given is another."""
    notes: tuple[str, ...] = ()
    bandwidths_are: str = ""
    """`busbw` where the rates of collectives are busbw."""
    status: int
    """The exit status: 0 ok, 1 slow or misconfigured, 3 could not be judged."""


def explain(file: ForeignFile, machine: Machine | None) -> Explained:
    """Judge one run. Raises UsageError where the machine cannot be the table's, CannotJudge where it is not known."""
    if machine is not None and machine.path and file.subject.kind != "messages":
        raise UsageError(
            f"--path {machine.path[:80]!r} is about two devices, {file.test} is not of two", hint="leave --path out"
        )
    placed = machine_for(file, machine) if machine is not None else None
    rows = judge_rows(file, placed) if placed is not None else tuple(_unjudged(file))
    headline = _headline(rows)
    if file.subject.kind == "collective":
        rows = weighed(rows, headline, placed.cluster.hosts if placed is not None else 1)
    verdict = _verdict(rows, headline)
    if verdict.state == "ok" and cut_off(file):
        verdict = Verdict(state="unknown", why=f"{verdict.why}, but the text ends before the run's own last size")
    curves = verdict.state in ("slow", "unknown", "failed")
    host = placed.cluster.host if placed is not None else NO_MACHINE
    facts = Facts(topology=host, environment=file.environment)
    looked = (finding for fault in FAULTS for finding in fault.look(facts))
    # What could not be looked at says nothing here.
    findings = tuple(finding for finding in looked if finding.certainty != "could not look")
    notes = differences(file, machine.cluster, placed.cluster) if machine is not None and placed is not None else ()
    findings = (*findings, *seen_in(file, placed, rows))
    return Explained(
        tool=file.tool,
        version=file.version,
        test=file.test,
        ranks=file.ranks,
        hosts=placed.cluster.hosts if placed is not None and file.ranks is not None else file.hosts,
        machine=placed.cluster.name if placed is not None else "",
        rows=rows,
        shown=tuple(str(result.settings.get("shown", "")) for result in file.results),
        headline=headline,
        verdict=verdict,
        hypotheses=fit(file, placed) if curves and placed is not None else (),
        findings=findings,
        contradictions=contradictions_of_links(file, machine.cluster) if machine is not None else (),
        notes=(*notes, *shape_notes(file, rows), *file.notes),
        bandwidths_are="busbw" if is_busbw(file) else "",
        status=_status(verdict.state, rows, findings),
    )


def _unjudged(file: ForeignFile) -> list[Judged]:
    none = NoLimit(quantity="bandwidth_bytes_per_s", why="no machine was given")
    scale = busbw_scale(file)
    return [
        Judged(
            benchmark=result.benchmark, quantity=result.quantity, path=result.path, parameters=result.parameters,
            outcome=result.outcome, value=result.summary.median * scale if result.summary else None, limit=none,
            verdict=_wrong(result.verification) or Verdict(state="unknown", why=none.why),
            verification=result.verification, method=result.method,
        )
        for result in file.results
    ]  # fmt: skip


def _wrong(checked: Verification | None) -> Verdict | None:
    """Wrong data needs no machine to be seen."""
    if checked is None or not checked.bytes_wrong:
        return None
    return Verdict(state="failed", why=f"the data check found {checked.bytes_wrong} wrong bytes")


def _headline(rows: tuple[Judged, ...]) -> int | None:
    """The row of the largest size, the best of its placements; for rows without sizes the best value."""

    def rank(number: int) -> tuple[int, float]:
        return size_of(rows[number].parameters) or 0, rows[number].value or 0.0

    bandwidths = [number for number, row in enumerate(rows) if row.quantity != "latency_s"]
    return max(bandwidths or range(len(rows)), key=rank, default=None)


def _verdict(rows: tuple[Judged, ...], headline: int | None) -> Verdict:
    """The headline's, unless another row is worse: a collapse in the middle or wrong data is not ok at the end.

    Wrong data comes before everything: how fast it came does not matter then.
    """
    if headline is None:
        return Verdict(state="unknown", why="the table has no row")
    chosen = rows[headline]
    wrong = [row for row in rows if row.verdict.state == "failed"]
    telling = [row for row in rows if row.verdict.state != "unknown"]
    order = {state: place for place, state in enumerate(WORST_FIRST)}
    state = min((row.verdict.state for row in telling), key=order.__getitem__, default=chosen.verdict.state)
    state = "failed" if wrong else state
    if state == chosen.verdict.state or state not in ("slow", "suspicious", "failed"):
        return Verdict(state=chosen.verdict.state, why=_at(chosen))
    alike = [row for row in rows if row.verdict.state == state]
    worst = min(alike, key=_share_of_band) if state == "slow" else max(alike, key=_share_of_limit)
    return Verdict(state=state, why=f"{len(alike)} of {len(rows)} rows, like {_at(worst)}")


def _share_of_band(row: Judged) -> float:
    """Measured over the low end of what is expected, below 1 for a slow row."""
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _share_of_limit(row: Judged) -> float:
    return row.fraction_of_limit or 0.0


def _at(row: Judged) -> str:
    """Why, with the size and the placement of the row."""
    size, placement = size_of(row.parameters), row.parameters.get("placement", "")
    if isinstance(row.limit, NoLimit) and row.verdict.state == "unknown":
        return row.verdict.why
    words = [format_size(size)] if size is not None else []
    words += [str(placement).replace("_", " ")] if placement else []
    return f"{' '.join(words)}: {row.verdict.why}" if words else row.verdict.why


def _status(state: State, rows: tuple[Judged, ...], findings: tuple[Finding, ...]) -> int:
    """As everywhere: 1 for slow or misconfigured, 3 for what could not be judged and nothing worse."""
    slow = state == "slow" or any(row.verdict.state == "slow" for row in rows)
    if slow or any(finding.certainty in ("seen", "likely") for finding in findings):
        return EXIT_SLOW
    return EXIT_OK if state in ("ok", "waived") else EXIT_UNJUDGED
