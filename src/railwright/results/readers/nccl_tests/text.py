"""Reader of nccl-tests 2.0 to 2.19 and its RCCL fork, as text and as `-J` files (see `nccl_tests.json`).

# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22809      since 2.17
# Collective test starting: all_gather_perf                            since 2.17
# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) ... validation: 1
#  Rank  0 Group  0 Pid   4384 on   node1 device  0 [0000:06:00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time ...
        1024            16     float    none      -1    61.85    0.02    0.02      0    47.04 ...
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 8.64628
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from msgspec import field
from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import MAX_VALUES, ForeignFile, NoRows, refuse_too_many, too_many_rows
from railwright.results.readers.nccl_tests import json as nccl_tests_json
from railwright.results.readers.nccl_tests.rows import (
    OPERATION_OF,
    TYPE_BYTES,
    Row,
    Timing,
    begins_row,
    infer_columns,
    is_header,
    split_lanes,
)
from railwright.results.readers.nccl_tests.table import Table
from railwright.results.readers.nccl_tests.torn import TornRow, extract_output, find_writers
from railwright.results.readers.pasted.command_line import parse_launch_command
from railwright.results.readers.pasted.log_lines import (
    Line,
    describe_truncation,
    group_by_origin,
    last_row,
    refusal,
    split_lines,
)
from railwright.results.readers.pasted.printed_numbers import number, parse_integer

PARAMETERS = re.compile(
    r"# nThread:? +(?P<threads>\d{1,6}) nGpus:? +(?P<gpus_per_thread>\d{1,6})"
    r" minBytes:? +(?P<first_size_bytes>\d{1,19}) maxBytes:? +(?P<last_size_bytes>\d{1,19})\b(?P<rest>.{0,200})"
)
_PARAMETER = re.compile(r"([a-z][a-z ]{1,16}?): ?(\d{1,9})(?:\((\w{1,8})\))?")
_HEADER = re.compile(r"\bsize\b[^\n]{0,120}?\b(?:cpu)?time\b[^\n]{0,40}?\balgbw\s[^\n]{0,20}?\bbusbw\b")
_VERSION = re.compile(r"nccl-tests version (\S{1,32})(?: nccl-headers=\S{1,16} nccl-library=(\d{1,8}))?")
_PROGRAM = re.compile(r"\b(" + "|".join(OPERATION_OF) + r")_perf(?:_mpi)?\b")
_NAMED = re.compile(r"(?:^|\s)(?:-t|--test|--collective)[ =](" + "|".join(OPERATION_OF) + r")(?:_perf)?(?![\w-])")
"""The option that names the test in wrapper scripts, such as Google's `run_nccl_tests.sh -t all_gather`."""
RANK_LINE = re.compile(
    r"# {1,4}Rank +(\d{1,7})(?: +Group +(\d{1,7}))? +Pid +(\d{1,10}) on +(\S{1,255}) device +\d{1,4} "
    r"\[[0-9A-Fa-fx:.]{1,20}\] ?(.{0,80})"
)
_VARIABLE = re.compile(r"\b(NCCL_[A-Z0-9_]{1,60})(?:=| set by environment to | set to )([^\s\\;\"']{1,200})")
_LOGGED_RANKS = re.compile(r"NCCL INFO (?:ncclCommInit\w{1,20} )?comm \S{1,20} rank \d{1,7} nranks (\d{1,7})\b")
_PROGRAM_OPTIONS = re.compile(r"(?<=_perf)\s.*")
_GPUS_OR_THREADS = re.compile(r"\s(?:-g|--ngpus|-t|--nthreads)[ =]?(\d{1,3})\b")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values +: +(\d{1,18})\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth +: +(\S{1,24})")
_BEGINNINGS = ("nccl-tests version", "Collective test starting", "# nThread")
_PER_ITERATION = {"i_min": "iteration_min_s", "i_max": "iteration_max_s", "i_p99": "iteration_p99_s"}
_SETTINGS = {"iters": "iterations", "warmup iters": "warmup_iterations", "agg iters": "aggregated_iterations"}
_TIMES = ("time", "cputime")
_MAX_VARIABLES = 64


