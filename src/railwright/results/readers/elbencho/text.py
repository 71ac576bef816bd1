"""Reader of elbencho 1.x to 3.x: a block per phase, with columns for the first and the last worker done.

    OPERATION   RESULT TYPE         FIRST DONE   LAST DONE
    =========== ================    ==========   =========
    READ        Elapsed time     :    2m3.241s    2m5.755s
                IOPS             :       33395       33352
                Throughput MiB/s :       33395       33352
                Total MiB        :     4115703     4194304

LAST DONE covers the whole phase (elbencho's README) and becomes the result. `elbencho.csv` reads its CSV.
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.elbencho import csv as elbencho_csv
from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    bandwidth,
    collect_files,
    operations,
)
from railwright.results.readers.pasted.log_lines import refusal, sort_by_origin
from railwright.results.readers.pasted.printed_numbers import Number, disagree, number
from railwright.results.workload import Files

_PHASE = re.compile(r"^\s{0,8}([A-Z][A-Z0-9]{2,15})\s{1,16}Elapsed (time|ms)\s{0,24}: ?(.{1,60})$")
_ROW = re.compile(
    r"^\s{0,24}(IOPS|Throughput MiB/s|Total MiB|IO lat(?:ency)? us|Files/s|Objects/s)\s{0,24}: ?(.{1,120})$"
)
_COMMAND = re.compile(r"\belbencho\b(.{1,1500})")
_BLOCK = re.compile(r"\s(?:-b|--block)[ =]\"?(\d{1,9})([kKmMgG]?)i?\b")
_THREADS = re.compile(r"\s(?:-t|--threads)[ =]\"?(\d{1,6})\b")
_AVERAGE = re.compile(r"avg=(\d{1,12})")
_TIME = re.compile(
    r"(?:(\d{1,6})h)?:?(?:(\d{1,6})m(?!s))?(?:(\d{1,7}(?:\.\d{1,6})?)s)?(?:(\d{1,9})ms)?(?:(\d{1,9})us)?"
)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_MOVE_DATA = ("READ", "WRITE", "RWMIX")
_AGREEMENT = 0.03
_LONG_ENOUGH_S = 1.0
"""Times of shorter phases are too coarse to check, because they are printed in milliseconds."""


class _Phase(msgspec.Struct):
    """The block of a phase while it is read."""

    name: str
    line: int
    seconds: float
    cells: dict[str, Number] = {}
    latency_us: int | None = None


def recognises(text: str) -> bool:
    """Report whether the text has a block, or the header of the CSV."""
    return ("Throughput MiB/s" in text and "Elapsed " in text) or elbencho_csv.recognises(text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all phases that move data into one file. Raises UsageError for a throughput that is not bytes over time."""
    if elbencho_csv.recognises(text) and "Throughput MiB/s" not in text:
        return elbencho_csv.read(text)
    draft = Draft(tool="elbencho", test="elbencho", notes=["MiB is 2^20 bytes", "the data was not checked"])
    phase: _Phase | None = None
    for line in sort_by_origin(text):
        if "elbencho" in line.text and (command := _COMMAND.search(line.text)):
            _take_command(draft, command[1])
        elif found := _PHASE.match(line.text):
            _add_phase(draft, phase)
            last = found[3].split()[-1]
            seconds = _seconds(last) if found[2] == "time" else number(last, "ms", line.number).value / 1e3
            phase = _Phase(found[1], line.number, seconds)
        elif phase is not None and (found := _ROW.match(line.text)):
            _take_row(phase, found[1], found[2], line.number)
    _add_phase(draft, phase)
    draft.workload = Files(to_gpu=any(result.settings.get("crosses") for result in draft.results))
    hint = "give the output starting with the OPERATION line"
    return collect_files([draft], "elbencho's output must contain a phase that reads or writes, got none", hint)


def _take_command(draft: Draft, words: str) -> None:
    if found := _BLOCK.search(words):
        draft.parameters["size_bytes"] = int(found[1]) * _UNITS[found[2].lower()]
    if found := _THREADS.search(words):
        draft.parameters["threads"] = int(found[1])
    if "--gpuids" in words:
        draft.settings["crosses"] = "storage to GPU memory" + (" by cuFile" if "--gds" in words else "")


def _take_row(phase: _Phase, what: str, printed: str, line: int) -> None:
    if what.startswith("IO lat"):
        found = _AVERAGE.search(printed)
        phase.latency_us = int(found[1]) if found else None
        return
    phase.cells[what] = number(printed.split()[-1], what, line)


def _seconds(printed: str) -> float:
    found = _TIME.fullmatch(printed)
    if found is None:
        return 0.0
    hours, minutes, seconds, milliseconds, microseconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds + milliseconds / 1e3 + microseconds / 1e6


def _add_phase(draft: Draft, phase: _Phase | None) -> None:
    if phase is None or "Throughput MiB/s" not in phase.cells or phase.name not in _MOVE_DATA:
        return
    rate, total = phase.cells["Throughput MiB/s"], phase.cells.get("Total MiB")
    if total and phase.seconds >= _LONG_ENOUGH_S and disagree(rate.value, total.value / phase.seconds, _AGREEMENT, 1):
        raise refusal(phase.line, f"{rate.text} MiB/s is not {total.text} MiB in {phase.seconds:g} s")
    values = [bandwidth(rate, 2**20, "MiB/s")]
    values += [operations(phase.cells["IOPS"])] if "IOPS" in phase.cells else []
    if phase.latency_us:
        values.append(MeasuredValue("latency_s", phase.latency_us * 1e-6, f"{phase.latency_us} us mean"))
    draft.add(phase.line, values, {"operation": phase.name.lower()}, {"duration_s": phase.seconds})
