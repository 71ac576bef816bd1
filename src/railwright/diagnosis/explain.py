"""Is this table normal? A known tool's output on a machine that is given: rows, verdict, likely causes."""

from __future__ import annotations

import msgspec

from railwright.diagnosis.foreign import Machine, is_busbw, judge_rows, machine_for
from railwright.diagnosis.hypotheses import Fitted, fit
from railwright.diagnosis.model import Judged, State, Verdict
from railwright.diagnosis.verdict import WORST_FIRST
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.faults.model import Facts, Finding
from railwright.faults.registry import FAULTS
from railwright.limits.model import NoLimit
from railwright.results.readers.model import ForeignFile

_CURVES: tuple[str, ...] = ("nccl-tests", "perftest", "OSU", "nixlbench")


class Explained(msgspec.Struct, frozen=True, kw_only=True, tag="explained", tag_field="record", omit_defaults=True,
                forbid_unknown_fields=True):  # fmt: skip
    """One run of one tool: what `railwright explain --json` prints."""

    tool: str
    version: str
    test: str
    ranks: int | None = None
    hosts: int | None = None
    machine: str = ""
    """Empty where none was given: then nothing could be judged."""
    rows: tuple[Judged, ...]
    shown: tuple[str, ...]
    """The tool's own string of each row, with its own unit."""
    headline: int | None = None
    """The row that stands for the table: the largest size."""
    verdict: Verdict
    hypotheses: tuple[Fitted, ...] = ()
    """The healthy machine first, then the faults whose curves are nearest."""
    findings: tuple[Finding, ...] = ()
    """What the table's own settings show."""
    notes: tuple[str, ...] = ()
    bandwidths_are: str = ""
    """`busbw` where the rates of collectives are busbw."""
    status: int
    """The exit status: 0 ok, 1 slow, 3 could not be judged."""


def explain(file: ForeignFile, machine: Machine | None) -> Explained:
    """Judge one run. Raises UsageError where the machine cannot be the table's, CannotJudge where it is not known."""
    placed = machine_for(file, machine) if machine is not None else None
    rows = judge_rows(file, placed) if placed is not None else tuple(_unjudged(file))
    headline = _headline(rows)
    verdict = _verdict(rows, headline)
    curves = placed is not None and verdict.state in ("slow", "unknown") and file.tool in _CURVES
    facts = Facts(topology=placed.cluster.host, environment=file.environment) if placed is not None else None
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
        findings=tuple(_settings(facts)) if facts is not None else (),
        notes=file.notes,
        bandwidths_are="busbw" if placed is not None and is_busbw(file) else "",
        status=_status(verdict.state),
    )


def _unjudged(file: ForeignFile) -> list[Judged]:
    none = NoLimit(quantity="bandwidth_bytes_per_s", why="no machine was given")
    return [
        Judged(
            benchmark=result.benchmark, quantity=result.quantity, path=result.path, parameters=result.parameters,
            outcome=result.outcome, value=result.summary.median if result.summary else None, limit=none,
            verdict=Verdict(state="unknown", why=none.why), method=result.method,
        )
        for result in file.results
    ]  # fmt: skip


def _headline(rows: tuple[Judged, ...]) -> int | None:
    """The row of the largest size, the best of its placements; for rows without sizes the best value."""

    def rank(number: int) -> tuple[int, float]:
        size = rows[number].parameters.get("size_bytes", 0)
        return (size if isinstance(size, int) else 0, rows[number].value or 0.0)

    bandwidths = [number for number, row in enumerate(rows) if row.quantity != "latency_s"]
    return max(bandwidths or range(len(rows)), key=rank, default=None)


def _verdict(rows: tuple[Judged, ...], headline: int | None) -> Verdict:
    """The headline's, unless another row is worse: a collapse in the middle or wrong data is not ok at the end."""
    if headline is None:
        return Verdict(state="unknown", why="the table has no row")
    chosen = rows[headline].verdict
    order = {state: place for place, state in enumerate(WORST_FIRST)}
    worst = min((row.verdict for row in rows if row.verdict.state != "unknown"), key=lambda one: order[one.state],
                default=chosen)  # fmt: skip
    if worst.state in ("slow", "suspicious", "failed") and order[worst.state] < order[chosen.state]:
        count = sum(row.verdict.state == worst.state for row in rows)
        return Verdict(state=worst.state, why=f"{count} of {len(rows)} rows are: {worst.why}")
    return chosen


def _settings(facts: Facts) -> list[Finding]:
    """Faults that the recorded environment shows; what could not be looked at says nothing about a table."""
    found = [finding for fault in FAULTS if not fault.needs_results for finding in fault.look(facts)]
    return [finding for finding in found if finding.certainty != "could not look"]


def _status(state: State) -> int:
    if state in ("ok", "waived"):
        return EXIT_OK
    return EXIT_SLOW if state == "slow" else EXIT_UNJUDGED
