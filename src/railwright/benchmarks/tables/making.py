"""Reproducible tables and their files.

Only ranks import this module, because it loads pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet

from railwright.benchmarks.tables.options import TableCase
from railwright.errors import CannotJudge

_ORC_NAMES = {"none": "uncompressed", "gzip": "zlib"}
_DIGITS = 12
_LIST_LENGTH = 4
_ROW_BYTES = {
    "int32": 4, "float32": 4, "bool": 0.125, "decimal": 16, "string": 4 + _DIGITS, "list": 4 + 4 * _LIST_LENGTH,
}  # fmt: skip
_WORD_BYTES = 8
_LEAST_STRIPE_BYTES = 2**20


def count_rows(size_bytes: int, types: Sequence[str], columns: int) -> int:
    """Return the rows of a table of this size in memory, at least one."""
    return max(1, int(size_bytes / row_bytes(types, columns)))


def row_bytes(types: Sequence[str], columns: int) -> float:
    """Return the memory of a row."""
    return sum(_ROW_BYTES.get(types[number % len(types)], _WORD_BYTES) for number in range(columns))


def make(rows: int, types: Sequence[str], columns: int, *, cardinality: int, run_length: int) -> pa.Table:
    """Make a table of columns c0, c1 ..., whose types take turns. A `cardinality` of 0 sets no limit."""
    found = {}
    for number in range(columns):
        kind = types[number % len(types)]
        if kind == "list":
            ends = _list_multiples(rows + 1, pa.int32(), times=_LIST_LENGTH)
            draws = _draw(rows * _LIST_LENGTH, number, cardinality, run_length)
            found[f"c{number}"] = pa.ListArray.from_arrays(ends, _convert(draws, "int32"))
        else:
            found[f"c{number}"] = _convert(_draw(rows, number, cardinality, run_length), kind)
    return pa.table(found)


def _list_multiples(count: int, kind: Any, times: int = 1) -> Any:  # noqa: ANN401 - pyarrow has no types
    ones = pa.repeat(pa.scalar(times, kind), count)
    return pc.subtract(pc.cumulative_sum(ones), pa.scalar(times, kind))


def _draw(count: int, seed: int, cardinality: int, run_length: int) -> Any:  # noqa: ANN401
    """Draw floats in [0, 1): `cardinality` distinct ones unless it is 0, each `run_length` times in a row."""
    draws = pc.random(-(-count // run_length), initializer=seed)
    if cardinality:
        draws = pc.divide(pc.floor(pc.multiply(draws, float(cardinality))), float(cardinality))
    if run_length > 1:
        draws = draws.take(pc.divide(_list_multiples(count, pa.int64()), pa.scalar(run_length, pa.int64())))
    return draws


def _convert(draws: Any, kind: str) -> Any:  # noqa: ANN401
    """Convert floats in [0, 1) to a type, with as many distinct values as it can hold."""
    if kind == "float64":
        return draws
    if kind == "int64":
        return draws.view(pa.int64())  # all bits of the fraction
    if kind == "float32":
        return pc.cast(draws, pa.float32(), safe=False)
    if kind == "bool":
        return pc.less(draws, 0.5)
    if kind == "int32":
        return pc.cast(pc.floor(pc.multiply(draws, 2.0**31)), pa.int32())
    if kind == "timestamp":
        return pc.cast(pc.floor(pc.multiply(draws, 2.0**60)), pa.int64()).view(pa.timestamp("ns"))
    whole = pc.cast(pc.floor(pc.multiply(draws, 10.0**_DIGITS)), pa.int64())
    if kind == "decimal":
        return pc.cast(whole, pa.decimal128(19, 0))
    return pc.utf8_lpad(pc.cast(whole, pa.string()), _DIGITS, "0")


def write(table: pa.Table, path: str, case: TableCase) -> None:
    """Write the table in the case's format over the file at the path. Raises CannotJudge."""
    stripe = max(_LEAST_STRIPE_BYTES, table.nbytes * case.row_group // max(1, table.num_rows))
    try:
        with pa.OSFile(path, "wb") as sink:
            if case.format == "orc":
                name = _ORC_NAMES.get(case.compression, case.compression)
                orc.write_table(table, sink, compression=name, stripe_size=stripe)
            else:
                parquet.write_table(table, sink, compression=case.compression, row_group_size=case.row_group,
                                    write_page_checksum=True)  # fmt: skip
    except (OSError, pa.ArrowException) as error:
        reason = f"writing the test file: {str(error).splitlines()[0]}"
        raise CannotJudge(reason, hint="free some space, or choose another directory=...") from error
