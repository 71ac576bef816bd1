"""Results on disk: one JSON record a line, written as it is measured, so that nothing is lost whatever ends a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from railwright.errors import RailwrightError, UsageError
from railwright.results.model import SCHEMA_VERSION, End, Record, Result, ResultFile, Run

RESULTS_NAME = "results.jsonl"
PREVIOUS_NAME = "results.previous.jsonl"
_MOST_BYTES = 512 * 2**20
_MOST_LINE_BYTES = 64 * 2**20

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class StoreFull(RailwrightError):
    """The results cannot be written any further; what was written before is whole."""


class Writer:
    """Appends records to a new results file; an existing one is kept as `results.previous.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESULTS_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.path.replace(folder / PREVIOUS_NAME)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise UsageError(
                f"cannot write results to {folder}: {error.strerror}", hint="choose another folder with --output"
            ) from error

    def append(self, record: Record) -> None:
        """Write one record whole or not at all. Raises StoreFull."""
        line = _encoder.encode(record) + b"\n"
        start = self._file.tell()
        try:
            written = self._file.write(line)
            while written is not None and written < len(line):
                written += self._file.write(line[written:]) or 0
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(start)
                self._file.seek(start)
            raise StoreFull(
                f"cannot go on writing {self.path}: {error.strerror}", hint="free some space; what was measured is kept"
            ) from error

    def close(self) -> None:
        """Sync and close; what could be written is on disk afterwards."""
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


def load(path: Path) -> ResultFile:
    """A results file, or the one in a folder. A cut-off last line is left out. Raises UsageError."""
    if path.is_dir():
        path = path / RESULTS_NAME
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is larger than {_MOST_BYTES // 2**20} MiB", hint="is it a results file?")
        with path.open("rb") as file:
            return collect(_records(path, file))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="name a results.jsonl or its folder") from error


def _records(path: Path, file: Iterator[bytes]) -> Iterator[Record]:
    for number, line in enumerate(file, 1):
        if len(line) > _MOST_LINE_BYTES:
            raise UsageError(f"{path} line {number} is too long for a record")
        try:
            yield _decoder.decode(line)
        except msgspec.MsgspecError as error:
            if not line.endswith(b"\n") and number > 1:
                return  # the run was cut off while it wrote
            hint = "is it a results.jsonl of this version?"
            raise UsageError(f"{path} line {number} is no record: {error}", hint=hint) from error


def collect(records: Iterator[Record]) -> ResultFile:
    """Records as one results file. Raises UsageError when the first is no run, or of a schema we do not know."""
    run: Run | None = None
    end: End | None = None
    results: list[Result] = []
    for record in records:
        match record:
            case Run():
                if run is not None:
                    raise UsageError("two runs in one results file", hint="split it at the second `run` line")
                run = record
            case Result():
                results.append(record)
            case End():
                end = record
    if run is None:
        raise UsageError("a results file must begin with its `run` record", hint="is it empty or cut off at its start?")
    if run.schema_version != SCHEMA_VERSION:
        raise UsageError(
            f"results of schema version {run.schema_version}; this railwright reads version {SCHEMA_VERSION}",
            hint="use the railwright that wrote it",
        )
    return ResultFile(run=run, results=tuple(results), end=end)
