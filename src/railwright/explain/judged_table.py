"""Judges one run of a known tool on a machine: its rows, its verdict, and the faults that would give such a curve."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.call_time import CallTime, find_call_time, match_healthy_machines
from railwright.diagnosis.verdicts.doubts import doubt_old_nccl, doubt_rows, largest_row
from railwright.diagnosis.verdicts.judged import Judged, State, Verdict
from railwright.errors import EXIT_SLOW
from railwright.expected.machine import Machine
from railwright.explain.alike_copies import compare_alike
from railwright.explain.bus_rates import busbw_scale, is_busbw
from railwright.explain.cause_doubts import doubt_cause, doubt_filling_rows
from railwright.explain.corrected_machine import correct_machine, doubt_corrected_rows
from railwright.explain.curve_findings import find_in_curve
from railwright.explain.curve_shape import find_fall, missing_sizes, shape_notes
from railwright.explain.fitted import Fitted
from railwright.explain.hypotheses import fit
from railwright.explain.next_commands import suggest_command
from railwright.explain.rows import differences, fit_machine, judge_rows
from railwright.explain.stated_machine import contradictions, note_other_memory, suggest_line_rate
from railwright.explain.table import Explained, exit_status, find_faults, list_shown, sum_up_rows
from railwright.explain.topology_matrix import Surroundings
from railwright.explain.wrong_machine import clear_rows, find_wrong_machine
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.pasted.log_lines import ENDED_BY_ERROR
from railwright.results.workload import Collective, Files
from railwright.topology.cluster import Cluster, describe_gpus
from railwright.units import format_count, format_size


def explain_on(file: ForeignFile, machine: Machine, around: Surroundings) -> Explained:
    """Judge a run. Raises UsageError if the table cannot be of the machine, and CannotJudge if it is unknown."""
    fitting = fit_machine(file, machine)
    placed, corrections = correct_machine(file, fitting)
    rows, headline, call = _judge_table(file, placed, corrections, around.nccl)
    wrong_machine = find_wrong_machine(file, rows, placed.cluster)
    if wrong_machine:
        rows, call = clear_rows(rows, wrong_machine), None
    verdict = _doubt_collapse(file, rows, _doubt_unfinished(file, sum_up_rows(rows, headline)))
    curves = verdict.state in ("slow", "unknown", "failed") and not wrong_machine
    fitted = fit(file, placed) if curves and placed.measured is None else ()
    host = fitting.cluster.host
    findings = (*find_faults(file, host, verdict.state), *find_in_curve(file, placed, rows), *around.findings)
    return Explained(
        tool=file.tool,
        version=file.version,
        test=file.test,
        ranks=file.ranks,
        hosts=placed.cluster.hosts if file.ranks is not None else file.hosts,
        machine=placed.cluster.name,
        scale=_describe_scale(file, placed.cluster),
        rows=rows,
        shown=list_shown(file),
        headline=headline,
        wrong_machine=wrong_machine,
        verdict=verdict,
        hypotheses=_qualify_healthy(fitted, verdict.state),
        cause_doubt=doubt_cause(file, rows, fitted, placed),
        next_command=suggest_command(file, host) if verdict.state in ("slow", "unknown") else "",
        findings=findings,
        contradictions=(
            *contradictions(file, machine, placed.cluster, around),
            *missing_sizes(file),
        ),
        notes=(
            *_note_machine(file, machine, placed, rows),
            *corrections,
            *shape_notes(rows, call, of_files=isinstance(file.workload, Files)),
            *file.notes,
        ),
        bandwidths_are="busbw" if is_busbw(file) else "",
        status=EXIT_SLOW if wrong_machine else exit_status(verdict.state, rows, findings),
    )


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


def _note_machine(file: ForeignFile, machine: Machine, placed: Machine, rows: Sequence[Judged]) -> tuple[str, ...]:
    """Return notes on how the table's machine compares with the given one."""
    return (
        *note_other_memory(file, placed.cluster),
        *differences(file, machine, placed),
        *suggest_line_rate(file, rows, placed.cluster),
    )


def _describe_scale(file: ForeignFile, cluster: Cluster) -> str:
    hosts = "" if file.ranks is not None else f"{format_count(cluster.hosts, 'host')}, "
    return f"{hosts}{describe_gpus(cluster)}"


def _judge_table(
    file: ForeignFile, placed: Machine, corrections: tuple[str, ...], nccl: tuple[int, ...]
) -> tuple[tuple[Judged, ...], int | None, CallTime | None]:
    """Return the rows, the headline's index, and the fixed call time that explains all slow rows."""
    rows = doubt_corrected_rows(judge_rows(file, placed), corrections)
    rows = compare_alike(file, rows, placed.cluster.host)
    headline = largest_row(rows)
    if not isinstance(file.workload, Collective) or file.workload.by != "nccl":
        return rows, headline, None
    call = find_call_time(rows, busbw_scale(file))
    known = match_healthy_machines(call, file, placed.cluster)
    filling = doubt_filling_rows(file, rows, placed.cluster)
    shown = call if filling == rows else None  # a pipeline that fills costs each call as much time
    rows = filling
    if headline is not None and rows[headline].verdict.state == "slow":
        rows = doubt_old_nccl(rows, headline, placed.cluster.hosts, nccl)
    return doubt_rows(rows, headline, placed.cluster.hosts, known), headline, shown
