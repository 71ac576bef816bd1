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
from typing import TypeVar

import msgspec

from railwright.diagnosis.model import Diagnosis, Judged, JudgedPath
from railwright.errors import UsageError
from railwright.faults.model import Finding, Place
from railwright.results.compare import ComparedPoint, Comparison, OneSided, RunLabel
from railwright.results.fairness import Difference
from railwright.results.model import End, Run


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", forbid_unknown_fields=True):
    """A record of a report's own."""


class FindingRecord(_Record, frozen=True, kw_only=True, tag="finding"):
    """A finding that stands by itself; those that explain a path are inside its record."""

    finding: Finding


class ExitRecord(_Record, frozen=True, kw_only=True, tag="exit"):
    """The last line: the status that the command ends with."""

    exit_status: int


class ComparedRuns(_Record, frozen=True, kw_only=True, tag="comparison"):
    """The first line of a comparison: which two runs, and which parameters were left out when pairing."""

    a: RunLabel
    b: RunLabel
    across: tuple[str, ...]


Kind = TypeVar("Kind")

ReportRecord = Run | Judged | JudgedPath | FindingRecord | End | ExitRecord
ComparisonRecord = ComparedRuns | Difference | ComparedPoint | OneSided | ExitRecord


def json_line(record: object) -> str:
    """A record as JSON, without a line end."""
    return _encoder.encode(record).decode()


def _words(place: object) -> str:
    """What a finding points at is its words in every record."""
    if not isinstance(place, Place):
        raise NotImplementedError(f"{type(place)} is in no record")
    return str(place)


def _place(kind: type, words: object) -> Place:
    """A record does not tell of what kind a place was."""
    if kind is not Place or not isinstance(words, str):
        raise ValueError(f"expected `str`, got `{type(words).__name__}`")
    return Place(words)


_encoder = msgspec.json.Encoder(enc_hook=_words)


def json_lines(run: Run, diagnosis: Diagnosis, end: End | None) -> Iterator[str]:
    """The records of a judged run as JSON, without line ends."""
    findings = (FindingRecord(finding=finding) for finding in diagnosis.findings)
    last = ExitRecord(exit_status=diagnosis.exit_status)
    records = (run, *diagnosis.points, *diagnosis.paths, *findings, *([end] if end is not None else []), last)
    return map(json_line, records)


def _of(kind: type[Kind], records: Iterable[object]) -> tuple[Kind, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def read_json_lines(lines: Iterable[str]) -> tuple[Run, Diagnosis, End | None]:
    """The judged run that `json_lines` wrote. Raises UsageError for lines that are not such records."""
    decoder = msgspec.json.Decoder(ReportRecord, dec_hook=_place)
    records: list[ReportRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"line {number} is not a record of a judged run: {error}",
                hint="give what a command printed with --json",
            ) from error
    runs, exits, ends = _of(Run, records), _of(ExitRecord, records), _of(End, records)
    if len(runs) != 1 or len(exits) != 1:
        raise UsageError(
            f"a judged run has one run and one exit record, here are {len(runs)} and {len(exits)}",
            hint="give the whole output of one command with --json",
        )
    diagnosis = Diagnosis(
        points=_of(Judged, records),
        paths=_of(JudgedPath, records),
        findings=tuple(record.finding for record in _of(FindingRecord, records)),
        exit_status=exits[0].exit_status,
    )
    return runs[0], diagnosis, ends[0] if ends else None


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The records of a comparison as JSON, without line ends."""
    head = ComparedRuns(a=comparison.a, b=comparison.b, across=comparison.across)
    last = ExitRecord(exit_status=comparison.exit_status)
    return map(json_line, (head, *comparison.differences, *comparison.points, *comparison.one_sided, last))


def read_comparison_lines(lines: Iterable[str]) -> Comparison:
    """The comparison that `comparison_lines` wrote. Raises UsageError for lines that are not such records."""
    decoder = msgspec.json.Decoder(ComparisonRecord)
    try:
        records = [decoder.decode(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"not the records of a comparison: {error}", hint="give what railwright compare printed with --json"
        ) from error
    heads, exits = _of(ComparedRuns, records), _of(ExitRecord, records)
    if len(heads) != 1 or len(exits) != 1:
        raise UsageError("not one whole comparison", hint="give the whole output of railwright compare --json")
    return Comparison(
        a=heads[0].a,
        b=heads[0].b,
        across=heads[0].across,
        differences=_of(Difference, records),
        points=_of(ComparedPoint, records),
        one_sided=_of(OneSided, records),
        exit_status=exits[0].exit_status,
    )
