"""Explains a known tool's table on a given machine: rows, verdict and likely causes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from railwright.checks.check import Check, Facts
from railwright.checks.finding import Finding
from railwright.diagnosis.nccl.paths import NO_MACHINE
from railwright.diagnosis.verdicts.call_time import CallTime, find_call_time, match_healthy_machines
from railwright.diagnosis.verdicts.doubts import doubt_old_nccl, doubt_rows, largest_row
from railwright.diagnosis.verdicts.judged import Judged, State, Verdict
from railwright.diagnosis.verdicts.verdict import WORST_FIRST
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.expected.machine import Machine
from railwright.explain.cause_doubts import doubt_cause, doubt_filling_rows
from railwright.explain.corrected_machine import correct_machine, doubt_corrected_rows
from railwright.explain.curve_findings import find_in_curve
from railwright.explain.curve_shape import find_fall, missing_sizes, shape_notes
from railwright.explain.hypotheses import Fitted, fit
from railwright.explain.next_commands import suggest_command
from railwright.explain.rows import (
    busbw_scale,
    can_affect,
    differences,
    fit_machine,
    is_busbw,
    judge_rows,
)
from railwright.explain.stated_machine import contradictions, note_other_memory, suggest_line_rate
from railwright.explain.topology_matrix import Surroundings
from railwright.explain.wrong_machine import clear_rows, find_wrong_machine
from railwright.faults.registry import FAULTS
from railwright.limits.limit import NoLimit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.pasted.log_lines import ENDED_BY_ERROR
from railwright.results.records import Verification, find_size
from railwright.results.workload import Collective, Files, Message
from railwright.topology.cluster import Cluster, describe_gpus
from railwright.topology.devices import Topology
from railwright.units import format_count, format_size

CLEARLY = 1.1
"""A fault is named as the cause only if the healthy machine is farther from the table by this factor.
Faults that are no farther than this factor beyond the nearest one are told apart together with it."""
_NEAR = 2.5
"""Beyond this factor between curve and table, a fault explains little of the table."""


class Explained(msgspec.Struct, frozen=True, kw_only=True, tag="explained", tag_field="record", omit_defaults=True,
                forbid_unknown_fields=True):  # fmt: skip
    """The explanation of one run of a tool, as printed by `railwright explain --json`."""

    tool: str
    version: str
    test: str
    ranks: int | None = None
    hosts: int | None = None
    machine: str = ""
    """Empty if no machine was given, so that no row could be judged."""
    scale: str = ""
    """The machine's GPUs and racks in words, with its hosts if the table does not give them."""
    rows: tuple[Judged, ...]
    shown: tuple[str, ...]
    """The tool's own text of each row, with its own unit."""
    headline: int | None = None
    """The index of the row that represents the table: the largest size."""
    wrong_machine: str = ""
    """The reason why the table cannot be of the given machine; empty if it can."""
    verdict: Verdict
    hypotheses: tuple[Fitted, ...] = ()
    """The healthy machine first, then the faults whose curves are nearest."""
    next_command: str = ""
    """The command to look further, for a slow table whose cause nothing shows."""
    cause_doubt: str = ""
    """The reason why the nearest fault is not named as the likely cause; empty if it may be."""
    findings: tuple[Finding, ...] = ()
    """Findings from the table's settings (evidence `setting`) and the given machine."""
    contradictions: tuple[str, ...] = ()
    """Contradictions between the table and the given machine."""
    notes: tuple[str, ...] = ()
    bandwidths_are: str = ""
    """`busbw` if the rates of collectives are busbw."""
    status: int
    """The exit status: 0 ok, 1 slow or misconfigured, 3 could not be judged."""


