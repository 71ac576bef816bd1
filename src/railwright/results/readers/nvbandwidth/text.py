"""Reader of NVIDIA's nvbandwidth 0.2 to 0.8: a matrix per test.

    Running device_to_device_memcpy_write_ce.
    memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
               0         1
     0      0.00    276.07
     1    276.19      0.00

    SUM device_to_device_memcpy_write_ce 552.26

GB/s is 10^9 bytes/s (nvbandwidth README). The arrow gives the direction of the data; 0.00 or N/A means that
nothing was copied. `device_local_copy` copies inside each GPU, and counts each byte once (device_local_copy in its
README).
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.nvbandwidth import json as nvbandwidth_json
from railwright.results.readers.pasted.log_lines import Line, last_row, refusal, row_ends, split_runs
from railwright.results.readers.pasted.printed_numbers import Number, number
from railwright.results.workload import Copy

_RUNNING = re.compile(r"Running ([a-z_0-9]{4,80})\.")
_HEAD = re.compile(r"memcpy (?:CE|SM) (CPU|GPU)\(row\) (<->|<-|->) (CPU|GPU)(?:\(column\))? bandwidth \(GB/s\)")
_LOCAL = re.compile(r"memcpy local GPU\(column\) bandwidth \(GB/s\)")
_VERSION = re.compile(r"nvbandwidth Version: v?([\d.]{1,16})")
_DEVICE = re.compile(r"Device \d{1,4}: (\S.{0,60}?)(?: \([0-9A-Fa-f:.]{4,20}\))?\s*$")
_SUM = re.compile(r"SUM ([a-z_0-9]{4,80}) (\S{1,24})")
_SAME = "same"
"""The row of a copy inside the GPU of the column."""


class _Matrix(msgspec.Struct, kw_only=True):
    """The matrix of a test while it is read. `total` and `half` are the sums of its values and of their rounding."""

    test: str
    row: str
    arrow: str
    column: str
    columns: list[str] = []
    total: float = 0.0
    half: float = 0.0


def recognises(text: str) -> bool:
    """Report whether the text has the heading of a matrix."""
    if nvbandwidth_json.recognises(text):
        return True
    return "memcpy " in text and ("(row)" in text or "local GPU(column)" in text) and "bandwidth (GB/s)" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every run. Raises UsageError for a matrix that contradicts its sum."""
    if nvbandwidth_json.recognises(text):
        text = nvbandwidth_json.print_matrices(text)
    return collect_files(
        map(_read_run, split_runs(text, lambda line: "nvbandwidth Version" in line.text)),
        "nvbandwidth's output must contain a matrix (memcpy CE ... bandwidth (GB/s)), got none",
        "give the output starting with the line 'Running NAME.'",
    )


def _read_run(lines: list[Line]) -> Draft:
    draft = Draft(
        tool="nvbandwidth", test="nvbandwidth", workload=Copy(), last_line=last_row(lines), row_ends=row_ends(lines)
    )
    draft.notes += ["GB is 10^9 bytes", "the data was not checked"]
    gpus: dict[str, None] = {}
    matrix, named = None, ""
    for line in lines:
        words = line.text.split()
        if found := _VERSION.search(line.text):
            draft.version = found[1]
        elif found := _DEVICE.match(line.text.strip()):
            gpus.setdefault(found[1])
        elif found := _RUNNING.search(line.text):
            matrix, named = None, found[1]
        elif found := _HEAD.search(line.text):
            matrix = _Matrix(test=named or "memcpy", row=found[1], arrow=found[2], column=found[3])
        elif _LOCAL.search(line.text):
            matrix = _Matrix(test=named or "memcpy", row=_SAME, arrow="->", column="GPU")
        elif found := _SUM.search(line.text):
            _check_sum(matrix, found[2], line.number)
            matrix = None
        elif matrix is not None and words and all(word.isdecimal() for word in words) and not matrix.columns:
            matrix.columns = words
        elif matrix is not None and matrix.columns and words and words[0].isdecimal():
            _read_row(draft, matrix, words, line.number)
    draft.gpus = tuple(gpus)
    return draft


def _read_row(draft: Draft, matrix: _Matrix, words: list[str], line: int) -> None:
    for column, word in draft.cells_of_matrix(matrix.columns, words, line):
        if word == "N/A":
            continue
        printed = number(word, "bandwidth", line)
        matrix.total += printed.value
        matrix.half += printed.half
        if printed.value > 0:
            _add(draft, matrix, words[0], column, printed, line)


def _add(draft: Draft, matrix: _Matrix, row: str, column: str, printed: Number, line: int) -> None:
    ends = [
        _name_end("GPU", column) if matrix.row == _SAME else _name_end(matrix.row, row),
        _name_end(matrix.column, column),
    ]
    source, target = ends if matrix.arrow != "<-" else reversed(ends)
    path = f"{source}>{target}"
    engine = "sm" if matrix.test.endswith("_sm") else "ce"
    settings = {"engine": engine, "direction": "both" if matrix.arrow == "<->" else "one"}
    draft.add(line, [bandwidth(printed, 1e9, "GB/s")], {"test": matrix.test, "copy": path}, settings, path=path)


def _name_end(kind: str, place: str) -> str:
    return f"gpu{int(place)}" if kind == "GPU" else "memory0"


def _check_sum(matrix: _Matrix | None, printed: str, line: int) -> None:
    if matrix is None or not matrix.columns:
        return
    total = number(printed, "SUM", line)
    if abs(total.value - matrix.total) > total.half + matrix.half + 1e-6 * total.value:
        raise refusal(line, f"SUM must be the sum of the matrix, {matrix.total:.2f}, got {total.text}")
