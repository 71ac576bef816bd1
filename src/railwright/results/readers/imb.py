"""Reader of the Intel MPI Benchmarks 2.3 to 2021: a table per benchmark and number of processes.

    # Benchmarking PingPong
    # #processes = 2
           #bytes #repetitions      t[usec]   Mbytes/sec
                1         1000         1.77         0.54

Times are per operation. With several processes the latency is t_max, the time until the last one is done. A rate is
messages x bytes / time: one message for PingPong, two for Sendrecv, four for Exchange (user guide, "Classification of
benchmarks"). Mbytes are 2^20 bytes before 2018 and 10^6 since; the rows show which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    bandwidth,
    collect_files,
    latency,
    mpi_collective,
)
from railwright.results.readers.pasted.command_line import parse_environment, parse_launch_command
from railwright.results.readers.pasted.log_lines import Line, last_row, parse_columns, refusal, split_runs
from railwright.results.readers.pasted.printed_numbers import (
    Number,
    Range,
    number,
    overlap,
    parse_integer,
    refuse_outside,
)
from railwright.results.workload import Message, Workload
from railwright.topology.devices import Scalar

_VERSION = re.compile(r"Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(\d[\w. ]{0,20}?),")
_BENCHMARK = re.compile(
    r"Benchmarking (?:Multi-)?(\w{2,40})\s*$|^\W{0,8}(PingPong|PingPing|Sendrecv|Exchange|Uniband|Biband|Bcast|Barrier"
    r"|All(?:reduce|gatherv?|toallv?)|Reduce(?:_scatter)?|Gatherv?|Scatterv?)\W{0,4}$"
)
"""The line that names a benchmark: IMB's own, or the name alone, which people write above rows that they cut out."""
_PROCESSES = re.compile(r"#processes = (\d{1,7})\b")
_GROUPS = re.compile(r"\(\s?(\d{1,7}) groups of (\d{1,7}) processes each running simultaneous")
_COLUMN = re.compile(r"#bytes|#repetitions|t(?:_min|_max|_avg)?\[usec\]|Mbytes/sec|Msg/sec|defects")
_ROW = re.compile(r"\d{1,19}(?:\s{1,40}\d{1,19}(?:\.\d{1,9})?){2,6}")
_REMARK = re.compile(r"(?<=\d)\s{1,40}[^\d\s.+-].*$")
"""The words that people write behind a row."""
_MESSAGES = {"PingPong": 1, "PingPing": 1, "Sendrecv": 2, "Exchange": 4}
"""The number of messages that the rate counts per operation."""
_BETWEEN_TWO = ("PingPong", "PingPing", "PingPongSpecificSource", "PingPingSpecificSource", "PingPongAnySource",
           "PingPingAnySource")  # fmt: skip
_BOTH_WAYS = ("Biband", "Sendrecv", "Exchange")
_MEGABYTES = (1e6, 2.0**20)
_ABOVE = 60
"""The number of lines above a table that are searched for its command."""


def recognises(text: str) -> bool:
    """Report whether the text has the header of a table."""
    return "#repetitions" in text and ("[usec]" in text or "Mbytes/sec" in text)


