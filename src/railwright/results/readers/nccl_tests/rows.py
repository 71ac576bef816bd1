"""The rows of nccl-tests: recognizes rows and headers, and separates the tables of mixed output.

Without MPI=1, nccl-tests runs completely in each process that mpirun starts, and all of them print the same sizes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from railwright.results.readers.pasted.log_lines import refusal
from railwright.results.readers.pasted.printed_numbers import Number

TYPE_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "half": 2, "bfloat16": 2, "int": 4, "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
"""The bytes of an element (nccl-tests src/common.cu `test_typenames`; RCCL's fork prints fp8_*)."""

OPERATION_OF = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_allv", "sendrecv": "send_recv", "broadcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "hypercube": "hypercube",
}  # fmt: skip
"""Our names for the tests, by the program's name without `_perf`."""

_ROW = re.compile(
    r"(?:^|\s)\d{1,19}\s{1,24}\d{1,19}\s{1,12}(?:"
    + "|".join(TYPE_BYTES)
    + r")(?:\s{1,12}[a-z]{3,12}\s{1,12}-?\d[\d.]{0,20}(?:[\s\[]|$)"
    r"|(?:\s{1,12}\d{1,9}\.\d{1,2}){3}\s{1,12}(?:\de[+-]\d\d|N/A)(?:\s|$))"
)
"""The row with the reduction and its root, or, for collectives without them, with the first half and its error."""
_MOST_LANES = 64
"""The maximum number of processes whose tables are separated."""


class Timing(msgspec.Struct, frozen=True):
    """The out-of-place or in-place half of a row."""

    placement: str
    time_us: Number
    algbw: Number
    busbw: Number
    wrong: float | None
    """Wrong elements (since 2.13) or the largest error (before); None if the data was not checked."""
    extras: dict[str, float] = {}
    """The per-iteration columns of `-I`, in seconds or percent."""


class Row(msgspec.Struct, frozen=True):
    """A size with its timings."""

    line: int
    size_bytes: int
    count: int | None
    """None, like an empty type, if the table has no such column, for example because columns were cut out."""
    type: str
    redop: str
    root: int
    timings: tuple[Timing, ...]
    cycle: int = 0

    @property
    def series(self) -> tuple[str, str, int]:
        """The values that may change within a table without a new header."""
        return (self.type, self.redop, self.root)

    @property
    def elements_per_count(self) -> Fraction:
        """Return size / (count x bytes of the type): 1, or the ranks for operations that divide their buffer.

        Raises UsageError for an unknown type or a count of 0.
        """
        if self.type not in TYPE_BYTES or not self.count:
            raise refusal(self.line, f"type must be an NCCL type, got {self.type[:40]!r}")
        return Fraction(self.size_bytes, self.count * TYPE_BYTES[self.type])

    @property
    def sends(self) -> bool:
        """Whether any data was sent."""
        return self.size_bytes > 0 and self.count != 0


def begins_row(words: Sequence[str]) -> bool:
    """Report whether the words begin with a size, a count and a type."""
    return len(words) >= 3 and words[0].isdecimal() and words[1].isdecimal() and words[2] in TYPE_BYTES


def has_rows(text: str) -> bool:
    """Report whether a text without the header has rows, like the end of a long table."""
    types = [word for name in TYPE_BYTES if (word := f" {name} ") in text]
    lines = (line for line in text.split("\n") if any(word in line for word in types)) if types else ()
    return any(_ROW.search(line[:400]) for line in lines)


def is_header(text: str) -> bool:
    """Report whether a line is the header of a table, even with columns cut out."""
    columns = text.lstrip("# ").split()
    return (
        columns[:1] == ["size"] and {"time", "cputime"} & set(columns) != set() and {"algbw", "busbw"} <= set(columns)
    )


def infer_columns(words: Sequence[str]) -> list[str]:
    """Derive the columns of a table without header from the words of a row. Returns an empty list for other words."""
    if not begins_row(words):
        return []
    redop = ["redop"] if len(words) > 3 and words[3].isalpha() else []
    values = words[3 + len(redop) :]
    root = ["root"] if len(values) in (5, 9) else []
    wrong = "error" if any("e-" in word for word in values) else "#wrong"
    halves = (len(values) - len(root)) // 4
    if halves not in (1, 2) or len(values) != len(root) + 4 * halves:
        return []
    return ["size", "count", "type", *redop, *root, *["time", "algbw", "busbw", wrong] * halves]


def split_lanes(rows: Sequence[Row]) -> list[list[Row]]:
    """Split rows by table.

    Returns an empty list unless there are several tables, each with a contiguous part of the sizes of the longest one.
    """
    lanes: list[list[Row]] = []
    for row in (row for row in rows if row.sends):
        able = [lane for lane in lanes if lane[-1].size_bytes < row.size_bytes and lane[-1].series == row.series]
        if able:
            max(able, key=lambda lane: lane[-1].size_bytes).append(row)
        elif len(lanes) < _MOST_LANES:
            lanes.append([row])
        else:
            return []
    longest = max(([row.size_bytes for row in lane] for lane in lanes), key=len, default=[])
    alike = all(_is_part([row.size_bytes for row in lane], longest) for lane in lanes)
    return lanes if len(lanes) > 1 and alike else []


def _is_part(sizes: list[int], longest: list[int]) -> bool:
    """Report whether the sizes are a contiguous part of the longest table. A text may begin or end within a table."""
    if sizes[0] not in longest:
        return False
    start = longest.index(sizes[0])
    return sizes == longest[start : start + len(sizes)]
