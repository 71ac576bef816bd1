"""Explains a known tool's table on a given machine: rows, verdict and likely causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from railwright.checks.check import Check, Facts
from railwright.checks.finding import Finding
from railwright.diagnosis.nccl.paths import NO_MACHINE
from railwright.diagnosis.verdicts.doubts import largest_row
from railwright.diagnosis.verdicts.judged import Judged, State, Verdict
from railwright.diagnosis.verdicts.verdict import WORST_FIRST, judge_data
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.explain.bus_rates import busbw_scale, is_busbw
from railwright.explain.curve_shape import missing_sizes, shape_notes
from railwright.explain.fitted import Fitted
from railwright.explain.topology_matrix import Surroundings
from railwright.limits.limit import NoLimit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import find_size
from railwright.results.workload import Files, Message
from railwright.topology.devices import Topology
from railwright.units import format_size

if TYPE_CHECKING:
    from railwright.expected.machine import Machine

CLEARLY = 1.1
"""A fault is named as the cause only if the healthy machine is farther from the table by this factor.
Faults that are no farther than this factor beyond the nearest one are told apart together with it."""
EXCLUDED = " is excluded: "
"""In the note on a fault that another table of the same ranks excludes."""
_HALF = 0.5
"""Below this share of its limit, a copy that cannot be judged may hide a fault, so the table is not ok."""
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
    """The command to look further, for a slow or unknown table whose cause nothing shows."""
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


def explain(
    file: ForeignFile,
    machine: Machine | None,
    around: Surroundings = Surroundings(),  # noqa: B008
) -> Explained:
    """Judge a run, with the facts from the text `around` the table.

    Raises UsageError if the table cannot be of the machine, and CannotJudge if the machine is unknown.
    """
    if machine is None:
        return _explain_alone(file, around)
    if machine.path and not isinstance(file.workload, Message):
        raise UsageError(
            f"--path {machine.path[:80]!r} needs a test between two devices, got {file.test}", hint="omit --path"
        )
    from railwright.explain.judged_table import explain_on  # half of the imports, which no other table needs

    return explain_on(file, machine, around)


def _explain_alone(file: ForeignFile, around: Surroundings) -> Explained:
    """Describe a run whose machine is not known."""
    rows = tuple(_build_unjudged_rows(file))
    headline = largest_row(rows)
    verdict = sum_up_rows(rows, headline)
    findings = (*find_faults(file, NO_MACHINE, verdict.state), *around.findings)
    return Explained(
        tool=file.tool,
        version=file.version,
        test=file.test,
        ranks=file.ranks,
        hosts=file.hosts,
        rows=rows,
        shown=list_shown(file),
        headline=headline,
        verdict=verdict,
        findings=findings,
        contradictions=missing_sizes(file),
        notes=(*shape_notes(rows, None, of_files=isinstance(file.workload, Files)), *file.notes),
        bandwidths_are="busbw" if is_busbw(file) else "",
        status=exit_status(verdict.state, rows, findings),
    )


def list_shown(file: ForeignFile) -> tuple[str, ...]:
    """Return the tool's own text of each row."""
    return tuple(str(result.settings.get("shown", "")) for result in file.results)


def find_likely(found: Explained) -> Fitted | None:
    """Return the fault that is likely the cause of a slow table, by its curve."""
    if found.verdict.state != "slow" or found.cause_doubt or len(found.hypotheses) < 2:
        return None
    healthy, nearest = found.hypotheses[:2]
    return nearest if nearest.distance <= _NEAR and healthy.distance >= CLEARLY * nearest.distance else None


def find_faults(file: ForeignFile, host: Topology, state: State) -> tuple[Finding, ...]:
    """Return the findings from settings and machine for faults that can affect the tool.

    Facts that could not be read give no finding. A shape is as the user changed it (`nvlink=4`, `nics=1`): if the table
    reaches the rate of such a machine, the change is not a fault.
    """
    if host is NO_MACHINE and not file.environment:
        return ()  # no fact to look at
    from railwright.explain.rows import can_affect
    from railwright.faults.registry import FAULTS

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
    from railwright.faults.registry import FAULTS

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
            verdict=judge_data(result.verification, is_ours=False) or Verdict(state="unknown", why=none.why),
            verification=result.verification, method=result.method,
        )
        for result in file.results
    ]  # fmt: skip


def sum_up_rows(rows: tuple[Judged, ...], headline: int | None) -> Verdict:
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
    if chosen.verdict.state == "ok" and state not in ("slow", "suspicious", "failed"):
        doubted = _find_doubted_paths(rows, chosen)
        if doubted:
            return replace(doubted[0].verdict, why=_build_example(rows, doubted, doubted[0]))
    if state == chosen.verdict.state or state not in ("slow", "suspicious", "failed"):
        return Verdict(state=chosen.verdict.state, why=_build_reason(chosen))
    alike = [row for row in rows if row.verdict.state == state]
    worst = min(alike, key=_share_of_band) if state == "slow" else max(alike, key=_share_of_limit)
    return Verdict(state=state, why=_build_example(rows, alike, worst))


def _find_doubted_paths(rows: tuple[Judged, ...], chosen: Judged) -> list[Judged]:
    """Return the largest row of each other path below its band and half of its limit that was not judged, the worst
    first.
    """
    by_path: dict[str, list[Judged]] = {}
    for row in rows:
        if row.path != chosen.path and row.quantity == chosen.quantity:
            by_path.setdefault(row.path, []).append(row)
    largest = (max(found, key=lambda row: find_size(row.parameters) or 0) for found in by_path.values())
    unjudged = (row for row in largest if row.verdict.state == "unknown" and 0.0 < _share_of_band(row) < 1.0)
    return sorted((row for row in unjudged if _share_of_limit(row) < _HALF), key=_share_of_band)


def _share_of_band(row: Judged) -> float:
    """Return measured over the low end of the expected band, below 1 for a slow row."""
    if row.expected is not None and row.quantity == "latency_s":
        return row.expected.high / row.value if row.value and row.expected.high else 0.0
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _share_of_limit(row: Judged) -> float:
    return row.fraction_of_limit or 0.0


def _build_example(rows: Sequence[Judged], alike: Sequence[Judged], worst: Judged) -> str:
    """Return how many rows are alike, with the reason of the worst, and its path if the table has several."""
    path = f"{worst.path}: " if len({row.path for row in rows}) > 1 else ""
    return f"{len(alike)} of {len(rows)} rows, for example {path}{_build_reason(worst)}"


def _build_reason(row: Judged) -> str:
    """Return the reason with the row's size and placement."""
    size, placement = find_size(row.parameters), row.parameters.get("placement", "")
    if isinstance(row.limit, NoLimit) and row.verdict.state == "unknown":
        return row.verdict.why
    parts = [format_size(size)] if size is not None else []
    parts += [str(placement).replace("_", " ")] if placement else []
    return f"{' '.join(parts)}: {row.verdict.why}" if parts else row.verdict.why


def exit_status(state: State, rows: tuple[Judged, ...], findings: tuple[Finding, ...]) -> int:
    """Return the exit status: 1 if slow or misconfigured, 0 if the verdict is ok or waived, otherwise 3."""
    slow = state == "slow" or any(row.verdict.state == "slow" for row in rows)
    # The possible cost of a setting does not matter if nothing is slow.
    relevant = (finding for finding in findings if state != "ok" or not names_setting(finding))
    if slow or any(finding.certainty in ("seen", "likely") for finding in relevant):
        return EXIT_SLOW
    return EXIT_OK if state in ("ok", "waived") else EXIT_UNJUDGED