def recognises(text: str) -> bool:
    """Report whether the text has a header with its columns, or is a `-J` file."""
    is_table = "algbw" in text and "busbw" in text and _HEADER.search(text) is not None
    return is_table or nccl_tests_json.recognises(text)


def read(text: str, collective: str = "") -> tuple[ForeignFile, ...]:
    """Read every table. Raises UsageError for a contradictory or ambiguous table.

    `collective` is the operation of tables that do not name theirs.
    """
    if nccl_tests_json.recognises(text):
        return nccl_tests_json.read(text)
    lines = split_lines(text)
    writers = find_writers(lines)
    every = [section for stream in group_by_origin(lines) for section in _read_sections(stream, writers)]
    sections = sorted((section for section in every if section.rows), key=lambda section: section.line)
    if not sections:
        raise _no_row_error(every)
    refuse_too_many(len(sections))
    previous_end = 0
    files = []
    for section in sections:
        around, above = lines[previous_end : section.end], lines[previous_end : section.rows[0].line]
        previous_end = section.end
        for part in _split_processes(section):
            part.test = part.test or find_operation(above) or collective
            _finish(part, around)
            files.append(part.file())
    return tuple(files)


def _no_row_error(sections: Iterable[_Section]) -> UsageError:
    """Return the error for a text without rows. A printed header shows that the run did not complete its first size."""
    for section in sections:
        if section.columns and section.devices and not section.closing_line:
            hosts = len({host for host, _ in section.devices.values()})
            return NoRows(
                f"the run printed its header for {len(section.devices)} ranks on {hosts} hosts and no row: it hung or"
                " died before it completed its first size",
                hint="run it with NCCL_DEBUG=INFO and give that log, which names the network that NCCL chose",
            )
    return NoRows(
        "the output of nccl-tests must contain a row (size, count, type, ... time, algbw, busbw), got none",
        hint="give the output from the line '# nThread' to '# Avg bus bandwidth'",
    )


def _split_processes(section: _Section) -> list[_Section]:
    """Split a section into the tables of the processes that printed into one another."""
    rows, section.rows = section.rows, []
    try:
        for row in rows:
            if section.closing_line and row.line > section.closing_line:
                raise refusal(row.line, "a row after the end of its table", "give each table with its header")
            section.add_row(row)
    except UsageError:
        lanes = split_lanes(rows)
        if not lanes:
            raise
        if not section.devices and len({row.size_bytes for row in rows}) == 1:
            note = f"a size occurs {len(rows)} times without a header: each row is taken as a run of the same test"
            return [replace(section, rows=[row], results=[], notes=[note, *section.notes]) for row in rows]
        note = (
            f"{len(lanes)} tables of the same sizes are mixed: {len(lanes)} processes each ran alone, as nccl-tests"
            " built without MPI=1 does; the assignment of rows to processes is uncertain"
        )
        ranks = {rank for _, rank in section.devices}
        return [
            replace(
                section, rows=lane, results=[], notes=[note, *section.notes], average=None, out_of_bounds=None,
                ranks=len(ranks) or None, devices={}, hosts=1,
                gpus=tuple(dict.fromkeys(gpu for _, gpu in section.devices.values() if gpu)),
            )
            for lane in lanes
        ]  # fmt: skip
    return [section]


class _Section(Table, kw_only=True):
    """A table while it is read, with the output that belongs to it."""

    end: int = 0
    """The last line so far."""
    stamp: int = 0
    """The number of words that a time stamp adds to a row."""
    devices: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """The host and GPU name of each (group, rank)."""
    closing_line: int = 0
    """The line that ended it; 0 while it is open."""
    torn: TornRow | None = None
    """A row cut by NCCL's log, until its end is found."""
    placements: tuple[str, str] = ("out_of_place", "in_place")
    """The placements of the two halves of a row; MSCCL++ prints them the other way round."""
    first_halves: int = 0
    """The number of rows without their in-place half."""


