"""Reads the records of `--json` back, to prove that they hold all that a report shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from railwright.checks.finding import Place
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath
from railwright.errors import UsageError
from railwright.report.formats.records import ComparedRuns, ExitRecord, FindingRecord, ReportRecord
from railwright.results.compare import ComparedPoint, Comparison, OneSided
from railwright.results.fairness import Difference
from railwright.results.records import End, Run

Kind = TypeVar("Kind")

ComparisonRecord = ComparedRuns | Difference | ComparedPoint | OneSided | ExitRecord


def place_of(kind: type, words: object) -> Place:
    """A record does not tell of what kind a place was."""
    if kind is not Place or not isinstance(words, str):
        raise ValueError(f"expected `str`, got `{type(words).__name__}`")
    return Place(words)


def _of(kind: type[Kind], records: Iterable[object]) -> tuple[Kind, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def read_json_lines(lines: Iterable[str]) -> tuple[Run, Diagnosis, End | None]:
    """The judged run that `json_lines` wrote. Raises UsageError for lines that are not such records."""
    decoder = msgspec.json.Decoder(ReportRecord, dec_hook=place_of)
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
        required=exits[0].required,
        unmet=exits[0].unmet,
    )
    return runs[0], diagnosis, ends[0] if ends else None


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