def explain(file: ForeignFile, machine: Machine | None, around: Surroundings = Surroundings()) -> Explained:  # noqa: B008
    """Judge a run, with the facts from the text `around` the table.

    Raises UsageError if the table cannot be of the machine, and CannotJudge if the machine is unknown.
    """
    if machine is not None and machine.path and not isinstance(file.workload, Message):
        raise UsageError(
            f"--path {machine.path[:80]!r} needs a test between two devices, got {file.test}", hint="omit --path"
        )
    fitting = fit_machine(file, machine) if machine is not None else None
    placed, corrections = correct_machine(file, fitting) if fitting is not None else (None, ())
    rows, headline, call = _judge_table(file, placed, corrections, around.nccl)
    wrong_machine = find_wrong_machine(file, rows, placed.cluster) if placed is not None else ""
    if wrong_machine:
        rows, call = clear_rows(rows, wrong_machine), None
    verdict = _doubt_collapse(file, rows, _doubt_unfinished(file, _verdict(rows, headline)))
    curves = verdict.state in ("slow", "unknown", "failed") and not wrong_machine
    fitted = fit(file, placed) if curves and placed is not None and placed.measured is None else ()
    host = fitting.cluster.host if fitting is not None else NO_MACHINE
    findings = (*_find_faults(file, host, verdict.state), *find_in_curve(file, placed, rows), *around.findings)
    return Explained(
        tool=file.tool,
        version=file.version,
        test=file.test,
        ranks=file.ranks,
        hosts=placed.cluster.hosts if placed is not None and file.ranks is not None else file.hosts,
        machine=placed.cluster.name if placed is not None else "",
        scale=_describe_scale(file, placed.cluster) if placed is not None else "",
        rows=rows,
        shown=tuple(str(result.settings.get("shown", "")) for result in file.results),
        headline=headline,
        wrong_machine=wrong_machine,
        verdict=verdict,
        hypotheses=_qualify_healthy(fitted, verdict.state),
        cause_doubt=doubt_cause(file, rows, fitted, placed) if placed is not None else "",
        next_command=suggest_command(file, host) if verdict.state == "slow" else "",
        findings=findings,
        contradictions=(
            *(contradictions(file, machine, placed.cluster, around) if machine and placed else ()),
            *missing_sizes(file),
        ),
        notes=(
            *_note_machine(file, machine, placed, rows),
            *corrections,
            *shape_notes(rows, call, of_files=isinstance(file.workload, Files)),
            *file.notes,
        ),
        bandwidths_are="busbw" if is_busbw(file) else "",
        status=EXIT_SLOW if wrong_machine else _exit_status(verdict.state, rows, findings),
    )


def find_likely(found: Explained) -> Fitted | None:
    """Return the fault that is likely the cause of a slow table, by its curve."""
    if found.verdict.state != "slow" or found.cause_doubt or len(found.hypotheses) < 2:
        return None
    healthy, nearest = found.hypotheses[:2]
    return nearest if nearest.distance <= _NEAR and healthy.distance >= CLEARLY * nearest.distance else None


def _doubt_unfinished(file: ForeignFile, verdict: Verdict) -> Verdict:
    """Turn an ok verdict into unknown if sizes are missing from the text."""
    missing = missing_sizes(file) if verdict.state == "ok" else ()
    if not missing:
        return verdict
    ended = ENDED_BY_ERROR if missing[0].startswith(ENDED_BY_ERROR) else "the text ends before the run does"
    return Verdict(state="unknown", why=f"{verdict.why}, but {ended}")


def _doubt_collapse(file: ForeignFile, rows: Sequence[Judged], verdict: Verdict) -> Verdict:
    """Turn an ok verdict into unknown if larger sizes are far slower than a smaller one, which no healthy link does.

    The band of a stream may be wide enough for both, as where a library uses one port or several.
    """
    fall = find_fall(rows) if verdict.state == "ok" and not isinstance(file.workload, Files) else None
    if fall is None or not fall.lasts:
        return verdict
    at, before = format_size(fall.size_bytes), format_size(fall.before_bytes)
    why = f"{verdict.why}, but the rate collapses at {at}: 1/{fall.factor:.1f} of that at {before}"
    return Verdict(state="unknown", why=why, needs="the same test again, and on other hosts")


def _qualify_healthy(fitted: Sequence[Fitted], state: State) -> tuple[Fitted, ...]:
    """Return the hypotheses; a healthy machine that is nearest does not say beside slow rows that nothing is wrong."""
    if state != "slow" or not fitted:
        return tuple(fitted)
    healthy, *faults = fitted
    if any(fault.distance < healthy.distance for fault in faults):
        return tuple(fitted)
    return (replace(healthy, says="fits the other rows, and not the slow ones"), *faults)


def _note_machine(
    file: ForeignFile, machine: Machine | None, placed: Machine | None, rows: Sequence[Judged]
) -> tuple[str, ...]:
    """Return notes on how the table's machine compares with the given one."""
    if machine is None or placed is None:
        return ()
    return (
        *note_other_memory(file, placed.cluster),
        *differences(file, machine, placed),
        *suggest_line_rate(file, rows, placed.cluster),
    )


def _describe_scale(file: ForeignFile, cluster: Cluster) -> str:
    hosts = "" if file.ranks is not None else f"{format_count(cluster.hosts, 'host')}, "
    return f"{hosts}{describe_gpus(cluster)}"


def _judge_table(
    file: ForeignFile, placed: Machine | None, corrections: tuple[str, ...], nccl: tuple[int, ...]
) -> tuple[tuple[Judged, ...], int | None, CallTime | None]:
    """Return the rows, the headline's index, and the fixed call time that explains all slow rows."""
    if placed is None:
        rows = tuple(_build_unjudged_rows(file))
        return rows, largest_row(rows), None
    rows = doubt_corrected_rows(judge_rows(file, placed), corrections)
    headline = largest_row(rows)
    if not isinstance(file.workload, Collective) or file.workload.by != "nccl":
        return rows, headline, None
    call = find_call_time(rows, busbw_scale(file))
    known = match_healthy_machines(call, file, placed.cluster)
    rows = doubt_filling_rows(file, rows, placed.cluster)
    if headline is not None and rows[headline].verdict.state == "slow":
        rows = doubt_old_nccl(rows, headline, placed.cluster.hosts, nccl)
    return doubt_rows(rows, headline, placed.cluster.hosts, known), headline, call


