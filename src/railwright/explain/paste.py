"""Explains a pasted text: an NCCL log, tables of a tool, or a table surrounded by log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from railwright.checks.finding import Finding
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, RailwrightError, UsageError
from railwright.explain.error_words import find_error_words
from railwright.explain.table import Explained, explain
from railwright.explain.topology_matrix import Surroundings, read_surroundings
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile, NoRows
from railwright.results.readers.nccl_log.model import MARKS, NcclLog, Setting
from railwright.results.readers.pasted.command_line import parse_environment
from railwright.results.readers.pasted.documents import extract_text
from railwright.results.readers.pasted.long_text import LongText

if TYPE_CHECKING:
    from railwright.expected.machine import Machine
    from railwright.explain.noted import Noted

_SOME_LINES = 5
"""The number of lines besides a table's from which they are searched for other tools."""
_MOST_COMMANDS = 40
_MANY_MESSAGES = 2000


class Paste(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a text and their explanation."""

    errors: tuple[Finding, ...] = ()
    """The errors of the job in lines that NCCL did not write."""
    log: NcclLog | None = None
    findings: tuple[Finding, ...] = ()
    """The findings from the log."""
    files: tuple[ForeignFile, ...] = ()
    tables: tuple[Explained, ...] = ()
    """The explanations of `files`, in the same order."""
    noted: tuple[Noted, ...] = ()
    """The recognised parts that have nothing to judge."""
    unread: tuple[str, ...] = ()
    """A sentence for each tool whose lines were not read."""
    refused: RailwrightError | None = None
    """The reason why the table in a log could not be read or judged; the log is valid regardless."""

    @property
    def status(self) -> int:
        """The exit status. A judged table decides it; findings from a surrounding log do not count."""
        statuses = [table.status for table in self.tables] + [EXIT_UNJUDGED] * len(self.noted)
        if self.refused is not None:
            statuses.append(EXIT_UNJUDGED)
        judged = any(table.machine for table in self.tables)
        if not judged:
            statuses.append(_exit_status(self.errors) if self.errors else EXIT_OK)
        if self.log is not None and not judged:
            counted = self.findings if not self.noted else tuple(filter(_is_failure, self.findings))
            statuses.append(_exit_status(counted))
        return EXIT_SLOW if EXIT_SLOW in statuses else max(statuses, default=EXIT_OK)


def read_paste(given: str | LongText, machine: Machine | None, collective: str = "", ranks: int | None = None) -> Paste:
    """Explain a text on a machine. Raises UsageError if nothing in it is recognised, or if it contradicts itself.

    A `LongText` may hold several texts of one run; those without a table belong to the log. `collective` and `ranks`
    are those of tables that do not print theirs.
    """
    given = _without_log(_unwrap_json(extract_text(given))) if isinstance(given, str) else given
    texts = given.texts if isinstance(given, LongText) else (given,)
    tables = tuple(number for number, text in enumerate(texts) if registry.has_table(text))
    whole = "\n".join(texts)
    errors = _find_errors(whole)
    log, findings = _explain_log(given, machine, whole, is_needed=not tables and not errors)
    found = Paste(errors=errors, log=log, findings=findings)
    try:
        chosen = tables or range(len(texts))
        files = tuple(file for number in chosen for file in registry.read(texts[number], collective))
        files = tuple(_set_ranks(file, ranks) for file in files)
    except (registry.UnknownText, NoRows) as error:
        if machine is not None and machine.path and log is not None:
            raise UsageError(
                "--path needs a point-to-point table, but the text is a log without one", hint="omit --path"
            ) from error
        return _note(found, whole, error)
    except RailwrightError as error:
        if log is None:
            raise
        return msgspec.structs.replace(found, refused=error)
    try:
        explained = _explain_all(files, machine, read_surroundings(texts[chosen[0]]))
    except RailwrightError as error:
        if log is None:
            raise
        return msgspec.structs.replace(found, refused=error)
    return msgspec.structs.replace(
        found, files=files, tables=explained, unread=_list_unread(whole, errors_read=bool(errors))
    )


def _unwrap_json(text: str) -> str:
    """Return a container's log of JSON lines as its program wrote it, if NCCL's messages are in it."""
    if not text.lstrip().startswith("{") or not any(mark in text for mark in MARKS):
        return text
    from railwright.results.readers.pasted.prefixes import unwrap_lines

    return unwrap_lines(text)


def _without_log(text: str) -> str | LongText:
    """Read a long NCCL log line by line, since every reader of tables would search its lines again."""
    if text.count(MARKS[0]) < _MANY_MESSAGES:
        return text
    from railwright.results.readers.pasted.long_text import read_long

    return read_long([("the text", [text.encode("utf-8", "replace")])])


def _find_errors(text: str) -> tuple[Finding, ...]:
    if not find_error_words(text):
        return ()
    from railwright.explain.job_errors import find_job_errors

    return find_job_errors(text)


def _note(found: Paste, text: str, why: UsageError) -> Paste:
    """Return what a text without a readable row has. Raises UsageError if nothing in it is recognised."""
    from railwright.explain import noted

    text = noted.unwrap(text)
    unfinished = noted.note_unfinished(text)
    matrix = noted.note_matrix(read_surroundings(text))
    known = (*unfinished, *matrix)
    if known or found.log is not None or found.errors:
        return msgspec.structs.replace(
            found, noted=known, unread=noted.list_unread(text, errors_read=bool(found.errors))
        )
    if isinstance(why, NoRows):
        raise why
    if lines := noted.note_known_lines(text):
        return msgspec.structs.replace(found, noted=lines)
    raise noted.refuse(text) from why


def _list_unread(text: str, *, errors_read: bool) -> tuple[str, ...]:
    """Return the sentences on lines of other tools beside a table, if the text has lines that no table has."""
    others = sum(line[:1] not in "# \t-|" and not line[:1].isdigit() for line in text.split("\n") if line)
    if others < _SOME_LINES:
        return ()
    from railwright.explain.noted import list_unread

    return list_unread(text, errors_read=errors_read)


def _explain_log(
    given: str | LongText, machine: Machine | None, text: str, *, is_needed: bool
) -> tuple[NcclLog | None, tuple[Finding, ...]]:
    """Return the log and its findings. Raises UsageError for a contradictory log if nothing else is in the text."""
    try:
        log = _read_log(given)
    except UsageError:
        from railwright.explain.noted import note_unfinished

        if is_needed and not note_unfinished(text):  # a few log lines around a table may hold nothing to read
            raise
        return None, ()
    if log is None:
        return None, ()
    log = _add_command_settings(log, text)
    return log, _contradictions(log, machine)


def _add_command_settings(log: NcclLog, text: str) -> NcclLog:
    """Return the log with the NCCL settings of the command above it, if the log does not name them itself."""
    logged = {setting.name for setting in log.settings}
    lines = [
        (number, line) for number, line in enumerate(text.split("\n"), 1) if "NCCL_" in line and "NCCL INFO" not in line
    ]
    found = parse_environment(line for _, line in lines[:_MOST_COMMANDS])
    settings = tuple(
        Setting(host="", pid=0, name=name, value=value, line=next(n for n, line in lines if name in line))
        for name, value in found.items()
        if name.startswith("NCCL_") and name not in logged
    )
    return msgspec.structs.replace(log, settings=(*log.settings, *settings)) if settings else log


def _is_failure(finding: Finding) -> bool:
    from railwright.diagnosis.nccl.warnings import is_warning

    return is_warning(finding)


def _set_ranks(file: ForeignFile, ranks: int | None) -> ForeignFile:
    """Return the table with the given number of ranks. Raises UsageError if the text has another one."""
    if ranks is None or file.ranks == ranks:
        return file
    if file.ranks is not None:
        raise UsageError(f"the text gives {file.ranks} ranks, --ranks gives {ranks}", hint="leave --ranks out")
    notes = tuple(note for note in file.notes if "--ranks N" not in note)
    return msgspec.structs.replace(file, ranks=ranks, notes=notes)


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
    if machine is not None and len(files) > 1 and any(table.hypotheses[1:] for table in found):
        from railwright.explain.other_tables import exclude_faults

        return exclude_faults(files, found, machine)
    return tuple(found)


def _exit_status(findings: tuple[Finding, ...]) -> int:
    certainties = {finding.certainty for finding in findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    return EXIT_UNJUDGED if certainties else EXIT_OK
