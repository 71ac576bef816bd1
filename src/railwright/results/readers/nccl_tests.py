"""What nccl-tests prints: text of 2.0 to 2.19 and of its RCCL fork, and `-J` files (see `nccl_tests_json`).

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
from dataclasses import dataclass, field

from railwright.errors import UsageError
from railwright.results.readers import nccl_tests_json
from railwright.results.readers.log_lines import Line, by_origin, cut_short, lines_of, number, refusal, whole
from railwright.results.readers.model import ForeignFile
from railwright.results.readers.nccl_table import (
    OPERATION_OF,
    TYPE_BYTES,
    Row,
    Table,
    Timing,
    add_row,
    check_rows,
    closing_notes,
    results_of,
    settle_operation,
    settle_ranks,
)
from railwright.results.readers.nccl_tests_torn import TornRow, begins_row, output_of, writers_of

NAME = "nccl-tests (columns algbw and busbw)"

_PARAMETERS = re.compile(
    r"# nThread:? +(\d{1,6}) nGpus:? +(\d{1,6}) minBytes:? +(\d{1,19}) maxBytes:? +(\d{1,19})\b(.{0,200})"
)
_PARAMETER = re.compile(r"([a-z][a-z ]{1,16}?): ?(\d{1,9})(?:\((\w{1,8})\))?")
_VERSION = re.compile(r"nccl-tests version (\S{1,32})(?: nccl-headers=\S{1,16} nccl-library=(\d{1,8}))?")
_PROGRAM = re.compile(r"\b(" + "|".join(OPERATION_OF) + r")_perf(?:_mpi)?\b")
_RANK = re.compile(
    r"# {1,4}Rank +(\d{1,7})(?: +Group +(\d{1,7}))? +Pid +(\d{1,10}) on +(\S{1,255}) device +\d{1,4} "
    r"\[[0-9A-Fa-fx:.]{1,20}\] ?(.{0,80})"
)
_VARIABLE = re.compile(r"\b(NCCL_[A-Z0-9_]{1,60})(?:=| set by environment to )([^\s\\;\"']{1,200})")
_LOGGED_RANKS = re.compile(r"NCCL INFO (?:ncclCommInit\w{1,20} )?comm \S{1,20} rank \d{1,7} nranks (\d{1,7})\b")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values +: +(\d{1,18})\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth +: +(\S{1,24})")
_PER_ITERATION = {"i_min": "iteration_min_s", "i_max": "iteration_max_s", "i_p99": "iteration_p99_s"}
_TIMES = ("time", "cputime")
_MAX_VARIABLES = 64


def recognises(text: str) -> bool:
    """Text with both bandwidth columns, or a `-J` file."""
    return ("algbw" in text and "busbw" in text) or nccl_tests_json.recognises(text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Every table. Raises UsageError for one that contradicts itself or cannot be told from another."""
    if nccl_tests_json.recognises(text):
        return nccl_tests_json.read(text)
    lines = lines_of(text)
    writers = writers_of(lines)
    sections = [section for stream in by_origin(lines) for section in _sections(stream, writers) if section.table.rows]
    if not sections:
        raise UsageError(
            "no row of an nccl-tests table was found (size, count, type, ... time, algbw, busbw)",
            hint="give the output from the line '# nThread' to '# Avg bus bandwidth'",
        )
    context = _Context(lines)
    sections.sort(key=lambda section: section.first_line)
    return tuple(
        _finished(section, context, sections[place - 1].last_line if place else 0)
        for place, section in enumerate(sections)
    )


@dataclass
class _Section:
    """A table while it is read, with what was printed for it."""

    table: Table = field(default_factory=Table)
    columns: list[str] = field(default_factory=list)
    first_line: int = 0
    last_line: int = 0
    devices: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """(group, rank) to host and GPU name."""
    closed: bool = False
    torn: TornRow | None = None
    """A row that NCCL's log cut, while its end is awaited."""
    first_halves: int = 0
    """Rows without their in-place half."""


class _Context:
    """What stands anywhere around the tables: programs, variables and NCCL's own log."""

    def __init__(self, lines: list[Line]) -> None:
        self.programs: list[tuple[int, str]] = []
        self.variables: list[tuple[int, str, str]] = []
        self.ranks: list[tuple[int, int]] = []
        for line in lines:
            if "_perf" in line.text:
                self.programs += [(line.number, found) for found in _PROGRAM.findall(line.text[:1000])]
            if "NCCL_" in line.text:
                self.variables += [(line.number, name, value) for name, value in _VARIABLE.findall(line.text)]
            if " nranks " in line.text and (found := _LOGGED_RANKS.search(line.text)):
                self.ranks.append((line.number, int(found.group(1))))

    def program(self, first: int, last: int) -> str:
        """The last program named between two lines."""
        names = [name for at, name in self.programs if first <= at <= last]
        return OPERATION_OF[names[-1]] if names else ""

    def environment(self, first: int, last: int) -> dict[str, str]:
        """The NCCL variables named between two lines; the last value counts."""
        seen = {name: value.rstrip(".,") for at, name, value in self.variables if first <= at <= last}
        return dict(list(seen.items())[:_MAX_VARIABLES])

    def logged_ranks(self, first: int, last: int) -> int | None:
        """The ranks of NCCL's communicators between two lines, when they are all the same."""
        counts = {count for at, count in self.ranks if first <= at <= last}
        return counts.pop() if len(counts) == 1 else None


