"""Reader of IOR 2.10 to 4.x: its options, and a row per pass over the files.

    nodes               : 10
    tasks               : 160
    xfersize            : 1 MiB
    aggregate filesize  : 40 GiB
    access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
    write     1767.26    1768.81    1.36        16384      1024.00    1.73       23.16      17.93      23.18      0

Versions before 3.3 print neither IOPS nor Latency. The bandwidth is the aggregate size / total, from the first open to
the last close, in MiB of 2^20 bytes (ior.c, ReduceIterResults).
"""

from __future__ import annotations

import re

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files, operations
from railwright.results.readers.pasted.log_lines import Line, refusal, sort_by_origin, split_lines
from railwright.results.readers.pasted.printed_numbers import disagree, number, parse_mean
from railwright.results.workload import Files

_VERSION = re.compile(r"IOR-(\d{1,3}[\w.+-]{1,24}): MPI Coordinated Test")
_OPTION = re.compile(r"(api|access|nodes|clients|tasks|xfersize|aggregate filesize)\s{1,24}[:=] {1,4}(\S.{0,80}?)\s*$")
_SIZE = re.compile(r"([\d.]{1,16}) (bytes|KiB|MiB|GiB|TiB)$")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_ROW = re.compile(r"(write|read)((?:\s{1,24}[\d.]{1,20}){8}(?:(?:\s{1,24}[\d.]{1,20}){2})?)\s*$")
_ROW_ALONE = re.compile(r"(?m)^\s{0,16}(?:write|read)(?:\s{1,24}[\d.]{1,20}){8,11}\s*$")
_SUMMARY = re.compile(r"(?:^|[:\s])(write|read)((?:\s{1,24}[\d.]{1,20}){9})(?=\s)(.{0,300})$")
_SUMMARY_HEAD = re.compile(r"Operation\s{1,24}Max\(MiB\)\s{1,24}Min\(MiB\)\s{1,24}Mean\(MiB\)")
_BEST = re.compile(r"Max (Write|Read):\s{1,8}([\d.]{1,20}) MiB/sec")
_COLUMNS = {
    9: ("bw", "iops", "latency", "block", "xfer", "open", "moving", "close", "total"),
    7: ("bw", "block", "xfer", "open", "moving", "close", "total"),
}
_LEAST_ROWS = 2
_AGREEMENT, _LONG_ENOUGH_S = 0.03, 0.1
"""Times of shorter passes are too coarse to check, because they have three digits."""


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table or of the summary, the last lines, or rows."""
    if ("bw(MiB/s)" in text and "wr/rd(s)" in text) or ("Max(MiB)" in text and _SUMMARY_HEAD.search(text) is not None):
        return True
    if "MiB/sec" in text and _BEST.search(text) is not None:
        return True
    return ("write " in text or "read " in text) and len(_ROW_ALONE.findall(text)) >= _LEAST_ROWS


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read all passes of each run. Raises UsageError for a bandwidth that is not size / time, or if there is no row."""
    runs: list[Draft] = []
    sizes: dict[str, int] = {}
    for line in sort_by_origin(text):
        words = line.text.strip().removeprefix("# ").strip()
        if not runs or _VERSION.search(words) or ("bw(MiB/s)" in words and runs[-1].results):
            runs.append(_begin_run(line, runs[-1] if runs else None, words))
            sizes = {} if _VERSION.search(words) else sizes
        if option := _OPTION.match(words):
            _take_option(runs[-1], option, sizes)
        elif row := _ROW.match(words):
            _take_row(runs[-1], row, line.number, sizes.get("aggregate filesize"))
    if not any(run.results for run in runs):
        runs = [_read_summary(text)]
    return collect_files(
        runs,
        "IOR's output must contain a row of its table (write, read), got none",
        "give the output starting with the line 'access'",
    )


def _read_summary(text: str) -> Draft:
    """Read the summary of a text without passes: the mean of each operation, or its best pass if there is no mean."""
    draft = Draft(tool="IOR", test="ior", workload=Files(), notes=["MiB is 2^20 bytes"])
    best: list[tuple[int, str, str]] = []
    for line in split_lines(text):
        if found := _SUMMARY.search(line.text):
            mean = parse_mean(found[2].split()[:3], "bandwidth", line.number)
            draft.add(line.number, [bandwidth(mean, 2**20, "MiB/s mean")], {"operation": found[1]})
        elif found := _BEST.search(line.text):
            best.append((line.number, found[1].lower(), found[2]))
    if not draft.results:
        draft.notes.append("only the best pass: the text does not give the spread of the passes")
        for line_number, way, rate in best:
            value = bandwidth(number(rate, "bandwidth", line_number), 2**20, "MiB/s")
            draft.add(line_number, [value], {"operation": way})
    return draft


def _begin_run(line: Line, before: Draft | None, words: str) -> Draft:
    draft = Draft(tool="IOR", test="ior", workload=Files())
    draft.notes.append("MiB is 2^20 bytes; the time runs from the first open to the last close")
    if found := _VERSION.search(words):
        draft.version, draft.line = found[1], line.number
    elif before is not None:  # a table of the same run, after other lines
        draft.version, draft.ranks, draft.hosts = before.version, before.ranks, before.hosts
        draft.parameters = dict(before.parameters)
    return draft


def _take_option(draft: Draft, option: re.Match[str], sizes: dict[str, int]) -> None:
    name, value = option[1], option[2]
    if name in ("xfersize", "aggregate filesize") and (size := _SIZE.match(value)):
        sizes[name] = round(float(size[1]) * _UNITS[size[2]])
        if name == "xfersize":
            draft.parameters["size_bytes"] = sizes[name]
    elif name == "nodes" and value.isdecimal() and len(value) <= 7:
        draft.hosts = int(value) or None
    elif name in ("tasks", "clients") and (found := re.match(r"(\d{1,8})\b", value)):
        draft.ranks = int(found[1]) or None
    elif name in ("api", "access"):
        draft.settings[name] = value


def _take_row(draft: Draft, row: re.Match[str], line: int, total_bytes: int | None) -> None:
    *values, _ = row[2].split()  # the last word is the number of the pass
    cells = {name: number(word, name, line) for name, word in zip(_COLUMNS[len(values)], values, strict=True)}
    rate, seconds = cells["bw"], cells["total"]
    if total_bytes is not None and seconds.value >= _LONG_ENOUGH_S:
        about = total_bytes / seconds.value / 2**20
        if disagree(rate.value, about, _AGREEMENT, 1):
            raise refusal(line, f"{rate.text} MiB/s is not {total_bytes} bytes in {seconds.text} s")
    found = [bandwidth(rate, 2**20, "MiB/s")]
    found += [operations(cells["iops"])] if "iops" in cells else []
    size = {} if "size_bytes" in draft.parameters else {"size_bytes": round(cells["xfer"].value * 2**10)}
    draft.add(line, found, {"operation": row[1], **size}, {"duration_s": seconds.value})
