"""A recording: an Arrow IPC stream that is complete up to the last second written. Reading it is bounded.

A row is a tick. `at_s` is the machine's monotonic clock. Every other column is a counter, with its increase since the
last reading in its unit, or a gauge, with its value; it is null if the source was not read at that tick. Sources that
are read once a second share the column `seldom`: a list of their values in order, empty at other ticks. This takes a
hundredth of the space.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import msgspec
import nanoarrow as na
from nanoarrow.ipc import StreamWriter

from railwright.errors import UsageError
from railwright.native.sampler import Row
from railwright.reading import UnsuitableFile, open_given
from railwright.sampling.arrow_messages import check_messages
from railwright.sampling.offset import Offset
from railwright.sampling.sources import Source
from railwright.writing import open_growing, record_mode

FORMAT = 1
_KEY = b"railwright"
_MAX_BYTES = 2**31
MAX_ROWS = 5_000_000
_MAX_COLUMNS = 2048
_SELDOM = "seldom"


class RecordingMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of the stream's schema, as JSON under `railwright`."""

    format: int
    begun_unix_s: float
    """The time of day of `begun_s`."""
    begun_s: float
    """The time on the machine's monotonic clock."""
    interval_s: float
    """The mean interval between ticks."""
    scope: str
    """The owner of the processor time: this machine, a job, a process."""
    command: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    """The sources in the order of the columns after `at_s`; those in `seldom` come last."""
    missing: dict[str, str] = {}
    """Sources that could not be read, with the reason."""
    host: str = ""
    """The name under which another machine watched this host."""
    offset: Offset | None = None
    """The first measured offset of this host's clock; the gauge `clock.offset` holds its changes."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a recording."""

    about: RecordingMetadata
    times_s: array[float]
    moved: tuple[array[float], ...]
    """The increase of each counter in its unit, or the value of a gauge; NaN if it was not read."""
    cut: str = ""
    """The reason why the stream ends early; empty if it is complete."""