def _find_faults(file: ForeignFile, host: Topology, state: State) -> tuple[Finding, ...]:
    """Return the findings from settings and machine for faults that can affect the tool.

    Facts that could not be read give no finding. A shape is as the user changed it (`nvlink=4`, `nics=1`): if the table
    reaches the rate of such a machine, the change is not a fault.
    """
    facts = Facts(topology=host, environment=file.environment)
    unable = {fault.name for fault in FAULTS if not can_affect(fault, file)}
    looked = (finding for check in _select_checks(facts) if check.name not in unable for finding in check.look(facts))
    found = tuple(finding for finding in looked if finding.certainty != "could not look")
    return tuple(filter(names_setting, found)) if state in ("ok", "suspicious") and host.source == "shape" else found


def _select_checks(facts: Facts) -> tuple[Check, ...]:
    """Return the checks that can find something: for a shape without settings only those of faults."""
    if facts.environment or facts.topology.source != "shape":
        from railwright.faults.every_check import EVERY_CHECK

        return EVERY_CHECK
    return FAULTS


def names_setting(finding: Finding) -> bool:
    """Report whether the evidence of a finding is a setting that the text shows."""
    return any(seen.claim == "setting" for seen in finding.evidence)


def _build_unjudged_rows(file: ForeignFile) -> list[Judged]:
    none = NoLimit(quantity="bandwidth_bytes_per_s", why="no machine was given")
    scale = busbw_scale(file)
    return [
        Judged(
            benchmark=result.benchmark, quantity=result.quantity, path=result.path, parameters=result.parameters,
            outcome=result.outcome, value=result.summary.median * scale if result.summary else None, limit=none,
            verdict=_judge_data(result.verification) or Verdict(state="unknown", why=none.why),
            verification=result.verification, method=result.method,
        )
        for result in file.results
    ]  # fmt: skip


def _judge_data(checked: Verification | None) -> Verdict | None:
    """Return the verdict on wrong data, which needs no machine."""
    if checked is None or not checked.bytes_wrong:
        return None
    return Verdict(state="failed", why=f"the data check found {checked.bytes_wrong} wrong bytes")


def _verdict(rows: tuple[Judged, ...], headline: int | None) -> Verdict:
    """Return the headline's verdict, unless another row is worse, such as a collapse in the middle.

    Wrong data overrides everything, regardless of speed.
    """
    if headline is None:
        return Verdict(state="unknown", why="the table has no row")
    chosen = rows[headline]
    wrong = [row for row in rows if row.verdict.state == "failed"]
    judged = [row for row in rows if row.verdict.state != "unknown"]
    order = {state: place for place, state in enumerate(WORST_FIRST)}
    state = min((row.verdict.state for row in judged), key=order.__getitem__, default=chosen.verdict.state)
    state = "failed" if wrong else state
    if state == chosen.verdict.state or state not in ("slow", "suspicious", "failed"):
        return Verdict(state=chosen.verdict.state, why=_build_reason(chosen))
    alike = [row for row in rows if row.verdict.state == state]
    worst = min(alike, key=_share_of_band) if state == "slow" else max(alike, key=_share_of_limit)
    return Verdict(state=state, why=f"{len(alike)} of {len(rows)} rows, for example {_build_reason(worst)}")


def _share_of_band(row: Judged) -> float:
    """Return measured over the low end of the expected band, below 1 for a slow row."""
    if row.expected is not None and row.quantity == "latency_s":
        return row.expected.high / row.value if row.value and row.expected.high else 0.0
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _share_of_limit(row: Judged) -> float:
    return row.fraction_of_limit or 0.0


def _build_reason(row: Judged) -> str:
    """Return the reason with the row's size and placement."""
    size, placement = find_size(row.parameters), row.parameters.get("placement", "")
    if isinstance(row.limit, NoLimit) and row.verdict.state == "unknown":
        return row.verdict.why
    parts = [format_size(size)] if size is not None else []
    parts += [str(placement).replace("_", " ")] if placement else []
    return f"{' '.join(parts)}: {row.verdict.why}" if parts else row.verdict.why


def _exit_status(state: State, rows: tuple[Judged, ...], findings: tuple[Finding, ...]) -> int:
    """Return the exit status: 1 if slow or misconfigured, 0 if the verdict is ok or waived, otherwise 3."""
    slow = state == "slow" or any(row.verdict.state == "slow" for row in rows)
    # The possible cost of a setting does not matter if nothing is slow.
    relevant = (finding for finding in findings if state != "ok" or not names_setting(finding))
    if slow or any(finding.certainty in ("seen", "likely") for finding in relevant):
        return EXIT_SLOW
    return EXIT_OK if state in ("ok", "waived") else EXIT_UNJUDGED
