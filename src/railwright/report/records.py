"""What `--json` prints: the records that the terminal text is rendered from, one JSON object a line.

run        the machine and the command            (results.model.Run)
judged     one point beside its limit             (diagnosis.model.Judged)
path       one curve with its verdict             (diagnosis.model.JudgedPath)
finding    one fault of the machine's settings    (FindingRecord)
end        how the run ended; absent when cut off (results.model.End)
exit       the exit status                        (ExitRecord)

A comparison prints comparison, difference, compared, one_sided and exit (results.compare, results.fairness).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from railwright.diagnosis.model import Diagnosis, Judged, JudgedPath
from railwright.errors import UsageError
from railwright.faults.model import Finding
from railwright.results.compare import ComparedPoint, Comparison, OneSided, RunLabel
from railwright.results.fairness import Difference
from railwright.results.model import End, Run


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, tag="finding", tag_field="record",
                    forbid_unknown_fields=True):  # fmt: skip
    """A finding that stands by itself; those that explain a path are inside its record."""

    finding: Finding


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True, tag="exit", tag_field="record",
                 forbid_unknown_fields=True):  # fmt: skip
    """The last line: the status that the command ends with."""

    exit_status: int


class ComparedRuns(msgspec.Struct, frozen=True, kw_only=True, tag="comparison", tag_field="record",
                   forbid_unknown_fields=True):  # fmt: skip
    """The first line of a comparison: which two runs, and which parameters were left out when pairing."""

    a: RunLabel
    b: RunLabel
    across: tuple[str, ...]


ReportRecord = Run | Judged | JudgedPath | FindingRecord | End | ExitRecord
ComparisonRecord = ComparedRuns | Difference | ComparedPoint | OneSided | ExitRecord


def json_lines(run: Run, diagnosis: Diagnosis, end: End | None) -> Iterator[str]:
    """The records of a judged run as JSON, without line ends."""
    encoder = msgspec.json.Encoder()
    for record in _records(run, diagnosis, end):
        yield encoder.encode(record).decode()


def _records(run: Run, diagnosis: Diagnosis, end: End | None) -> Iterator[ReportRecord]:
    yield run
    yield from diagnosis.points
    yield from diagnosis.paths
    for finding in diagnosis.findings:
        yield FindingRecord(finding=finding)
    if end is not None:
        yield end
    yield ExitRecord(exit_status=diagnosis.exit_status)


def read_json_lines(lines: Iterable[str]) -> tuple[Run, Diagnosis, End | None]:
    """The judged run that `json_lines` wrote. Raises UsageError for lines that are not such records."""
    decoder = msgspec.json.Decoder(ReportRecord)
    records: list[ReportRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"line {number} is not a record of a judged run: {error}",
                hint="give what a command printed with --json",
            ) from error
    runs = [record for record in records if isinstance(record, Run)]
    exits = [record for record in records if isinstance(record, ExitRecord)]
    if len(runs) != 1 or len(exits) != 1:
        raise UsageError(
            f"a judged run has one run and one exit record, here are {len(runs)} and {len(exits)}",
            hint="give the whole output of one command with --json",
        )
    diagnosis = Diagnosis(
        points=tuple(record for record in records if isinstance(record, Judged)),
        paths=tuple(record for record in records if isinstance(record, JudgedPath)),
        findings=tuple(record.finding for record in records if isinstance(record, FindingRecord)),
        exit_status=exits[0].exit_status,
    )
    return runs[0], diagnosis, next((record for record in records if isinstance(record, End)), None)


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The records of a comparison as JSON, without line ends."""
    encoder = msgspec.json.Encoder()
    head = ComparedRuns(a=comparison.a, b=comparison.b, across=comparison.across)
    tail = ExitRecord(exit_status=comparison.exit_status)
    records = (head, *comparison.differences, *comparison.points, *comparison.one_sided, tail)
    for record in records:
        yield encoder.encode(record).decode()


def read_comparison_lines(lines: Iterable[str]) -> Comparison:
    """The comparison that `comparison_lines` wrote. Raises UsageError for lines that are not such records."""
    decoder = msgspec.json.Decoder(ComparisonRecord)
    try:
        records = [decoder.decode(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"not the records of a comparison: {error}", hint="give what railwright compare printed with --json"
        ) from error
    heads = [record for record in records if isinstance(record, ComparedRuns)]
    exits = [record for record in records if isinstance(record, ExitRecord)]
    if len(heads) != 1 or len(exits) != 1:
        raise UsageError("not one whole comparison", hint="give the whole output of railwright compare --json")
    return Comparison(
        a=heads[0].a,
        b=heads[0].b,
        across=heads[0].across,
        differences=tuple(record for record in records if isinstance(record, Difference)),
        points=tuple(record for record in records if isinstance(record, ComparedPoint)),
        one_sided=tuple(record for record in records if isinstance(record, OneSided)),
        exit_status=exits[0].exit_status,
    )
