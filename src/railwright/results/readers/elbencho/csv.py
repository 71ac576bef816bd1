"""Reader of the two CSV formats of elbencho: `--csvfile` with a line per phase, `--livecsv` with a line per interval.

    ISO Date,Label,Phase,RuntimeMS,Rank,MixType,Done%,DoneBytes,MiB/s,IOPS,Entries,Entries/s,Lat Ent us,Lat IO us,...
    2025-12-17T11:58:08.821-0600,,READ,1001,Total,,35,49416241152,47127,94254,0,0,0,10549,128,5,,

The result of a live file is the bytes over the time since the phase began. Its MiB/s column covers the last interval
alone.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator

from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    bandwidth,
    collect_files,
    latency,
    operations,
)
from railwright.results.readers.pasted.log_lines import check_length, refusal
from railwright.results.readers.pasted.printed_numbers import disagree, number
from railwright.results.workload import Files

_LIVE = "ISO Date,Label,Phase,RuntimeMS,"
_LIVE_COLUMNS = ("Phase", "RuntimeMS", "Rank", "MixType", "DoneBytes")
_LAST_TIME = "time ms [last]"
_LAST_RATE = "MiB/s [last]"
_MOVE_DATA = ("READ", "WRITE", "RWMIX")
_AGREEMENT, _LONG_ENOUGH_MS = 0.03, 1000

Row = tuple[int, dict[str, str]]


def recognises(text: str) -> bool:
    """Report whether the text has the columns of either header."""
    return _LIVE in text or (_LAST_TIME in text and _LAST_RATE in text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all phases that move data into one file. Raises UsageError for a rate that is not bytes over time."""
    draft = Draft(tool="elbencho", test="elbencho", workload=Files())
    draft.notes += ["MiB is 2^20 bytes", "the data was not checked"]
    live: dict[tuple[str, str], Row] = {}
    for line, row in _rows(check_length(text)):
        if "RuntimeMS" in row:
            if row["Rank"] == "Total":
                live[row["Phase"], row["MixType"]] = line, row
        else:
            _add_finished(draft, line, row)
    for (phase, mixed), (line, row) in live.items():
        _add_live(draft, line, row, mixed or phase)
    if live:
        draft.notes.append("the rate is all bytes over the time since the phase began, from the last line of the phase")
    return collect_files([draft], "elbencho's CSV must contain a rate, got none", "give the file with its header")


def _rows(text: str) -> Iterator[Row]:
    """Yield the complete lines below a header, by column. Truncated and garbled lines are skipped.

    Raises UsageError for a header that lacks a needed column.
    """
    columns: list[str] = []
    for place, line in enumerate(text.split("\n"), 1):
        if line.count(",") < 8:
            continue
        begin = max(line.find(_LIVE), 0)
        words: list[str] = []
        with contextlib.suppress(csv.Error):  # a carriage return in the line, or a field above 128 KiB
            words = next(csv.reader([line[begin:].strip()]), [])
        if recognises(line):
            columns = words
            needed = _LIVE_COLUMNS if _LIVE in line else (_LAST_TIME, _LAST_RATE, "operation")
            if missing := [name for name in needed if name not in columns]:
                raise refusal(place, f"elbencho's CSV must have a column {missing[0]}")
        elif columns and len(words) == len(columns):
            yield place, dict(zip(columns, words, strict=True))


def _add_live(draft: Draft, line: int, row: dict[str, str], operation: str) -> None:
    moved, taken = number(row["DoneBytes"], "DoneBytes", line), number(row["RuntimeMS"], "RuntimeMS", line)
    if operation.upper() not in _MOVE_DATA or not moved.value or not taken.value:
        return
    rate = moved.value / (taken.value / 1e3)
    values = [MeasuredValue("bandwidth_bytes_per_s", rate, f"{moved.text} B, {taken.text} ms")]
    if (time := number(row.get("Lat IO us", "0"), "Lat IO us", line)).value:
        values.append(latency(time, "us"))
    draft.add(line, values, {"operation": operation.lower()}, {"duration_s": taken.value / 1e3})


def _add_finished(draft: Draft, line: int, row: dict[str, str]) -> None:
    operation, printed = row.get("operation", ""), row[_LAST_RATE]
    if operation.upper() not in _MOVE_DATA or not printed:
        return
    rate, taken = number(printed, _LAST_RATE, line), number(row[_LAST_TIME], _LAST_TIME, line)
    if total := row.get("MiB [last]"):
        about = number(total, "MiB [last]", line).value / max(taken.value / 1e3, 1e-3)
        if taken.value >= _LONG_ENOUGH_MS and disagree(rate.value, about, _AGREEMENT, 1):
            raise refusal(line, f"{rate.text} MiB/s is not {total} MiB in {taken.text} ms")
    values = [bandwidth(rate, 2**20, "MiB/s")]
    if iops := row.get("IOPS [last]"):
        values.append(operations(number(iops, "IOPS", line)))
    if time := row.get("IO lat us [avg]"):
        values.append(latency(number(time, "IO lat us", line), "us mean"))
    parameters: dict[str, str | int | float] = {"operation": operation.lower()}
    for name, column in (("size_bytes", "block size"), ("threads", "threads")):
        if (given := row.get(column, "")).isdecimal():
            parameters[name] = int(given[:18])
    draft.add(line, values, parameters, {"duration_s": taken.value / 1e3})
