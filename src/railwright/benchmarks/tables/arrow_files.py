"""Parquet and ORC files by pyarrow: reading them, and checking their metadata against their size.

Only ranks import this module, because it loads pyarrow.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import orc, parquet

from railwright.benchmarks.tables.options import TableOptions
from railwright.errors import CannotJudge
from railwright.units import KIB, MIB, format_size

VERSION: str = pa.__version__
PIECE_BYTES = 32 * MIB
_HOLE_BYTES = 8 * KIB
"""Both as pyarrow's own coalescing of reads (CacheOptions)."""
_PARQUET, _ORC = b"PAR1", b"ORC"
_MAGIC_BYTES = 4
_TAIL_BYTES = 8
"""The end of a Parquet file: the footer's length and the magic bytes."""

Read = TypeVar("Read")


class Layout(NamedTuple):
    """The bytes of a file that hold the columns to read."""

    format: str
    rows: int
    columns: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    """(offset, bytes) in file order; adjacent ranges are merged."""
    least_bytes: int
    """The minimum memory of the columns according to the file."""

    @property
    def encoded_bytes(self) -> int:
        """The bytes of all ranges."""
        return sum(length for _, length in self.ranges)

    @property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """The ranges in reads of at most 32 MiB."""
        return tuple(
            (at, min(PIECE_BYTES, start + length - at))
            for start, length in self.ranges
            for at in range(start, start + length, PIECE_BYTES)
        )


def layout(path: str, name: str, wanted: Sequence[str]) -> Layout:
    """Return the layout of the wanted columns, or of all columns if none are named. `name` is the file in errors.

    Raises CannotJudge for a file that is truncated, of another kind, or inconsistent.
    """
    size = os.stat(path).st_size  # noqa: PTH116 - the path of a descriptor
    with open(path, "rb") as file:  # noqa: PTH123
        head = file.read(_MAGIC_BYTES)
    if head == _PARQUET:
        return _parquet_layout(path, name, wanted, size)
    if head[: len(_ORC)] == _ORC:
        return _orc_layout(path, name, wanted, size)
    raise CannotJudge(f"{name} is neither a Parquet nor an ORC file: it begins with {head!r}")


def _parquet_layout(path: str, name: str, wanted: Sequence[str], size: int) -> Layout:
    said = _call_pyarrow(name, lambda: parquet.read_metadata(path))
    schema = said.schema.to_arrow_schema()
    columns = _choose_columns(name, schema.names, wanted)
    paths = [f"{said.schema.column(index).path}." for index in range(said.num_columns)]
    kept = [index for index, one in enumerate(paths) if any(one.startswith(f"{column}.") for column in columns)]
    ranges, least, rows = [], 0, 0
    for group in (said.row_group(number) for number in range(said.num_row_groups)):
        rows += group.num_rows
        for chunk in (group.column(index) for index in kept):
            starts = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at]
            ranges.append((min(starts, default=0), chunk.total_compressed_size))
            least += max(0, chunk.total_uncompressed_size)
    if rows != said.num_rows or rows < 0:
        raise CannotJudge(
            f"{name} has an inconsistent number of rows: {said.num_rows} in all, {rows} in its row groups"
        )
    for start, length in ranges:
        if start < _MAGIC_BYTES or length < 0 or start + length > size - _TAIL_BYTES:
            place = f"{length} bytes at {start} of {size}"
            raise CannotJudge(f"{name} is inconsistent or truncated: a column has {place}")
    return Layout(
        "parquet",
        rows,
        columns,
        tuple(_merge_ranges(sorted(ranges))),
        max(least, rows * _row_width_bytes(schema, columns)),
    )


def _orc_layout(path: str, name: str, wanted: Sequence[str], size: int) -> Layout:
    """Return the whole file: ORC keeps a stripe's columns together, and pyarrow does not report their place."""
    file = _call_pyarrow(name, lambda: orc.ORCFile(path))
    if wanted:
        raise CannotJudge(f"{name} is an ORC file, of which all columns are read", hint="leave read=... out")
    if file.nrows < 0 or file.content_length > size:
        raise CannotJudge(f"{name} has inconsistent sizes: {file.content_length} bytes of content in {size}")
    columns = tuple(file.schema.names)
    return Layout("orc", file.nrows, columns, ((0, size),), file.nrows * _row_width_bytes(file.schema, columns))


