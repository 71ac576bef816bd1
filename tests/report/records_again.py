"""Reader of the records of `--json`, to prove that they contain everything a report shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from railwright.checks.finding import Place
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath
from railwright.errors import UsageError
from railwright.report.formats.records import ComparedRuns, ExitRecord, FindingRecord, ReportRecord
from railwright.results.compare import ComparedPoint, Comparison, OneSided, Together
from railwright.results.fairness import Difference
from railwright.results.records import End, Run

Kind = TypeVar("Kind")

ComparisonRecord = ComparedRuns | Difference | ComparedPoint | Together | OneSided | ExitRecord


def place_of(kind: type, words: object) -> Place:
    """Decode a place; a record does not contain its kind."""
    if kind is not Place or not isinstance(words, str):
        raise ValueError(f"expected `str`, got `{type(words).__name__}`")
    return Place(words)


def _of(kind: type[Kind], records: Iterable[object]) -> tuple[Kind, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def read_json_lines(lines: Iterable[str]) -> tuple[Run, Diagnosis, End | None]:
    """Decode the judged run that `json_lines` wrote. Raises UsageError for other lines."""
    decoder = msgspec.json.Decoder(ReportRecord, dec_hook=place_of)
    records: list[ReportRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"line {number} is not a record of a judged run: {error}",
                hint="give the output of a command with --json",
            ) from error
    runs, exits, ends = _of(Run, records), _of(ExitRecord, records), _of(End, records)
    if len(runs) != 1 or len(exits) != 1:
        raise UsageError(
            f"a judged run must have one run and one exit record, got {len(runs)} and {len(exits)}",
            hint="give the whole output of one command with --json",
        )
    diagnosis = Diagnosis(
        points=_of(Judged, records),
        paths=_of(JudgedPath, records),
        findings=tuple(record.finding for record in _of(FindingRecord, records)),
        exit_status=exits[0].exit_status,
        required=exits[0].required,
        unmet=exits[0].unmet,
    )
    return runs[0], diagnosis, ends[0] if ends else None


def read_comparison_lines(lines: Iterable[str]) -> Comparison:
    """Decode the comparison that `comparison_lines` wrote. Raises UsageError for other lines."""
    decoder = msgspec.json.Decoder(ComparisonRecord)
    try:
        records = [decoder.decode(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"not the records of a comparison: {error}", hint="give the output of railwright compare --json"
        ) from error
    heads, exits = _of(ComparedRuns, records), _of(ExitRecord, records)
    if len(heads) != 1 or len(exits) != 1:
        raise UsageError(
            "not exactly one complete comparison", hint="give the whole output of railwright compare --json"
        )
    return Comparison(
        a=heads[0].a,
        b=heads[0].b,
        across=heads[0].across,
        differences=_of(Difference, records),
        points=_of(ComparedPoint, records),
        together=_of(Together, records),
        one_sided=_of(OneSided, records),
        exit_status=exits[0].exit_status,
    )
