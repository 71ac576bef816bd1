"""What `--json` prints: the records that the terminal text is rendered from, one JSON object a line.

run        the machine and the command            (results.records.Run)
judged     one point beside its limit             (diagnosis.verdicts.judged.Judged)
path       one curve with its verdict             (diagnosis.verdicts.judged.JudgedPath)
finding    one fault of the machine's settings    (FindingRecord)
end        how the run ended; absent when cut off (results.records.End)
exit       the exit status                        (ExitRecord)

A comparison prints comparison, difference, compared, one_sided and exit (results.compare, results.fairness).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from railwright.checks.finding import Finding
from railwright.diagnosis.verdicts.judged import Judged, JudgedPath
from railwright.report.formats.json_line import json_line
from railwright.report.view import View
from railwright.results.compare import Comparison, RunLabel
from railwright.results.records import End, Run


class _Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", forbid_unknown_fields=True
):
    """A record of a report's own."""


class FindingRecord(_Record, frozen=True, kw_only=True, tag="finding"):
    """A finding that stands by itself; those that explain a path are inside its record."""

    finding: Finding


class ExitRecord(_Record, frozen=True, kw_only=True, tag="exit"):
    """The last line: the status that the command ends with."""

    exit_status: int
    required: tuple[str, ...] = ()
    """What alone decides it, as it was asked for."""
    unmet: tuple[tuple[str, str], ...] = ()
    """The required paths that are not ok, each with its state."""


class ComparedRuns(_Record, frozen=True, kw_only=True, tag="comparison"):
    """The first line of a comparison: which two runs, and which parameters were left out when pairing."""

    a: RunLabel
    b: RunLabel
    across: tuple[str, ...]


ReportRecord = Run | Judged | JudgedPath | FindingRecord | End | ExitRecord


def json_lines(view: View) -> Iterator[str]:
    """The records of a judged run as JSON, without line ends."""
    judged = view.diagnosis
    findings = (FindingRecord(finding=finding) for finding in judged.findings)
    end = () if view.end is None else (view.end,)
    last = ExitRecord(exit_status=judged.exit_status, required=judged.required, unmet=judged.unmet)
    records = (view.run, *judged.points, *judged.paths, *findings, *end, last)
    return map(json_line, records)


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The records of a comparison as JSON, without line ends."""
    head = ComparedRuns(a=comparison.a, b=comparison.b, across=comparison.across)
    last = ExitRecord(exit_status=comparison.exit_status)
    return map(json_line, (head, *comparison.differences, *comparison.points, *comparison.one_sided, last))
