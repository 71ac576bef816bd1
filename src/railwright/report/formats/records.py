"""The records that `--json` prints and that the terminal text is rendered from, one JSON object per line.

run        the machine and the command            (results.records.Run)
judged     a point with its limit                 (diagnosis.verdicts.judged.Judged)
path       a curve with its verdict               (diagnosis.verdicts.judged.JudgedPath)
finding    a fault of the machine's settings      (FindingRecord)
end        how the run ended; absent when cut off (results.records.End)
exit       the exit status                        (ExitRecord)

A comparison prints comparison, difference, compared, together, one_sided and exit (results.compare, results.fairness).
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
    """A record that only reports have."""


class FindingRecord(_Record, frozen=True, kw_only=True, tag="finding"):
    """A finding that explains no path; findings that explain a path are inside the path's record."""

    finding: Finding


class ExitRecord(_Record, frozen=True, kw_only=True, tag="exit"):
    """The last line: the command's exit status."""

    exit_status: int
    required: tuple[str, ...] = ()
    """The requirements that alone decide the exit status, as they were given."""
    unmet: tuple[tuple[str, str], ...] = ()
    """The required paths that are not ok, each with its state."""


class ComparedRuns(_Record, frozen=True, kw_only=True, tag="comparison"):
    """The first line of a comparison: the two runs, and the parameters that pairing ignored."""

    a: RunLabel
    b: RunLabel
    across: tuple[str, ...]


ReportRecord = Run | Judged | JudgedPath | FindingRecord | End | ExitRecord


def json_lines(view: View) -> Iterator[str]:
    """Encode the records of a judged run as JSON, without line ends."""
    judged = view.diagnosis
    findings = (FindingRecord(finding=finding) for finding in judged.findings)
    end = () if view.end is None else (view.end,)
    last = ExitRecord(exit_status=judged.exit_status, required=judged.required, unmet=judged.unmet)
    records = (view.run, *judged.points, *judged.paths, *findings, *end, last)
    return map(json_line, records)


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Encode the records of a comparison as JSON, without line ends."""
    head = ComparedRuns(a=comparison.a, b=comparison.b, across=comparison.across)
    last = ExitRecord(exit_status=comparison.exit_status)
    return map(
        json_line,
        (head, *comparison.differences, *comparison.points, *comparison.together, *comparison.one_sided, last),
    )