def _read_sections(stream: list[Line], writers: frozenset[str]) -> list[_Section]:
    last_line, row_ends = last_row(stream), _rows_before_runs(stream)
    sections = [_Section(last_line=last_line, row_ends=row_ends)]
    for line in stream:
        text = line.text.strip()
        if text.startswith("#") or (text.startswith("size") and is_header(text)):
            begins = _begins(text, sections[-1])
            if begins or _OUT_OF_BOUNDS.match(text) or _AVERAGE.match(text):
                _end_torn(sections[-1], run_ends=begins)
            if begins:
                sections.append(_Section(last_line=last_line, row_ends=row_ends, line=line.number))
            _read_comment(sections[-1], text, line.number)
        elif text[:1].isdigit() and (sections[-1].columns or _take_columns(sections[-1], text)):
            output, is_cut = extract_output(text, writers)
            if output:
                _read_output(sections[-1], output.split(), line.number, is_cut=is_cut)
    _end_torn(sections[-1], run_ends=True)
    return sections


def _rows_before_runs(stream: list[Line]) -> frozenset[int]:
    """Return the numbers of the lines with the last row of a run that ended without a summary before the next run."""
    found, last = set(), 0
    for line in stream:
        text = line.text.strip()
        if text[:1].isdigit():
            last = line.number
        elif _OUT_OF_BOUNDS.match(text) or _AVERAGE.match(text):
            last = 0
        elif last and (is_header(text) or (text.startswith("#") and any(words in text for words in _BEGINNINGS))):
            found.add(last)
    return frozenset(found)


def _read_output(section: _Section, words: list[str], line: int, *, is_cut: bool) -> None:
    """Read a row, or the part of a row that NCCL's log cut off."""
    if begins_row(words):
        _end_torn(section)
    if section.torn is not None:
        if section.torn.add(words, is_cut=is_cut, line=line):
            _read_row(section, section.torn.words, section.torn.line)
            section.torn = None
        return
    starts = tuple(place for place, column in enumerate(section.columns) if column in _TIMES)
    if is_cut and begins_row(words) and len(words) in starts:
        section.torn = TornRow(line, words, starts, len(section.columns), section.stamp)
    else:
        _read_row(section, words, line)


def _end_torn(section: _Section, *, run_ends: bool = False) -> None:
    """End a torn row: keep its first half if exactly that half was read.

    Any other part becomes a truncation note at the end of the run. Raises UsageError elsewhere.
    """
    torn, section.torn = section.torn, None
    if torn is None:
        return
    if torn.is_first_half:
        section.first_halves += 1
        _add_row(section, section.columns[: torn.starts[1]], torn.words, torn.line)
    elif run_ends:
        section.notes.append(describe_truncation(torn.line, len(torn.words), torn.width))
    else:
        raise refusal(torn.line, f"a row must have {torn.width} columns, got {len(torn.words)}")


def _begins(text: str, section: _Section) -> bool:
    """Report whether a comment line begins the next run."""
    if "nccl-tests version" in text:
        return True
    if "Collective test starting" in text:
        return bool(section.columns or section.closing_line)
    if text.startswith("# nThread"):
        return bool(section.columns or section.devices or "threads" in section.settings)
    return bool(section.rows) and is_header(text)


def _take_columns(section: _Section, text: str) -> bool:
    """Infer the columns of a table without a header from a row. Returns False if the row does not reveal them."""
    if section.devices or section.closing_line:
        return False
    section.columns = infer_columns(text.split())
    if section.columns:
        section.wrong_column = "error" if "error" in section.columns else "#wrong"
        section.notes.append("the table has no header: its columns are inferred from the number of words in a row")
    return bool(section.columns)