class Recording:
    """Keeps rows in memory and writes them to a file if one is given. A context manager."""

    def __init__(self, about: RecordingMetadata, file: Path | int | None) -> None:
        """Prepare a recording. `file` is a path, or the number of an open file such as 1."""
        self.about = about
        self.times_s: array[float] = array("d")
        self.moved = tuple(array("f") for _ in about.sources)
        self._before: list[int | None] = [None] * len(about.sources)
        self._file = file
        self._schema = _schema(about)
        self._out: tuple[IO[bytes], StreamWriter] | None = None

    def __enter__(self) -> Recording:
        if self._file is not None:
            if isinstance(self._file, int):
                stream: IO[bytes] = os.fdopen(self._file, "wb", closefd=False)
            else:
                stream = open_growing(self._file, record_mode(), empty=True)
            self._out = stream, StreamWriter.from_writable(stream)
            self._write(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            for output in reversed(self._out):
                output.close()

    def add(self, rows: Sequence[Row]) -> None:
        """Keep the rows and write them as a batch."""
        moved = [[self._step(number, row.values[number]) for row in rows] for number in range(len(self.moved))]
        self.take([row.at_s for row in rows], moved)

    def take(self, times_s: Sequence[float], moved: Sequence[Sequence[float]]) -> None:
        """Keep rows from another recording and write them as a batch."""
        first = len(self.times_s)
        self.times_s.extend(times_s)
        for column, values in zip(self.moved, moved, strict=True):
            column.extend(values)
        if times_s:
            self._write(first)

    def _step(self, number: int, value: int | None) -> float:
        """Return the increase of a counter or the value of a gauge; NaN without a reading.

        The first reading of a counter, and one after a reset, also give NaN; the next increase counts from them.
        """
        before = self._before[number]
        if value is None:
            return math.nan
        self._before[number] = value
        source = self.about.sources[number]
        if source.gauge:
            return value * source.scale
        if before is None or value < before:
            return math.nan
        return (value - before) * source.scale

    def _write(self, first: int) -> None:
        """Write the rows from `first` on as a batch, if there is a file."""
        if self._out is None:
            return
        stream, writer = self._out
        rows = len(self.times_s) - first
        columns = [na.c_array_from_buffers(na.float64(), rows, [None, na.c_buffer(self.times_s[first:])])]
        often = sum(not source.seldom for source in self.about.sources)
        columns += [_nullable_array(column[first:]) for column in self.moved[:often]]
        if seldom := self.moved[often:]:
            columns.append(_list_array([column[first:] for column in seldom], rows))
        writer.write_array(na.c_array_from_buffers(self._schema, rows, [None], children=columns))
        stream.flush()

    def recorded(self) -> Recorded:
        """Return the rows so far."""
        return Recorded(about=self.about, times_s=self.times_s, moved=self.moved)


def _nullable_array(values: array[float]) -> object:
    bits, nulls = bytearray((len(values) + 7) // 8), 0
    for number, value in enumerate(values):
        if value == value:
            bits[number >> 3] |= 1 << (number & 7)
        else:
            nulls += 1
    present = bytes(bits) if nulls else None
    return na.c_array_from_buffers(na.float32(), len(values), [present, na.c_buffer(values)], null_count=nulls)


def _list_array(columns: Sequence[array[float]], rows: int) -> object:
    """Build a list for each row: all values if any is present, else an empty list."""
    offsets, values = array("i", [0]), array("f")
    for row in range(rows):
        row_values = [column[row] for column in columns]
        if any(value == value for value in row_values):
            values.extend(row_values)
        offsets.append(len(values))
    child = na.c_array_from_buffers(na.float32(), len(values), [None, na.c_buffer(values)])
    return na.c_array_from_buffers(na.list_(na.float32()), rows, [None, na.c_buffer(offsets)], children=[child])


def _schema(about: RecordingMetadata) -> Any:  # noqa: ANN401 - nanoarrow has no types
    fields = {"at_s": na.float64(nullable=False)}
    fields |= {source.name: na.float32() for source in about.sources if not source.seldom}
    if any(source.seldom for source in about.sources):
        fields[_SELDOM] = na.list_(na.float32())
    return na.c_schema(na.struct(fields, nullable=False)).modify(metadata={_KEY: msgspec.json.encode(about)})


def _append_lists(lists: Sequence[Sequence[float] | None], columns: Sequence[array[float]]) -> None:
    """Append the lists of rows to columns. Raises ValueError for a list of another length."""
    for values in lists:
        if values and len(values) != len(columns):
            raise ValueError(f"a list must have {len(columns)} values, got {len(values)}")
        for number, column in enumerate(columns):
            column.append(values[number] if values else math.nan)


def new_about(
    sources: Sequence[Source], missing: dict[str, str], scope: str, interval_s: float, command: Sequence[str]
) -> RecordingMetadata:
    """Build the metadata of a recording that starts now."""
    return RecordingMetadata(
        format=FORMAT,
        begun_unix_s=time.time(),
        begun_s=time.monotonic(),
        interval_s=interval_s,
        scope=scope,
        command=tuple(command),
        sources=tuple(sources),
        missing=missing,
    )


def read_recording(file: Path) -> Recorded:
    """Read a recording, even without its end. Raises UsageError for another file, OSError."""
    try:
        with open_given(file, most_bytes=_MAX_BYTES) as stream:
            check_messages(stream)
            arrays, about = open_recording(stream, str(file))
            return _read(arrays, about, file)
    except UnsuitableFile as error:
        raise UsageError(f"{file} is {error.reason}", hint="give a recording of railwright watch") from error
    except ValueError as error:
        raise UsageError(f"{file} is not a recording of railwright watch: {error}") from error


def open_recording(stream: IO[bytes], name: str) -> tuple[Any, RecordingMetadata]:
    """Open a recording and return its batches, for `read_rows`, and metadata. Raises UsageError for another stream."""
    try:
        arrays = na.ArrayStream.from_readable(stream)
        metadata = dict(arrays.schema.metadata.items())
        about = msgspec.json.decode(metadata[_KEY], type=RecordingMetadata)
        names = [field.name for field in arrays.schema.fields]
        kinds = [field.type for field in arrays.schema.fields[1:]]
    except (KeyError, ValueError, RuntimeError, AttributeError, TypeError, msgspec.MsgspecError) as error:
        why = str(error).partition("\n")[0][:200]
        raise UsageError(f"{name} is not a recording of railwright watch: {why}") from error
    often = [source.name for source in about.sources if not source.seldom]
    is_seldom = len(often) < len(about.sources)
    expected = ["at_s", *often, *[_SELDOM] * is_seldom]
    of_kind = [na.Type.FLOAT] * len(often) + [na.Type.LIST] * is_seldom
    in_order = [source.seldom for source in about.sources] == sorted(source.seldom for source in about.sources)
    known = about.format == FORMAT and len(about.sources) < _MAX_COLUMNS and in_order
    if names != expected or kinds != of_kind or not known:
        raise UsageError(f"the columns of {name} must match its metadata", hint="record it again")
    return arrays, about


def read_rows(batch: Any, about: RecordingMetadata) -> tuple[list[float], list[array[float]]]:  # noqa: ANN401 - nanoarrow has no types
    """Return the times and columns of a batch. Raises ValueError, RuntimeError, TypeError for a damaged batch."""
    moved = [array("f") for _ in about.sources]
    often = sum(not source.seldom for source in about.sources)
    columns = [batch.child(number) for number in range(1 + often + (often < len(moved)))]
    for column, values in zip(moved[:often], columns[1 : 1 + often], strict=True):
        column.extend(math.nan if value is None else value for value in values.to_pylist())
    if often < len(moved):
        _append_lists(columns[-1].to_pylist(), moved[often:])
    return columns[0].to_pylist(), moved


def _read(arrays: Any, about: RecordingMetadata, file: Path) -> Recorded:  # noqa: ANN401 - nanoarrow has no types
    times: array[float] = array("d")
    moved = tuple(array("f") for _ in about.sources)
    cut = ""
    try:
        for batch in arrays:
            if len(times) + len(batch) > MAX_ROWS:
                cut = f"it has more than {MAX_ROWS} rows"
                break
            more, columns = read_rows(batch, about)
            times.extend(more)
            for column, values in zip(moved, columns, strict=True):
                column.extend(values)
    except (ValueError, RuntimeError, TypeError, IndexError) as error:
        cut = f"it ends in the middle of a batch: {str(error).strip().rpartition(chr(10))[2][:100]}"
    if not all(map(math.isfinite, times)) or any(after < before for before, after in pairwise(times)):
        raise UsageError(f"the times in {file} must be finite and must not decrease", hint="record it again")
    return Recorded(about=about, times_s=times, moved=moved, cut=cut)