def _choose_columns(name: str, there: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    for one in wanted:
        if one not in there:
            some = ", ".join(list(there)[:8])
            raise CannotJudge(f"{name} has no column {one!r}", hint=f"it has {some}{' ...' if len(there) > 8 else ''}")
    return tuple(wanted or there)


def _row_width_bytes(schema: pa.Schema, columns: Sequence[str]) -> int:
    """Return the minimum bytes of a row: the whole bytes of its fixed-width columns."""
    total = 0
    for name in columns:
        kind = schema.field(name).type
        total += kind.bit_width // 8 if pa.types.is_primitive(kind) else 0
    return total


def _merge_ranges(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge ranges across small holes."""
    start, end = None, 0
    for at, length in ranges:
        if start is not None and at <= end + _HOLE_BYTES:
            end = max(end, at + length)
            continue
        if start is not None:
            yield start, end - start
        start, end = at, at + length
    if start is not None:
        yield start, end - start


def _call_pyarrow(name: str, opener: Callable[[], Read]) -> Read:
    try:
        return opener()
    except (OSError, pa.ArrowException) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CannotJudge(
            f"{name} cannot be read: {said[:300]}", hint="check that it is complete and a Parquet or ORC file"
        ) from error


class ArrowReader:
    """Reads the columns of a file by pyarrow."""

    software = f"pyarrow {VERSION}"

    def __init__(self, path: str, name: str, what: Layout, options: TableOptions) -> None:
        self._path, self._name, self._what, self._options = path, name, what, options
        self._threads = 1
        pa.set_io_thread_count(options.io_threads)

    def use(self, threads: int) -> None:
        """Decode with this many threads from now on."""
        self._threads = threads
        pa.set_cpu_count(threads)

    def read(self, cache: str = "hot") -> pa.Table:
        """Read the columns from the `cold` or `hot` file.

        Reading ahead brings cold bytes sooner; for hot ones it only adds a copy that waits until it is decoded.
        """
        wanted = self._options.pre_buffer
        return self._table(self._path, ahead=wanted == "yes" or (wanted == "auto" and cache == "cold"))

    def decode(self, whole: pa.Buffer) -> pa.Table:
        """Decode the columns from the file's bytes in memory."""
        return self._table(pa.BufferReader(whole), ahead=False)

    def to_arrow(self, table: pa.Table) -> pa.Table:
        """Return a table as pyarrow's."""
        return table

    def memory_bytes(self, table: pa.Table) -> int:
        """Return the memory of a table."""
        return int(table.nbytes)

    def _table(self, source: Any, *, ahead: bool) -> pa.Table:  # noqa: ANN401
        is_threaded, columns = self._threads > 1, list(self._what.columns)

        def read() -> pa.Table:
            if self._what.format == "orc":
                return orc.ORCFile(source).read()
            return parquet.ParquetFile(source, pre_buffer=ahead).read(columns, is_threaded)

        return _call_pyarrow(self._name, read)


def compare_tables(table: pa.Table, expected: pa.Table) -> tuple[int, int]:
    """Compare tables; returns (bytes compared, wrong bytes)."""
    wrong = 0
    if table.column_names != expected.column_names or table.num_rows != expected.num_rows:
        return expected.nbytes, expected.nbytes
    for mine, right in itertools.zip_longest(table.columns, expected.columns):
        if not mine.equals(right):
            wrong += right.nbytes
    return expected.nbytes, wrong


def read_independently(path: str, name: str, what: Layout) -> pa.Table:
    """Read the same columns by one thread through a mapping, and verify the pages' checksums."""
    if what.format == "orc":
        return _call_pyarrow(name, lambda: orc.ORCFile(path).read())

    def read() -> pa.Table:
        file = parquet.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        return file.read(list(what.columns), use_threads=False)

    return _call_pyarrow(name, read)


def check_room(name: str, what: Layout, available: int | None) -> None:
    """Raise CannotJudge if the columns do not fit twice in free memory."""
    if available is not None and 2 * (what.least_bytes + what.encoded_bytes) > available:
        needs = f"at least {format_size(what.least_bytes)} in memory according to its metadata"
        raise CannotJudge(f"{name} needs {needs}; {format_size(available)} is free",
                          hint="read fewer columns with read=...")  # fmt: skip


def read_file(path: str) -> pa.Buffer:
    """Return all bytes of a file."""
    with pa.OSFile(path, "rb") as file:
        return file.read_buffer()
