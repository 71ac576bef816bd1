"""Reader of the summary that Longhorn's kbench writes of three fio runs, with reads and writes in each row.

    FIO Benchmark Summary
    IOPS (Read/Write)
            Random:           28,832 / 5,730
        Sequential:          51,415 / 11,329
    Bandwidth in KiB/sec (Read/Write)
    Latency in ns (Read/Write)

Each of the three parts is a separate run with its own request size and depth, so they are not compared.
"""

from __future__ import annotations

import re

from railwright.limits.limit import Quantity
from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files
from railwright.results.readers.pasted.log_lines import sort_by_origin
from railwright.results.readers.pasted.printed_numbers import number
from railwright.results.workload import Files

_PART = re.compile(r"(IOPS|Bandwidth in KiB/sec|Latency in ns)(?: \(([A-Z][a-z]{3,5})(?:/([A-Z][a-z]{3,5}))?\))?\s*$")
_ROW = re.compile(r"(Random|Sequential):\s{1,40}([\d,]{1,20})(?:\s{0,4}/\s{0,4}([\d,]{1,20}))?\s*$")
_BOTH: tuple[str, ...] = ("read", "write")
_KINDS: dict[str, tuple[Quantity, float, str]] = {
    "IOPS": ("operations_per_s", 1.0, "IOPS"),
    "Bandwidth in KiB/sec": ("bandwidth_bytes_per_s", 1024.0, "KiB/s"),
    "Latency in ns": ("latency_s", 1e-9, "ns"),
}


def recognises(text: str) -> bool:
    """Report whether the text has the title of the summary."""
    return "FIO Benchmark Summary" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every summary. Raises UsageError if none has a row."""
    runs = [_draft()]
    part, operations = "", _BOTH
    for line in sort_by_origin(text):
        words = line.text.strip()
        if "FIO Benchmark Summary" in words and runs[-1].results:
            runs.append(_draft())
        elif found := _PART.search(words):
            part = found[1]
            operations = tuple(name.lower() for name in found.groups()[1:] if name) or _BOTH
        elif part and (row := _ROW.search(words)):
            _take_row(runs[-1], row, part, operations, line.number)
    return collect_files(
        runs, "kbench's summary must contain a row (Random: 28,832 / 5,730), got none", "give the whole summary"
    )


def _draft() -> Draft:
    notes = ["KiB is 1024 bytes", "kbench does not print the request sizes"]
    return Draft(tool="kbench", test="kbench", workload=Files(), notes=notes)


def _take_row(draft: Draft, row: re.Match[str], part: str, operations: tuple[str, ...], line: int) -> None:
    quantity, unit, shown = _KINDS[part]
    for operation, printed in zip(operations, row.groups()[1:], strict=False):
        if printed is None:
            continue
        if value := number(printed.replace(",", ""), part, line).value:
            measured = MeasuredValue(quantity, value * unit, f"{printed} {shown}")
            draft.add(line, [measured], {"operation": f"{row[1].lower()} {operation}"})