def _read_comment(section: _Section, text: str, line: int) -> None:
    if not section.closing_line:
        section.end = line
    if is_header(text):
        columns = text.lstrip("# ").split()
        section.columns = [column for column in columns if column != "timestamp"]
        section.stamp = 2 if "timestamp" in columns else 0
        section.line = section.line or line
        section.wrong_column = "error" if "error" in columns else "#wrong"
        section.cpu_time = "cputime" in columns
    elif 0 <= text.find("in-place") < text.find("out-of-place"):
        section.placements = ("in_place", "out_of_place")
    elif found := _VERSION.search(text):
        section.version = found[1]
        if found[2]:
            section.settings["nccl_version_code"] = int(found[2])
    elif "Collective test starting" in text:
        program = _PROGRAM.search(text)
        section.test = OPERATION_OF[program[1]] if program else ""
    elif found := PARAMETERS.match(text):
        _parameters(section, found)
    elif found := RANK_LINE.match(text):
        section.devices[(int(found[2] or 0), int(found[1]))] = (found[4], found[5].strip())
    elif found := _OUT_OF_BOUNDS.match(text):
        section.out_of_bounds, section.closing_line = int(found[1]), section.closing_line or line
    elif found := _AVERAGE.match(text):
        section.average = number(found[1], "average bus bandwidth", line)
        section.closing_line = section.closing_line or line


def _parameters(section: _Section, found: re.Match[str]) -> None:
    section.settings |= {name: int(value) for name, value in found.groupdict().items() if name != "rest"}
    for name, value, unit in _PARAMETER.findall(found["rest"]):
        name = name.strip().replace("warmupiters", "warmup iters")
        if name == "step":
            section.settings["step_factor" if unit == "factor" else "step_bytes"] = int(value)
        elif name in (*_SETTINGS, "validation", "graph"):
            section.settings[_SETTINGS.get(name, name)] = int(value)


