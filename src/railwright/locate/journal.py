"""The measurements of a search, phase by phase, in a file, so that an interrupted search can resume.

A search is a function of its question and its measurements. So the file holds the question, and for each phase a
digest of its flows and their results. A resumed search plans the phases again and reads their results.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from railwright.diagnosis.localise.procedure import Phase
from railwright.errors import UsageError
from railwright.locate.probes import PhaseResult
from railwright.reading import InvalidContent, decode_json, read_at_most
from railwright.writing import open_growing

_MAX_BYTES = 2**30


class _Head(msgspec.Struct, frozen=True):
    question: str


class _Entry(msgspec.Struct, frozen=True):
    asked: str
    found: PhaseResult


class Journal:
    """A context manager that reads and appends results by phase; without a path it keeps nothing.

    Raises UsageError for a file that cannot be used, or that belongs to another search.
    """

    def __init__(self, path: Path | None, question: object) -> None:
        self.read = 0
        """The number of phases read from the file."""
        self._path, self._question = path, _digest(question)
        self._entries: list[_Entry] = []
        self._file: BinaryIO | None = None

    def __enter__(self) -> Journal:
        if self._path is None:
            return self
        try:
            whole = self._read_whole(self._path)
            self._file = open_growing(self._path)
            self._file.truncate(whole)
            self._file.seek(whole)
        except OSError as error:
            raise UsageError(f"cannot use {self._path}: {error.strerror}", hint="give a file to --resume") from error
        if not whole:
            self._write(_Head(self._question))
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _read_whole(self, path: Path) -> int:
        """Read the entries of an earlier run. Returns their length in bytes, without a truncated last entry."""
        if not path.exists() or not (raw := read_at_most(path, _MAX_BYTES)):
            return 0
        head, *rest = raw.splitlines(keepends=True)
        if not head.endswith(b"\n") and head.startswith(b"{"):
            return 0
        try:
            same = decode_json(head, _Head).question == self._question
        except InvalidContent as error:
            raise UsageError(f"{path} is not the record of a search", hint="give --resume a file of its own") from error
        if not same:
            reason = f"{path} belongs to a search with other hosts, seed, rounds or cover"
            raise UsageError(reason, hint="repeat that search, or remove the file")
        whole = len(head)
        for line in rest:
            if not line.endswith(b"\n"):
                break
            try:
                self._entries.append(decode_json(line, _Entry))
            except InvalidContent:
                break
            whole += len(line)
        return whole

    def next(self, phase: Phase) -> PhaseResult | None:
        """Return the recorded results of the next phase; None if it must be measured.

        Raises UsageError if the file holds another phase there.
        """
        if self.read >= len(self._entries):
            return None
        entry = self._entries[self.read]
        if entry.asked != _asked(phase) or [len(flows) for flows in entry.found.rounds] != [
            len(r.flows) for r in phase
        ]:
            raise UsageError(f"{self._path} was written by another version of railwright", hint="remove the file")
        self.read += 1
        return entry.found

    def add(self, phase: Phase, found: PhaseResult) -> None:
        """Append the results of a phase."""
        self._write(_Entry(_asked(phase), found))

    def _write(self, record: msgspec.Struct) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(record) + b"\n")
            self._file.flush()


def _asked(phase: Phase) -> str:
    return _digest([(round_.purpose, round_.flows) for round_ in phase])


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()