def _sections(stream: list[Line], writers: frozenset[str]) -> list[_Section]:
    sections = [_Section()]
    last_number = stream[-1].number if stream else 0
    for line in stream:
        text = line.text.strip()
        if text.startswith("#"):
            begins = _begins(text, sections[-1])
            if begins or _OUT_OF_BOUNDS.match(text) or _AVERAGE.match(text):
                _end_torn(sections[-1])
            if begins:
                sections.append(_Section(first_line=line.number))
            _comment(sections[-1], text, line.number)
        elif text[:1].isdigit() and sections[-1].columns:
            output = output_of(text, writers)
            if output.text:
                _output(sections[-1], output.text.split(), output.is_cut, line.number, last_number)
    _end_torn(sections[-1], text_ends=True)
    return sections


def _output(section: _Section, tokens: list[str], is_cut: bool, line: int, last_number: int) -> None:
    """A row, or a part of one that NCCL's log cut off."""
    if begins_row(tokens):
        _end_torn(section)
    if section.torn is not None:
        section.torn.add(tokens, is_cut=is_cut, line=line)
        if section.torn.whole:
            _row(section, section.torn.tokens, section.torn.line, last_number)
            section.torn = None
        return
    columns, stamp = _columns(section)
    starts = tuple(place for place, column in enumerate(columns) if column in _TIMES)
    if is_cut and begins_row(tokens) and len(tokens) in starts:
        section.torn = TornRow(line, tokens, starts, len(columns), stamp)
        return
    _row(section, tokens, line, last_number)


def _end_torn(section: _Section, *, text_ends: bool = False) -> None:
    """What there is of a row that does not go on. Its first half is sure: only the second ends a row."""
    torn, section.torn = section.torn, None
    if torn is None:
        return
    if torn.is_first_half:
        section.first_halves += 1
        _add_row(section, _columns(section)[0][: torn.starts[1]], torn.tokens, torn.line)
    elif text_ends:
        section.table.notes.append(cut_short(torn.line, len(torn.tokens), torn.width))
    else:
        raise refusal(torn.line, f"{len(torn.tokens)} columns where the header has {torn.width}")


def _begins(text: str, section: _Section) -> bool:
    """Whether a comment belongs to the next run."""
    if "nccl-tests version" in text:
        return True
    if "Collective test starting" in text:
        return bool(section.columns or section.closed)
    if text.startswith("# nThread"):
        return bool(section.columns or section.devices or "threads" in section.table.settings)
    return bool(section.table.rows) and _is_header(text)


def _is_header(text: str) -> bool:
    columns = text.lstrip("# ").split()
    return columns[:3] == ["size", "count", "type"] and "algbw" in columns and "busbw" in columns


def _comment(section: _Section, text: str, line: int) -> None:
    table = section.table
    if not section.closed:
        section.last_line = line
    if _is_header(text):
        section.columns = text.lstrip("# ").split()
        section.first_line = section.first_line or line
        table.wrong_column = "error" if "error" in section.columns else "#wrong"
        table.cpu_time = "cputime" in section.columns
    elif found := _VERSION.search(text):
        table.version = found.group(1)
        if found.group(2):
            table.settings["nccl_version_code"] = int(found.group(2))
    elif "Collective test starting" in text:
        program = _PROGRAM.search(text)
        table.operation = OPERATION_OF[program.group(1)] if program else ""
    elif found := _PARAMETERS.match(text):
        _parameters(table, found)
    elif found := _RANK.match(text):
        section.devices[(int(found.group(2) or 0), int(found.group(1)))] = (found.group(4), found.group(5).strip())
    elif found := _OUT_OF_BOUNDS.match(text):
        table.out_of_bounds, section.closed = int(found.group(1)), True
    elif found := _AVERAGE.match(text):
        table.average, section.closed = number(found.group(1), "average bus bandwidth", line), True


def _parameters(table: Table, found: re.Match[str]) -> None:
    names = {"iters": "iterations", "warmup iters": "warmup_iterations", "agg iters": "aggregated_iterations"}
    table.settings |= {
        "threads": int(found.group(1)),
        "gpus_per_thread": int(found.group(2)),
        "first_size_bytes": int(found.group(3)),
        "last_size_bytes": int(found.group(4)),
    }
    for name, value, unit in _PARAMETER.findall(found.group(5)):
        name = name.strip().replace("warmupiters", "warmup iters")
        if name == "step":
            table.settings["step_factor" if unit == "factor" else "step_bytes"] = int(value)
        elif name in (*names, "validation", "graph"):
            table.settings[names.get(name, name)] = int(value)