def _read_row(section: _Section, words: list[str], line: int) -> None:
    """Read a row. Other lines that begin with a digit are noise in the log and are ignored."""
    if "count" not in section.columns or "type" not in section.columns:
        if len(words) in _widths(section.columns) and all(word[:1].isdigit() or word == "N/A" for word in words):
            _add_row(section, section.columns, words, line)
        return
    if 2 * len(section.rows) >= MAX_VALUES:
        raise too_many_rows(line)
    if len(words) < 3 or not words[1].isdecimal() or words[2] not in TYPE_BYTES:
        if len(words) >= 6 and words[1].isdecimal() and not section.closing_line:
            raise refusal(line, f"type must be an NCCL type, got {words[2][:40]!r}")
        if (line == section.last_line or line in section.row_ends) and not section.closing_line:
            # A time stamp is a single column of the header.
            section.notes.append(describe_truncation(line, len(words), len(section.columns) + section.stamp // 2))
        return
    if len(words) == len(section.columns) + section.stamp:
        words = words[: len(section.columns)]
    elif len(words) == len(section.columns) - 1 and section.columns[3:4] == ["redop"] and words[3][:1].isdigit():
        words = [*words[:3], "", *words[3:]]  # old tests without a reduction leave that column empty
    if section.cells(words, line):
        _add_row(section, section.columns, words, line)


def _widths(columns: list[str]) -> tuple[int, ...]:
    """Return the numbers of words of a whole row, and of one with its first half only."""
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    return (len(columns), *starts[1:2])


def _add_row(section: _Section, columns: list[str], words: list[str], line: int) -> None:
    if not section.closing_line:
        section.end = line
    first = columns.index("cputime" if section.cpu_time else "time")
    head = dict(zip(columns[:first], words, strict=False))
    root = head.get("root", "-1")
    section.rows.append(
        Row(
            line,
            parse_integer(head["size"].replace("_", "").replace(",", ""), "size", line),
            parse_integer(head["count"], "count", line) if {"count", "type"} <= head.keys() else None,
            head.get("type", ""),
            head.get("redop", ""),
            -1 if root == "-1" else parse_integer(root, "root", line),
            _parse_timings(columns[first:], words[first:], line, section.placements),
        )
    )


def _parse_timings(columns: list[str], words: list[str], line: int, placements: tuple[str, str]) -> tuple[Timing, ...]:
    columns = columns[: len(words)]
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    if len(starts) > 2:
        raise refusal(line, f"a row must have one time out of place and one in place, got {len(starts)} time columns")
    timings = []
    for placement, start, end in zip(placements, starts, [*starts[1:], len(columns)], strict=False):
        cells = dict(zip(columns[start:end], words[start:end], strict=True))
        if not {"algbw", "busbw"} <= cells.keys():
            raise refusal(line, "the header must have algbw and busbw for each time")
        wrong = cells.get("#wrong", cells.get("error", "N/A"))
        extras = {_PER_ITERATION[k]: number(v, k, line).value * 1e-6 for k, v in cells.items() if k in _PER_ITERATION}
        timings.append(
            Timing(
                placement,
                number(words[start], "time", line),
                number(cells["algbw"], "algbw", line),
                number(cells["busbw"], "busbw", line),
                None if wrong == "N/A" else number(wrong, "#wrong", line).value,
                extras,
            )
        )
    return tuple(timings)


def _finish(section: _Section, around: list[Line]) -> None:
    """Convert the rows to results. `around` holds the lines since the previous table."""
    section.environment = _environment(around)
    logged_ranks = _logged_ranks(around)
    _settle_devices(section, logged_ranks)
    if not section.closing_line:
        section.notes.append("the table has no end ('# Avg bus bandwidth'): it was truncated or the run died")
    if section.first_halves:
        halves = section.first_halves
        section.notes.append(f"NCCL's log cut the rows apart: the text lacks the in-place half of {halves}")
    section.finish(logged_ranks, _launched_ranks(around))


def find_operation(lines: Iterable[Line]) -> str:
    """Return the operation of the last program that the lines name."""
    names = [
        name
        for line in lines
        for known, word in ((_PROGRAM, "_perf"), (_NAMED, "-t"))
        if word in line.text
        for name in known.findall(line.text[:1000])
    ]
    return OPERATION_OF[names[-1]] if names else ""


def _environment(lines: Iterable[Line]) -> dict[str, str]:
    """Return the NCCL variables that the lines set. The last value counts."""
    found = [pair for line in lines if "NCCL_" in line.text for pair in _VARIABLE.findall(line.text)]
    seen = {name: value.rstrip(".,") for name, value in found}
    return dict(list(seen.items())[:_MAX_VARIABLES])


def _logged_ranks(lines: Iterable[Line]) -> int | None:
    """Return the ranks of NCCL's communicators if all have the same number."""
    found = [_LOGGED_RANKS.search(line.text) for line in lines if " nranks " in line.text]
    counts = {int(one[1]) for one in found if one}
    return counts.pop() if len(counts) == 1 else None


def _launched_ranks(lines: Iterable[Line]) -> int | None:
    """Return the ranks that the launcher's last command starts: its processes times the GPUs of each."""
    texts = [line.text[:1000] for line in lines if "NCCL INFO" not in line.text]
    processes = parse_launch_command([_PROGRAM_OPTIONS.sub("", text) for text in texts]).ranks
    options = next((found[0] for text in reversed(texts) if (found := _PROGRAM_OPTIONS.search(text))), "")
    return processes and processes * prod(int(count) for count in _GPUS_OR_THREADS.findall(options))


def _settle_devices(section: _Section, logged_ranks: int | None) -> None:
    """Take ranks, hosts and GPU names from the device lines, and the ranks from NCCL's log if lines are missing."""
    if not section.devices:
        return
    groups: dict[int, set[int]] = {}
    for group, rank in section.devices:
        groups.setdefault(group, set()).add(rank)
    ranks = max(groups.values(), key=len)
    section.gpus = tuple(dict.fromkeys(gpu for _, gpu in section.devices.values() if gpu))
    section.ranks = max(max(ranks) + 1, logged_ranks or 0)
    if len(groups) > 1:
        section.ranks = len(ranks)
        section.notes.append(f"{len(groups)} groups ran at once; this table covers one of them")
    elif ranks != set(range(section.ranks)):
        section.notes.append(
            f"only {len(ranks)} of {section.ranks} device lines are in the text: the number of hosts is unknown"
        )
        if logged_ranks is None:
            section.named_ranks, section.ranks = section.ranks, None
    else:
        section.hosts = len({host for host, _ in section.devices.values()})
