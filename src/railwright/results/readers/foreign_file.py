"""The output of a reader: the results of another tool in the record format of this program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from railwright import reading
from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.results.readers.pasted.log_lines import check_length, describe_truncation, refusal
from railwright.results.readers.pasted.printed_numbers import Number
from railwright.results.records import Result, Summary, Verification
from railwright.results.statistics import summarise
from railwright.results.workload import Collective, Unlimited, Workload
from railwright.topology.devices import Scalar

Kind = TypeVar("Kind")
_MPI_COLLECTIVES = {
    "allreduce": ("all_reduce", False),
    "allgather": ("all_gather", True),
    "alltoall": ("all_to_all", True),
    "reduce_scatter": ("reduce_scatter", False),
    "bcast": ("broadcast", False),
    "reduce": ("reduce", False),
    "gather": ("gather", True),
    "scatter": ("scatter", True),
    # The benchmarks give every rank the same count, so these move the same bytes.
    "allgatherv": ("all_gather", True),
    "alltoallv": ("all_to_all", True),
    "alltoallw": ("all_to_all", True),
    "reduce_scatter_block": ("reduce_scatter", False),
    "gatherv": ("gather", True),
    "scatterv": ("scatter", True),
}
"""The name of each operation here, and whether the size of the benchmark is one rank's data for each peer."""
MAX_RUNS = 100
MAX_VALUES = 10_000
"""The maximum number of values of a run. Tools double the size row by row, or increment it a few thousand times."""


class ForeignFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run of a tool. A text with several runs gives several of these."""

    tool: str
    """The tool, such as `nccl-tests`, `OSU`, `perftest`, `iperf3` or `NVIDIA HPL`."""
    version: str = ""
    """The version as printed; empty if the tool prints none."""
    test: str
    """The test, such as `all_reduce`, `ib_write_bw`, `osu_bw` or `hpl`."""
    ranks: int | None = None
    """None if the text does not say. Results then have the default of 1, which carries no information."""
    hosts: int | None = None
    gpus: tuple[str, ...] = ()
    """The distinct names of the GPU models."""
    environment: dict[str, str] = {}
    """NCCL_* variables, from the command line or from NCCL's log."""
    results: tuple[Result, ...]
    rivals: tuple[str, ...] = ()
    """Other tests with the same columns, if the text does not name its test."""
    workload: Workload = Unlimited(why="no machine was given")
    """The workload that the reader derived from the text."""
    notes: tuple[str, ...] = ()
    """Notes for the reader of the table: units, unchecked data, missing rows, meaningless averages."""


class Reader(Protocol):
    """A module of this package that reads one format."""

    def recognises(self, text: str) -> bool:
        """Report whether the text has the fixed words of this format.

        It must be cheap: search for words first, for a pattern only if the words are there, and never loop over lines.
        """
        ...

    def read(self, text: str) -> tuple[ForeignFile, ...]:
        """Read every run in the text. Raises UsageError with line, value and reason for an inconsistent table."""
        ...


class MeasuredValue(NamedTuple):
    """A value of a row in SI units, and the text that the tool printed for it, with the tool's own unit."""

    quantity: Quantity
    value: float
    shown: str
    summary: Summary | None = None
    """None if the tool printed a single number."""


def bandwidth(rate: Number, bytes_per_s: float, unit: str) -> MeasuredValue:
    """Convert a printed rate, whose unit is `bytes_per_s` bytes/s."""
    return MeasuredValue("bandwidth_bytes_per_s", rate.value * bytes_per_s, f"{rate.text} {unit}")


def latency(time: Number, unit: str, seconds: float = 1e-6) -> MeasuredValue:
    """Convert a printed time, in microseconds or in a unit of `seconds`."""
    return MeasuredValue("latency_s", time.value * seconds, f"{time.text} {unit}")


def operations(rate: Number, unit: str = "IOPS") -> MeasuredValue:
    """Convert a printed number of operations per second."""
    return MeasuredValue("operations_per_s", rate.value, f"{rate.text} {unit}")


class NoRows(UsageError):
    """The text has a tool's words and none of its rows."""