def _row(section: _Section, tokens: list[str], line: int, last_number: int) -> None:
    """Reads one row; other lines that begin with a digit are log noise and are passed over."""
    if len(tokens) < 3 or not tokens[1].isdigit() or tokens[2] not in TYPE_BYTES:
        if len(tokens) >= 6 and tokens[1].isdigit() and not section.closed:
            raise refusal(line, f"type {tokens[2][:40]!r} is not one of NCCL's")
        if line == last_number and not section.closed:
            section.table.notes.append(cut_short(line, len(tokens), len(section.columns)))
        return
    if section.closed:
        raise refusal(line, "a row after the end of its table", "give each table with its header")
    columns, stamp = _columns(section)
    if len(tokens) not in (len(columns), len(columns) + stamp):
        if line == last_number and len(tokens) < len(columns):
            section.table.notes.append(cut_short(line, len(tokens), len(columns)))
            return
        raise refusal(line, f"{len(tokens)} columns where the header has {len(columns)}")
    _add_row(section, columns, tokens, line)


def _columns(section: _Section) -> tuple[list[str], int]:
    """The columns of one word each, and how many words a time stamp adds."""
    columns = [column for column in section.columns if column != "timestamp"]
    return columns, 2 if len(columns) < len(section.columns) else 0


def _add_row(section: _Section, columns: list[str], tokens: list[str], line: int) -> None:
    section.last_line = line
    first = columns.index("cputime" if section.table.cpu_time else "time")
    head = dict(zip(columns[:first], tokens, strict=False))
    timings = _timings(columns[first:], tokens[first : len(columns)], line)
    root = head.get("root", "-1")
    row = Row(
        line,
        whole(head["size"], "size", line),
        whole(head["count"], "count", line),
        head["type"],
        head.get("redop", ""),
        -1 if root == "-1" else whole(root, "root", line),
        timings,
    )
    add_row(section.table, row)


def _timings(columns: list[str], tokens: list[str], line: int) -> tuple[Timing, ...]:
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    if len(starts) > 2:
        raise refusal(line, f"{len(starts)} time columns: a row has one out of place and one in place")
    timings = []
    for placement, start, end in zip(("out_of_place", "in_place"), starts, [*starts[1:], len(columns)], strict=False):
        cells = dict(zip(columns[start:end], tokens[start:end], strict=True))
        wrong = cells.get("#wrong", cells.get("error", "N/A"))
        extras = {_PER_ITERATION[k]: number(v, k, line).value * 1e-6 for k, v in cells.items() if k in _PER_ITERATION}
        timings.append(
            Timing(
                placement,
                number(tokens[start], "time", line),
                number(cells["algbw"], "algbw", line),
                number(cells["busbw"], "busbw", line),
                None if wrong == "N/A" else number(wrong, "#wrong", line).value,
                extras,
            )
        )
    return tuple(timings)


def _finished(section: _Section, context: _Context, previous_end: int) -> ForeignFile:
    table = section.table
    end = section.last_line
    table.operation = table.operation or context.program(previous_end + 1, table.rows[0].line)
    logged_ranks = context.logged_ranks(previous_end + 1, end)
    _settle_devices(section, logged_ranks)
    if not section.closed:
        table.notes.append("the table has no end ('# Avg bus bandwidth'): it was cut off or the run died")
    if section.first_halves:
        table.notes.append(
            f"NCCL's log cut the rows apart, and of {section.first_halves} the in-place half is not in the text"
        )
    settle_operation(table)
    settle_ranks(table, logged_ranks)
    check_rows(table)
    table.notes.extend(closing_notes(table))
    return ForeignFile(
        tool="nccl-tests",
        version=table.version,
        test=table.operation,
        ranks=table.ranks,
        hosts=table.hosts,
        gpus=table.gpus,
        environment=context.environment(previous_end + 1, end),
        results=results_of(table),
        notes=tuple(table.notes),
    )


def _settle_devices(section: _Section, logged_ranks: int | None) -> None:
    """Ranks, hosts and GPU names from the device lines; of a text that was cut, the ranks from NCCL's log."""
    table = section.table
    if not section.devices:
        return
    groups: dict[int, set[int]] = {}
    for group, rank in section.devices:
        groups.setdefault(group, set()).add(rank)
    ranks = max(groups.values(), key=len)
    table.gpus = tuple(dict.fromkeys(gpu for _, gpu in section.devices.values() if gpu))
    if len(groups) > 1:
        table.notes.append(f"{len(groups)} groups ran at once; this table is of one of them")
        table.ranks = len(ranks)
        return
    least = max(max(ranks) + 1, logged_ranks or 0)
    if ranks != set(range(least)):
        table.notes.append(f"{len(ranks)} of {least} device lines are there: the number of hosts is unknown")
        table.ranks = least
        return
    table.ranks = len(ranks)
    table.hosts = len({host for host, _ in section.devices.values()})
