"""Results on disk, one JSON record per line. Each is written as soon as it is measured, so that an abort loses none."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from railwright.errors import RailwrightError, UsageError
from railwright.reading import InvalidContent, decode_json, open_given, read_lines
from railwright.results.possible import explain_impossible
from railwright.results.records import (
    READ_VERSIONS,
    SCHEMA_VERSION,
    Disturbed,
    End,
    Record,
    Result,
    ResultFile,
    Run,
)
from railwright.results.records import RESULTS_NAME as RESULTS_NAME
from railwright.writing import NewFile, record_mode

PREVIOUS_NAME = "results.previous.jsonl"
_MOST_BYTES = 512 * 2**20
_MOST_LINE_BYTES = 16 * 2**20
_TWICE = "was the file joined from several, or edited by hand?"
_FEWEST_SAMPLES = 3
_HINT = "is it a results.jsonl of this version?"

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class StoreFull(RailwrightError):
    """The error of a results file that cannot grow. Earlier records are complete."""


class Writer:
    """Appends records to a new results file and keeps an existing one as `results.previous.jsonl`.

    The existing file is moved only after the `run` record was written, so a full disk does not lose the previous
    results.
    """

    def __init__(self, folder: Path, run: Run) -> None:
        self.path = folder / RESULTS_NAME
        try:
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            folder.mkdir(parents=True, exist_ok=True)
            new = NewFile(self.path, record_mode())
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._file = new.file
        try:
            self.append(run)
            new.publish(PREVIOUS_NAME)
        except (StoreFull, OSError) as error:
            new.close()
            raise _cannot_write(folder, error.__cause__ if isinstance(error, StoreFull) else error) from error

    def append(self, record: Record) -> None:
        """Write one record completely or not at all. Raises StoreFull."""
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
                f"cannot write to {self.path}: {error.strerror}", hint="free some space; all results so far are kept"
            ) from error

    def close(self) -> None:
        """Sync and close the file."""
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


def _cannot_write(folder: Path, error: BaseException | None) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"cannot write results to {folder}: {reason}", hint="choose another folder with --output")


def load(path: Path) -> ResultFile:
    """Load a results file, given its path or its folder. Drops a truncated last line.

    Raises UsageError if the file cannot be read, or holds a record that no measurement can have produced.
    """
    file = _find_file(path)
    return collect((record for _, record in read_numbered(file)), str(file))


def read_numbered(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield every record with its line number, counted from 1. Raises the same errors as `load`."""
    path = _find_file(path)
    try:
        with open_given(path, most_bytes=_MOST_BYTES) as file:
            yield from enumerate(_records(path, read_lines(file, _MOST_LINE_BYTES)), 1)
    except (OSError, ValueError) as error:
        hint = "name a results.jsonl or its folder"
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", hint=hint) from error


def _find_file(path: Path) -> Path:
    """Return the results file of a folder, or the path itself. Errors of access are reported when it is read."""
    with contextlib.suppress(OSError):
        return path / RESULTS_NAME if path.is_dir() else path
    return path


def _records(path: Path, lines: Iterator[bytes]) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if len(line) > _MOST_LINE_BYTES:
            raise UsageError(f"{path} line {number} must be at most {_MOST_LINE_BYTES} bytes", hint=_HINT)
        try:
            record = decode_json(line, _decoder)
        except InvalidContent as error:
            if not line.endswith(b"\n") and number > 1:
                return  # the run was interrupted during the write
            _refuse_other_version(path, line)
            raise UsageError(f"{path} line {number} is not a valid record: {error}", hint=_HINT) from error
        if isinstance(record, Run) and record.schema_version not in READ_VERSIONS:
            _refuse_other_version(path, line)
        if why := explain_impossible(record, f"the topology of {path}"):
            raise UsageError(
                f"{path} line {number} is not a possible measurement: {why}", hint="was the file edited by hand?"
            )
        yield record


class _Versioned(msgspec.Struct, tag="run", tag_field="record"):
    """The schema version of a `run` record of any version."""

    schema_version: int = SCHEMA_VERSION


def _refuse_other_version(path: Path, line: bytes) -> None:
    """Raise UsageError if the line is a run of an unknown schema version, whatever else it holds."""
    with contextlib.suppress(InvalidContent):
        version = decode_json(line, _Versioned).schema_version
        if version not in READ_VERSIONS:
            known = f"this railwright reads versions {READ_VERSIONS[0]} to {SCHEMA_VERSION}"
            raise UsageError(
                f"{path} has schema version {version}; {known}", hint="use the version of railwright that wrote it"
            )


def collect(records: Iterator[Record], name: str = "this results file") -> ResultFile:
    """Collect records into a results file.

    Raises UsageError if the first is not a run, or if they contradict each other: two runs, a result twice, a result
    after the end. Only the mark of a run whose records were lost on their way may follow another end.
    """
    run: Run | None = None
    end: End | None = None
    results: list[Result] = []
    disturbed: list[Disturbed] = []
    for number, record in enumerate(records, 1):
        if run is None and not isinstance(record, Run):
            break
        if end is not None and not (isinstance(record, End) and record.interrupted):
            kind = type(record).__name__.lower()
            raise UsageError(
                f"{name} must end with its `end` record, got a `{kind}` in line {number} after it", hint=_TWICE
            )
        match record:
            case Run():
                if run is not None:
                    raise UsageError(f"{name} must hold one run, got two", hint="split it at the second `run` line")
                run = record
            case Result():
                results.append(record)
            case Disturbed():
                disturbed.append(record)
            case End():
                end = record
    if run is None:
        raise UsageError(f"{name} must begin with a `run` record", hint="is it empty, or is its beginning missing?")
    _refuse_repeated(results, name)
    return ResultFile(run=run, results=tuple(results), disturbed=tuple(disturbed), end=end)


def _refuse_repeated(results: list[Result], name: str) -> None:
    """Raise UsageError for a measured result that stands there twice, sample by sample."""
    seen: set[tuple[object, ...]] = set()
    for result in results:
        if len(result.samples) < _FEWEST_SAMPLES:
            continue  # two counts of the same value may be equal
        key = (result.launch, *result.series(), result.parameters.get("size_bytes"), result.samples)
        if key in seen:
            point = f"{result.benchmark} {result.path} of launch {result.launch}"
            raise UsageError(f"{name} must hold each result once, got the same samples of {point} twice", hint=_TWICE)
        seen.add(key)