class Draft(msgspec.Struct, kw_only=True):
    """A `ForeignFile` while its text is read. Every reader builds its results here."""

    tool: str
    version: str = ""
    test: str = ""
    line: int = 0
    """The line where the run begins, or its first row."""
    last_line: int = 0
    """The last line that can belong to this run. Only a row on this line may be truncated."""
    row_ends: frozenset[int] = frozenset()
    """Other lines whose row may be truncated, because no row of the same run or matrix follows."""
    columns: list[str] = []
    last: tuple[int, int] = (-1, -1)
    """The size and batch of the previous row, for a table that must rise."""
    ranks: int | None = None
    hosts: int | None = None
    gpus: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    parameters: dict[str, Scalar] = {}
    """The varied parameters that are the same for all rows."""
    settings: dict[str, Scalar] = {}
    results: list[Result] = []
    rivals: tuple[str, ...] = ()
    workload: Workload | None = None
    """None if no limit is known for the test."""
    notes: list[str] = []

    @property
    def method(self) -> str:
        """The tool, test and version; without the test if it is the tool itself."""
        test = "" if self.test in self.tool.lower() else self.test
        return " ".join(filter(None, (self.tool, test, self.version)))

    def cells(self, words: list[str], line: int) -> dict[str, str]:
        """Return the words of a row by column. Raises UsageError if their number is wrong.

        For a row that the end of the text truncates, returns an empty mapping and adds a note.
        """
        if not self.is_whole(len(words), len(self.columns), line):
            return {}
        self.line = self.line or line
        return dict(zip(self.columns, words, strict=True))

    def cells_of_matrix(self, columns: Sequence[str], words: Sequence[str], line: int) -> list[tuple[str, str]]:
        """Pair the columns of a matrix with the words of a row, without its name. Raises and notes as `cells` does."""
        is_whole = self.is_whole(len(words) - 1, len(columns), line, "the matrix has")
        return list(zip(columns, words[1:], strict=True)) if is_whole else []

    def is_whole(self, found: int, expected: int, line: int, others: str = "the header has") -> bool:
        """Report whether a row has all columns.

        A row truncated by the end of the text, or by that of a part of it, adds a note; any other is an error.
        """
        if found == expected:
            return True
        if (line != self.last_line and line not in self.row_ends) or found > expected:
            raise refusal(line, f"{found} columns where {others} {expected}")
        self.notes.append(describe_truncation(line, found, expected))
        return False

    def rise_to(self, size: int, line: int, *, may_repeat: bool = False) -> None:
        """Record the size of the next row. Raises UsageError if sizes do not rise."""
        if size < self.last[0] or (size == self.last[0] and not may_repeat):
            raise refusal(line, f"size {size} follows size {self.last[0]}: rows of several tables are mixed")
        self.last = (size, 0)

    def add(
        self,
        line: int,
        values: Iterable[MeasuredValue],
        parameters: Mapping[str, Scalar],
        settings: Mapping[str, Scalar] = {},
        verification: Verification | None = None,
        *,
        path: str = "",
        launch: int = 0,
    ) -> None:
        """Add each value of a row as a result. Lines are counted from 1.

        Raises UsageError if the table has too many rows.
        """
        if len(self.results) >= MAX_VALUES:
            raise too_many_rows(line)
        self.line = self.line or line
        for quantity, printed, shown, summary in values:
            value = _round_value(printed)
            self.results.append(
                Result(
                    benchmark=self.test,
                    quantity=quantity,
                    path=path,
                    method=self.method,
                    parameters={**parameters, **self.parameters},
                    settings={**self.settings, **settings, "shown": shown, "line": line},
                    launch=launch,
                    ranks=self.ranks or 1,
                    hosts=self.hosts or 1,
                    samples=(value,),
                    summary=summary or summarise((value,)),
                    verification=verification,
                )
            )

    def file(self) -> ForeignFile:
        """Return the run as an immutable `ForeignFile`."""
        self.workload = self.workload or Unlimited(why=f"no limit is derived for {self.test}")
        read = {name: getattr(self, name) for name in ForeignFile.__struct_fields__}
        return ForeignFile(**{**read, "results": tuple(self.results), "notes": tuple(self.notes)})


def too_many_rows(line: int) -> UsageError:
    """Return the error for a table with too many rows."""
    return refusal(
        line, f"a table must have at most {MAX_VALUES} values, got more", "give the relevant rows, with the header"
    )


def refuse_too_many(runs: int) -> None:
    """Check the number of runs. Raises UsageError if there are too many."""
    if runs > MAX_RUNS:
        raise UsageError(f"a file must have at most {MAX_RUNS} runs, got more", hint="give a part of it")


def mpi_collective(name: str) -> Collective | None:
    """Return the collective of this MPI name, with the size convention of MPI benchmarks; None if it has no limit."""
    operation, of_each_rank = _MPI_COLLECTIVES.get(name, ("", False))
    return Collective(operation=operation, by="mpi", of_each_rank=of_each_rank) if operation else None


def collect_files(drafts: Iterable[Draft], nothing: str, hint: str) -> tuple[ForeignFile, ...]:
    """Return the runs that have results, in the order of the text. Raises NoRows with `nothing` if none has."""
    found: list[Draft] = []
    for draft in drafts:
        found += [draft] if draft.results else []
        refuse_too_many(len(found))
    found.sort(key=lambda draft: draft.line)
    if not found:
        raise NoRows(nothing, hint=hint)
    return tuple(draft.file() for draft in found)


def decode_json(text: str, kind: type[Kind], what: str, hint: str) -> Kind:
    """Decode the JSON file of a tool. Raises UsageError if the text is not JSON, or not of this type."""
    try:
        return reading.decode_json(text.encode(), kind)
    except ValueError as error:
        raise UsageError(f"not a whole {what}: {error}", hint=hint) from error


def decode_embedded_json(text: str, kind: type[Kind], what: str, hint: str) -> Kind:
    """Decode the JSON in a text that has other lines before or after it, with the errors of `decode_json`."""
    begin, end = check_length(text).find("{"), text.rfind("}")
    return decode_json(text[begin : end + 1], kind, what, hint)


def percentiles(count: int, minimum: float, median: float, p99: float, maximum: float) -> Summary:
    """Summarize samples that the tool did not print. Both ends of the median's interval are the median."""
    minimum, median, p99, maximum = (_round_value(value) for value in (minimum, median, p99, maximum))
    return Summary(
        count=count, minimum=minimum, median=median, p99=p99, maximum=maximum, median_low=median, median_high=median
    )


def _round_value(value: float) -> float:
    """Round to twelve digits, so that 8.28e6 does not become 8279999.999999999. No tool prints as many digits."""
    return float(f"{value:.12g}")
