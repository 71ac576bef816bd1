"""What a reader hands back: the table of another tool as results of ours, and the one way to build it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.results.readers.pasted.log_lines import bounded, cut_short, refusal
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
}
"""The operation as NCCL calls it, and whether the size of a benchmark is what one rank has for each other."""
MAX_RUNS = 100
MAX_VALUES = 10_000
"""Values of one run. A tool doubles its size, or adds a step to it some thousand times."""


class ForeignFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run of one tool. A text with several runs gives several of these."""

    tool: str
    """`nccl-tests`, `OSU`, `perftest`, `iperf3`, `NVIDIA HPL` ..."""
    version: str = ""
    """As printed; empty where the tool prints none."""
    test: str
    """`all_reduce`, `ib_write_bw`, `osu_bw`, `hpl` ..."""
    ranks: int | None = None
    """None if the text does not say. A result then has the default of 1, which carries no information."""
    hosts: int | None = None
    gpus: tuple[str, ...] = ()
    """The names of the GPU models, each once."""
    environment: dict[str, str] = {}
    """NCCL_* variables, from the command line or NCCL's own log."""
    results: tuple[Result, ...]
    rivals: tuple[str, ...] = ()
    """Other tests that the same columns could be of, where the text does not name its test."""
    workload: Workload = Unlimited(why="no machine was given")
    """What ran, as the reader of that tool says."""
    notes: tuple[str, ...] = ()
    """What a user must know to read the table: units, data not checked, rows missing, averages that mean nothing."""


class Reader(Protocol):
    """A module of this package that reads one format."""

    def recognises(self, text: str) -> bool:
        """Whether the text has this format's fixed words.

        Must be cheap: words first, and a pattern only where they are there; no loop over lines.
        """
        ...

    def read(self, text: str) -> tuple[ForeignFile, ...]:
        """Every run in the text. Raises UsageError with line, value and reason when a table is not what it claims."""
        ...


class Measured(NamedTuple):
    """One value of a row, in SI units, and how the tool printed it, with the tool's own unit."""

    quantity: Quantity
    value: float
    shown: str
    summary: Summary | None = None
    """None where the tool printed one number only."""


def bandwidth(rate: Number, bytes_per_s: float, unit: str) -> Measured:
    """A printed rate, in a unit of so many bytes/s."""
    return Measured("bandwidth_bytes_per_s", rate.value * bytes_per_s, f"{rate.text} {unit}")


def latency(time: Number, unit: str, seconds: float = 1e-6) -> Measured:
    """A printed time, in microseconds or another unit."""
    return Measured("latency_s", time.value * seconds, f"{time.text} {unit}")


def operations(rate: Number, unit: str = "IOPS") -> Measured:
    """A printed number of operations a second."""
    return Measured("operations_per_s", rate.value, f"{rate.text} {unit}")