def _workload(table: Draft) -> Workload | None:
    """Return the workload of a message between two processes, or of a collective."""
    one_at_a_time, both_ways = table.test not in ("Uniband", "Biband"), table.test in _BOTH_WAYS
    message = Message(one_at_a_time=one_at_a_time, both_ways=both_ways, pages="small") if table.ranks == 2 else None
    return mpi_collective(table.test.lower()) or message


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table. Raises UsageError for a rate that is not the bytes over the time, or if there is no row."""
    tables: list[Draft] = []
    above: list[str] = []
    for part in split_runs(text, lambda line: _BENCHMARK.search(line.text) is not None):
        tables += _read_tables(part, above)
        above += [line.text for line in part]
    version = next((found[1] for line in above if (found := _VERSION.search(line))), "")
    for table in tables:
        table.version = version
    return collect_files(tables, "the output of the Intel MPI Benchmarks must contain a row of a table, got none",
                    "give the output from '# Benchmarking ...' to the last size")  # fmt: skip


class _Row(NamedTuple):
    line: int
    size: int | None
    repetitions: int
    numbers: dict[str, Number]


def _read_tables(part: list[Line], above: list[str]) -> Iterator[Draft]:
    """Yield a table per benchmark and number of processes."""
    named = _BENCHMARK.search(part[0].text)
    command = parse_launch_command(above[-_ABOVE:])
    table, rows, ranks = Draft(tool="IMB"), list[_Row](), command.ranks
    for line in part:
        text = line.text.strip()
        if found := _PROCESSES.search(text):
            ranks = int(found[1])
        elif found := _GROUPS.search(text):
            ranks = int(found[1]) * int(found[2])
        elif text.startswith(("#bytes", "#repetitions")):
            yield _add_rows(table, rows)
            columns = parse_columns(text, _COLUMN, line.number, min_columns=2)
            test = named[1] or named[2] if named else _guess_test(columns)
            table = Draft(tool="IMB", test=test, columns=columns, ranks=ranks)
            table.ranks = table.ranks or (2 if "t[usec]" in columns else None)  # only single transfers have this column
            table.hosts = command.hosts if command.ranks == table.ranks else None
            table.environment, table.last_line = parse_environment(above[-_ABOVE:]), last_row(part)
            rows = []
        elif (
            table.columns
            and _ROW.fullmatch(numbers := _REMARK.sub("", text))
            and (row := _parse_row(table, numbers.split(), line.number))
        ):
            rows.append(row)
    yield _add_rows(table, rows)


def _guess_test(columns: list[str]) -> str:
    """Guess the test of a table without a name from its columns."""
    if "t[usec]" in columns:
        return "PingPong"
    return "Sendrecv" if "Mbytes/sec" in columns else "collective"


def _parse_row(table: Draft, words: list[str], line: int) -> _Row | None:
    cells = table.cells(words, line)
    if not cells:
        return None
    repetitions = parse_integer(cells.pop("#repetitions"), "repetitions", line)
    size = parse_integer(cells.pop("#bytes"), "size", line) if "#bytes" in cells else None
    if size is not None:
        table.rise_to(size, line)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    minimum, average, maximum = (numbers.get(f"t_{kind}[usec]") for kind in ("min", "avg", "max"))
    if minimum and average and maximum:
        refuse_outside("average", average, minimum, maximum, line, " us")
    return _Row(line, size, repetitions, numbers)


def _add_rows(table: Draft, rows: list[_Row]) -> Draft:
    """Add the rows to the table, and return it."""
    megabyte = _megabyte(table.test, rows)
    for row in rows:
        numbers, values = row.numbers, []
        seconds, rate = _time(numbers), numbers.get("Mbytes/sec")
        if rate is not None and row.size:
            values.append(bandwidth(rate, megabyte, "Mbytes/sec"))
        if seconds is not None:
            values.append(latency(seconds, "usec"))
        extras: dict[str, Scalar] = {"iterations": row.repetitions}
        extras |= {f"{kind}_rank_s": numbers[f"t_{kind}[usec]"].value * 1e-6
                   for kind in ("min", "avg") if f"t_{kind}[usec]" in numbers}  # fmt: skip
        table.add(row.line, values, {} if row.size is None else {"size_bytes": row.size}, extras)
    table.notes = [*_notes(table, rows, megabyte), *table.notes]
    table.workload = _workload(table)
    return table


def _time(numbers: dict[str, Number]) -> Number | None:
    return numbers.get("t_max[usec]", numbers.get("t[usec]"))


def _megabyte(test: str, rows: list[_Row]) -> float:
    """Return the bytes per Mbyte in a table. Raises UsageError for a rate that contradicts its size and time."""
    left: tuple[float, ...] = _MEGABYTES
    for row in rows:
        rate, size = row.numbers.get("Mbytes/sec"), row.size
        if rate is None or not size or not (possible := list(_rates(test, row.numbers, size))):
            continue
        fitting = tuple(unit for unit in left if any(overlap(rate.range(unit), one) for one in possible))
        if not fitting:
            raise refusal(row.line, f"{rate.text} Mbytes/sec is not {size} bytes in the time of the row")
        left = fitting
    return left[0]


def _rates(test: str, numbers: dict[str, Number], size: int) -> Iterator[Range]:
    """Derive the rate in bytes/s from the other columns of a row."""
    seconds, messages = _time(numbers), numbers.get("Msg/sec")
    if seconds is None:
        if messages is not None:
            yield messages.range(size)
        return
    low, high = seconds.range(1e-6)
    for count in {_MESSAGES[test]} if test in _MESSAGES else set(_MESSAGES.values()):
        yield count * size / high, count * size / low if low else inf


def _notes(table: Draft, rows: list[_Row], megabyte: float) -> Iterator[str]:
    if any("Mbytes/sec" in row.numbers for row in rows):
        yield f"the rows show that a Mbyte is {'10^6' if megabyte == _MEGABYTES[0] else '2^20'} bytes"
    if table.test in _BETWEEN_TWO:
        yield "one message at a time: every rate includes the latency"
    if table.ranks is None:
        yield "the text does not give the number of processes"
    wrong = [row for row in rows if (defects := row.numbers.get("defects")) and defects.value]
    if wrong:
        yield f"line {wrong[0].line}: the column defects reports wrong data"
