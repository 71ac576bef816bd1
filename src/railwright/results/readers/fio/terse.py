"""Reader of fio's `--minimal`: a line of semicolon-separated values per job or group (HOWTO, Terse output, 3 to 5).

Fields 6 to 46 are reads, and the following 41 are writes: KiB, KiB/s, IOPS, milliseconds.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files, operations
from railwright.results.readers.pasted.log_lines import check_length, refusal
from railwright.results.readers.pasted.printed_numbers import disagree, number
from railwright.results.workload import Files

_LINE = re.compile(
    r"(?:^|\s)[345];(fio-[\w.-]{1,24});([^;\n]{0,128});\d{1,6};(\d{1,6});(?:[^;\n]{0,40};){40,400}", re.MULTILINE
)
_SIDE = 41
_FIRST = 5
"""The number of fields before those of reads."""
_AGREEMENT, _LONG_ENOUGH_MS = 0.02, 100


def recognises(text: str) -> bool:
    """Report whether a line has the first words and the number of fields.

    Returns False if fio printed its usual text as well, which says more.
    """
    return ";fio-" in text and "IOPS=" not in text and _LINE.search(text) is not None


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all jobs into one file. Raises UsageError for a bandwidth that is not bytes over time."""
    draft = Draft(tool="fio", test="fio", workload=Files(), notes=["KiB is 1024 bytes", "the data was not checked"])
    for line_number, line in enumerate(check_length(text).split("\n"), 1):
        if found := _LINE.search(line):
            draft.version = found[1].removeprefix("fio-")
            fields = line[found.start() :].strip().split(";")
            for side, operation in enumerate(("read", "write")):
                _add(draft, fields[_FIRST + side * _SIDE :][:4], operation, found, line_number)
    return collect_files(
        [draft],
        "the output of fio --minimal must contain a rate, got none",
        "give the whole line, starting with its version",
    )


def _add(draft: Draft, fields: list[str], operation: str, found: re.Match[str], line: int) -> None:
    if len(fields) < 4:
        return
    moved, rate, iops, milliseconds = (number(word, operation, line) for word in fields)
    if rate.value <= 0 or milliseconds.value <= 0:
        return
    about = moved.value / (milliseconds.value / 1e3)
    if milliseconds.value >= _LONG_ENOUGH_MS and disagree(rate.value, about, _AGREEMENT, 1):
        raise refusal(line, f"{rate.text} KiB/s is not {moved.text} KiB in {milliseconds.text} ms")
    settings = {"name": found[2][:64], "error": int(found[3]), "duration_s": milliseconds.value / 1e3}
    draft.add(line, [bandwidth(rate, 1024, "KiB/s"), operations(iops)], {"operation": operation}, settings)
