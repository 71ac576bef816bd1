"""Explains a pasted text: an NCCL log, tables of a tool, or a table surrounded by log lines."""

from __future__ import annotations

import msgspec

from railwright.checks.finding import Finding
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, RailwrightError, UsageError
from railwright.expected.machine import Machine
from railwright.explain.table import Explained, explain
from railwright.explain.topology_matrix import Surroundings, read_surroundings
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.nccl_log.model import MARKS, NcclLog
from railwright.results.readers.pasted.documents import extract_text
from railwright.results.readers.pasted.long_text import LongText


class Paste(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a text and their explanation."""

    log: NcclLog | None = None
    findings: tuple[Finding, ...] = ()
    """The findings from the log."""
    files: tuple[ForeignFile, ...] = ()
    tables: tuple[Explained, ...] = ()
    """The explanations of `files`, in the same order."""
    refused: RailwrightError | None = None
    """The reason why the table in a log could not be read or judged; the log is valid regardless."""

    @property
    def status(self) -> int:
        """The exit status. A judged table decides it; findings from a surrounding log do not count."""
        statuses = [table.status for table in self.tables]
        if self.refused is not None:
            statuses.append(EXIT_UNJUDGED)
        judged = any(table.machine for table in self.tables)
        if self.log is not None and not judged:
            statuses.append(_exit_status(self.findings))
        return EXIT_SLOW if EXIT_SLOW in statuses else max(statuses, default=EXIT_OK)


def read_paste(given: str | LongText, machine: Machine | None, collective: str = "") -> Paste:
    """Explain a text on a machine. Raises UsageError if it is neither a readable log nor a readable table.

    A `LongText` may hold several texts of one run; those without a table belong to the log.
    """
    given = extract_text(given) if isinstance(given, str) else given
    texts = given.texts if isinstance(given, LongText) else (given,)
    tables = tuple(number for number, text in enumerate(texts) if registry.has_table(text))
    log: NcclLog | None = None
    findings: tuple[Finding, ...] = ()
    try:
        log = _read_log(given)
        findings = _contradictions(log, machine) if log else ()
    except UsageError:
        if not tables:  # a few log lines around a table may hold nothing to read
            raise
    if log is not None and not tables:
        if machine is not None and machine.path:
            raise UsageError(
                "--path needs a point-to-point table, but the text is a log without one", hint="omit --path"
            )
        return Paste(log=log, findings=findings)
    try:
        chosen = tables or range(len(texts))
        files = tuple(file for number in chosen for file in registry.read(texts[number], collective))
        return Paste(
            log=log,
            findings=findings,
            files=files,
            tables=_explain_all(files, machine, read_surroundings(texts[chosen[0]])),
        )
    except RailwrightError as error:
        if log is None:
            raise
        return Paste(log=log, findings=findings, refused=error)


def _read_log(given: str | LongText) -> NcclLog | None:
    if isinstance(given, str):
        if not any(mark in given for mark in MARKS):
            return None
        from railwright.results.readers.nccl_log import log as nccl_log

        return nccl_log.read(given)
    if isinstance(given.log, UsageError):
        raise given.log
    return given.log


def _contradictions(log: NcclLog, machine: Machine | None) -> tuple[Finding, ...]:
    from railwright.diagnosis.nccl.contradictions import contradictions

    return contradictions(log, machine.cluster.host if machine is not None else None)


def _explain_all(
    files: tuple[ForeignFile, ...], machine: Machine | None, around: Surroundings
) -> tuple[Explained, ...]:
    """Explain every run. Raises UsageError, with the run's number if there are several."""
    found = []
    for number, table in enumerate(files, 1):
        try:
            found.append(explain(table, machine, around))
        except UsageError as error:
            if len(files) == 1:
                raise
            raise UsageError(f"run {number} of {len(files)}: {error.message}", hint=error.hint) from error
    return tuple(found)


def _exit_status(findings: tuple[Finding, ...]) -> int:
    certainties = {finding.certainty for finding in findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    return EXIT_UNJUDGED if certainties else EXIT_OK