class Draft(msgspec.Struct, kw_only=True):
    """A `ForeignFile` while its text is read. Every reader builds its results here."""

    tool: str
    version: str = ""
    test: str = ""
    line: int = 0
    """Where the run begins; its first row where no line before it says so."""
    last_line: int = 0
    """The last line that can belong to this run: only there may a row be cut off."""
    columns: list[str] = []
    last: tuple[int, int] = (-1, -1)
    """Size and batch of the row before, where a table must rise."""
    ranks: int | None = None
    hosts: int | None = None
    gpus: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    parameters: dict[str, Scalar] = {}
    """What was varied, where it is the same for all rows."""
    settings: dict[str, Scalar] = {}
    results: list[Result] = []
    rivals: tuple[str, ...] = ()
    workload: Workload | None = None
    """None where no limit is known for such a test."""
    notes: list[str] = []

    @property
    def method(self) -> str:
        """Tool, test and version; the test only where it is not the tool itself."""
        test = "" if self.test in self.tool.lower() else self.test
        return " ".join(filter(None, (self.tool, test, self.version)))

    def cells(self, words: list[str], line: int) -> dict[str, str]:
        """The words of a row by column. Raises UsageError when their number is wrong.

        A row that the end of the text cut off has no cells, and a note says so.
        """
        if not self.is_whole(len(words), len(self.columns), line):
            return {}
        self.line = self.line or line
        return dict(zip(self.columns, words, strict=True))

    def cells_of_matrix(self, columns: Sequence[str], words: Sequence[str], line: int) -> list[tuple[str, str]]:
        """The columns and words of a matrix's row behind its name; raises and notes as `cells` does."""
        is_whole = self.is_whole(len(words) - 1, len(columns), line, "the matrix has")
        return list(zip(columns, words[1:], strict=True)) if is_whole else []

    def is_whole(self, found: int, expected: int, line: int, others: str = "the header has") -> bool:
        """Whether a row has all columns. One that the end of the text cut off becomes a note, any other an error."""
        if found == expected:
            return True
        if line != self.last_line or found > expected:
            raise refusal(line, f"{found} columns where {others} {expected}")
        self.notes.append(cut_short(line, found, expected))
        return False

    def rise_to(self, size: int, line: int, *, may_repeat: bool = False) -> None:
        """Takes the size of the next row. Raises UsageError where sizes do not rise."""
        if size < self.last[0] or (size == self.last[0] and not may_repeat):
            raise refusal(line, f"size {size} after size {self.last[0]}: the rows of several tables are mixed")
        self.last = (size, 0)

    def add(
        self,
        line: int,
        values: Iterable[Measured],
        parameters: Mapping[str, Scalar],
        settings: Mapping[str, Scalar] = {},
        verification: Verification | None = None,
        *,
        path: str = "",
        launch: int = 0,
    ) -> None:
        """The values of one row, each as a result of its own. Lines are counted from 1.

        Raises UsageError for more rows than a table has.
        """
        if len(self.results) >= MAX_VALUES:
            raise too_many_rows(line)
        self.line = self.line or line
        for quantity, printed, shown, summary in values:
            value = _rounded(printed)
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
        """The run as it was read."""
        self.workload = self.workload or Unlimited(why=f"no limit is derived for {self.test}")
        read = {name: getattr(self, name) for name in ForeignFile.__struct_fields__}
        return ForeignFile(**{**read, "results": tuple(self.results), "notes": tuple(self.notes)})


def too_many_rows(line: int) -> UsageError:
    """The error for a table that no tool prints."""
    return refusal(line, f"the table goes on beyond {MAX_VALUES} values", "give the rows that matter, with the header")


def refuse_too_many(runs: int) -> None:
    """Raises UsageError for more runs than anybody reads."""
    if runs > MAX_RUNS:
        raise UsageError(f"more than {MAX_RUNS} runs in one file", hint="give a part of it")


def mpi_collective(name: str) -> Collective | None:
    """The collective that MPI calls so, as its benchmarks count sizes; None for one without a limit."""
    operation, of_each_rank = _MPI_COLLECTIVES.get(name, ("", False))
    return Collective(operation=operation, by="mpi", of_each_rank=of_each_rank) if operation else None


def files_of(drafts: Iterable[Draft], nothing: str, hint: str) -> tuple[ForeignFile, ...]:
    """The runs that have results, in the order of the text. Raises UsageError saying `nothing` when none has."""
    found: list[Draft] = []
    for draft in drafts:
        found += [draft] if draft.results else []
        refuse_too_many(len(found))
    found.sort(key=lambda draft: draft.line)
    if not found:
        raise UsageError(nothing, hint=hint)
    return tuple(draft.file() for draft in found)


def decoded(text: str, kind: type[Kind], what: str, hint: str) -> Kind:
    """A JSON file of a tool. Raises UsageError when the text is no JSON, or not of this kind."""
    try:
        return msgspec.json.decode(text.encode(), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise UsageError(f"not a whole {what}: {error}", hint=hint) from error


def decoded_among(text: str, kind: type[Kind], what: str, hint: str) -> Kind:
    """The same for a text in which other lines stand before the JSON or behind it."""
    begin, end = bounded(text).find("{"), text.rfind("}")
    return decoded(text[begin : end + 1], kind, what, hint)


def percentiles(count: int, minimum: float, median: float, p99: float, maximum: float) -> Summary:
    """A summary of samples that the tool did not print. Both ends of the median's interval are the median."""
    minimum, median, p99, maximum = (_rounded(value) for value in (minimum, median, p99, maximum))
    return Summary(
        count=count, minimum=minimum, median=median, p99=p99, maximum=maximum, median_low=median, median_high=median
    )


def _rounded(value: float) -> float:
    """Twelve digits: 8.28e6 and not 8279999.999999999. No tool prints so many."""
    return float(f"{value:.12g}")
