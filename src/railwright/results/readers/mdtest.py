"""Reader of mdtest 1.9 to 4.x: the files and folders created, looked up, read and removed per second.

    mdtest-1.9.3 was launched with 128 total task(s) on 4 node(s)
    SUMMARY rate: (of 1 iterations)
       Operation                      Max            Min           Mean        Std Dev
       File creation     :      10279.520      10279.520      10279.520          0.000

Forks of mdtest omit the colon, or the last column. The mean of the iterations becomes a result. An operation that did
not run has a rate of 0 and is skipped.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, collect_files, operations
from railwright.results.readers.pasted.log_lines import sort_by_origin
from railwright.results.readers.pasted.printed_numbers import parse_mean

_BEGIN = re.compile(r"mdtest-(\S{1,24}) was launched with (\d{1,8}) total task\(s\) on (\d{1,7}) node\(s\)")
_COUNT = re.compile(r"\d{1,8} tasks, (\d{1,15}) files")
_RATES = r"[^\S\n]{0,24}:?((?:[^\S\n]{1,24}[\d.]{1,20}){3,4})[^\S\n]*$"
_ROW = re.compile(rf"((?:File|Directory|Tree) (?:creation|stat|read|removal|rename)){_RATES}")
_CREATION = re.compile(rf"File creation{_RATES}", re.MULTILINE)


def recognises(text: str) -> bool:
    """Report whether the text has the summary or its rows. No other tool prints the rates of both."""
    return ("mdtest" in text and "SUMMARY" in text and "Std Dev" in text) or (
        "File creation" in text
        and ("File stat" in text or "File removal" in text)
        and _CREATION.search(text) is not None
    )


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every summary. Raises UsageError for a mean outside its minimum and maximum."""
    runs = [Draft(tool="mdtest", test="mdtest")]
    for line in sort_by_origin(text):
        words = line.text.strip()
        if "SUMMARY" in words and runs[-1].results:
            runs.append(Draft(tool="mdtest", test="mdtest", version=runs[-1].version))
        if begun := _BEGIN.search(words):
            if runs[-1].results:
                runs.append(Draft(tool="mdtest", test="mdtest"))
            runs[-1].version, runs[-1].ranks, runs[-1].hosts = begun[1], int(begun[2]), int(begun[3])
            runs[-1].line = line.number
        elif found := _COUNT.match(words):
            runs[-1].settings["files"] = int(found[1])
        elif row := _ROW.match(words):
            _take_row(runs[-1], row, line.number)
    return collect_files(
        runs,
        "mdtest's output must contain a rate (File creation : ...), got none",
        "give the output starting with SUMMARY",
    )


def _take_row(draft: Draft, row: re.Match[str], line: int) -> None:
    words = row[2].split()[:3]
    mean = parse_mean(words, row[1], line)
    if float(words[0]):
        draft.add(line, [operations(mean, "a second")], {"operation": row[1].lower()})
