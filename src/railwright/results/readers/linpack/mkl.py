"""Reader of Intel's optimized LINPACK, part of MKL: one host, its threads and no MPI.

    Size   LDA    Align. Time(s)    GFlops   Residual     Residual(norm) Check
    20000  20000  4      5.401      987.5641 4.036930e-10 3.573605e-02   pass

The summary below the table repeats its means and is ignored.
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files
from railwright.results.readers.pasted.log_lines import refusal, sort_by_origin
from railwright.results.readers.pasted.printed_numbers import number, overlap
from railwright.results.records import Verification
from railwright.results.workload import Linpack

_HEAD = re.compile(r"Size\s{1,16}LDA\s{1,16}Align\.?\s{1,16}Time\(s\)\s{1,16}GFlops", re.IGNORECASE)
_ROW = re.compile(
    r"(\d{1,9})\s{1,16}\d{1,9}\s{1,16}\d{1,6}\s{1,16}(\S{1,16})\s{1,16}(\S{1,16})((?:\s{1,16}\S{1,16}){0,3})\s*"
)
_THREADS = re.compile(r"Number of threads: (\d{1,6})")
_SHORT_S = 0.05
"""Times are printed in milliseconds. Below this value the rate is more precise than the time."""


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table."""
    return "LDA" in text and "Align" in text and _HEAD.search(text) is not None


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all sizes and trials into one file. Raises UsageError for a rate that is not its size over its time."""
    draft = Draft(tool="Intel LINPACK", test="hpl", ranks=1, hosts=1, workload=Linpack(by_vendor=True))
    is_table = False
    for line in sort_by_origin(text):
        words = line.text.strip()
        if found := _THREADS.search(words):
            draft.settings["threads"] = int(found[1])
        elif _HEAD.search(words):
            is_table = True
        elif is_table and (row := _ROW.fullmatch(words)):
            _take_row(draft, row, line.number)
        elif words:
            is_table = False
    return collect_files(
        [draft],
        "the output of Intel's LINPACK must contain a row, got none",
        "give the output starting with the line 'Size LDA'",
    )


def _take_row(draft: Draft, row: re.Match[str], line: int) -> None:
    order, seconds, gflops = int(row[1]), number(row[2], "time", line), number(row[3], "GFlops", line)
    if not order or gflops.value <= 0:
        raise refusal(line, f"size and GFlops must be above 0, got size {order}, {gflops.text} GFlops")
    operations = (2 / 3 * order**3 + 2 * order**2) / 1e9
    about = (0.98 * operations / seconds.high, 1.02 * operations / max(seconds.low, 1e-9)) if seconds.high > 0 else None
    if seconds.value >= _SHORT_S and about is not None and not overlap(gflops.range(), about):
        raise refusal(line, f"{gflops.text} GFlops is not (2/3 N^3 + 2 N^2) / {seconds.text} s for N = {order}")
    check = row[4].split()[-1:]
    checked = None
    if check in (["pass"], ["fail"]):
        wrong = 0 if check == ["pass"] else 8 * order
        checked = Verification(method="LINPACK residual", bytes_checked=8 * order, bytes_wrong=wrong)
    else:
        draft.notes.append(f"line {line} does not say whether the solution was right")
    value = MeasuredValue("flop_per_s", gflops.value * 1e9, f"{gflops.text} GFlops")
    draft.add(line, [value], {"n": order}, {"duration_s": seconds.value}, checked)
