"""Options of table reading, and the parameters that its launches vary."""

from __future__ import annotations

from collections.abc import Callable

from railwright.benchmarks.job import Case
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_number, whole_numbers, word_or
from railwright.errors import UsageError
from railwright.units import parse_size

OWN = "none"
"""The value for which the benchmark makes a file instead of using the user's."""
ALL = "all"
CORES = "cores"
READERS = ("pyarrow", "cudf", "cudf gds")
TYPES = ("int32", "int64", "float32", "float64", "bool", "timestamp", "decimal", "string", "list")
COMPRESSIONS = ("none", "snappy", "zstd", "lz4", "gzip")
_MOST_THREADS = 1024
_MOST_COLUMNS = 4096
_MOST_ROWS = 2**31 - 1
_MOST_NAME = 200


def _numbers_or(word: str, most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parser of whole numbers, with a word that stands for 0."""

    def parse(text: str) -> tuple[int, ...]:
        parts = [part.strip() for part in text.split(",")]
        whole_numbers(most, 16)(",".join("1" if part == word else part for part in parts))
        return tuple(dict.fromkeys(0 if part == word else int(part) for part in parts))

    return parse


def _parse_names(text: str) -> tuple[str, ...]:
    """Parse names of columns. Raises UsageError."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if not name or len(name) > _MOST_NAME:
            raise UsageError(f"invalid name of a column: {name[:40]!r}", hint="write names, like c0,c1, or all")
    return names


_names_or_all = word_or(ALL, (), _parse_names)
_cardinalities, _threads = _numbers_or(ALL, _MOST_ROWS), _numbers_or(CORES, _MOST_THREADS)


class TableOptions(Options, frozen=True):
    """Options of table reading."""

    file: str = option(OWN, f"your Parquet or ORC file, or {OWN} to make files", str)
    directory: str = option(".", "the folder on the file system to measure, for generated files", str)
    format: tuple[str, ...] = option("parquet", "parquet, orc, or both", choice("parquet", "orc"))
    size: int = option("256M", "size of the table in memory, like 256M", parse_size)
    types: tuple[str, ...] = option(
        "int64,float64,string,int32", f"the columns' types, in turn: {', '.join(TYPES)}", choice(*TYPES)
    )
    columns: int = option("8", "columns of the table", whole_number(_MOST_COLUMNS))
    cardinality: tuple[int, ...] = option("all", "distinct values of a column, like all,1000", _cardinalities)
    run_length: tuple[int, ...] = option(
        "1", "repeats of each value in a run, like 1,32", whole_numbers(_MOST_ROWS, 16)
    )
    compression: tuple[str, ...] = option(
        "snappy", f"one or several of {', '.join(COMPRESSIONS)}", choice(*COMPRESSIONS)
    )
    row_group: tuple[int, ...] = option("1000000", "rows of a row group or stripe", whole_numbers(_MOST_ROWS, 16))
    read: tuple[str, ...] = option(
        ALL, "names of the columns to read of a Parquet file, like c0,c2, or all", _names_or_all
    )
    reader: tuple[str, ...] = option(
        READERS[0], "pyarrow, cudf (GPU, through host memory), cudf gds (GPUDirect Storage), or several",
        choice(*READERS),
    )  # fmt: skip
    threads: tuple[int, ...] = option(CORES, f"threads that decode, like 1,4 or 1,{CORES}", _threads)
    io_threads: int = option("8", "threads that read", whole_number(_MOST_THREADS))
    pre_buffer: str = option(
        "auto",
        "whether pyarrow reads ahead of decoding: yes, no, or auto (if the file is cold)",
        single_choice("auto", "yes", "no"),
    )
    cache: tuple[str, ...] = option("cold,hot", "cold (not in the page cache), hot, or both", choice("cold", "hot"))
    passes: int = option("5", "timed reads at each point", whole_number(1000))


class TableCase(Case, frozen=True, kw_only=True):
    """A file and its reader. Parameters of generated files are omitted for the user's file."""

    reader: str
    format: str
    compression: str = ""
    cardinality: str = ""
    run_length: int = 0
    row_group: int = 0
