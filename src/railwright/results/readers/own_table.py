"""Reader of a script's own table of sizes and rates, whose columns or cells name the unit.

    | payload |    busbw   |    algbw   |
    |    1MiB |  15.02GBps |   7.75GBps |

    Size (Bytes)   Duration    Throughput (Gbps)   BusBW (Gbps)
    1048576        120.5 us    69.60               130.50

    Size (B):   8, Time (s): 0.000014462, Bandwidth (GB/s): 0.000515191

The ratio of busbw to algbw is 2(n-1)/n for an all_reduce and (n-1)/n for the collectives that are divided, which gives
the number of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import Line, split_lines
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap
from railwright.results.workload import Collective, Unlimited, Workload

_UNIT_WORDS = r"(?:[KMGT]i?(?:B/s(?:ec)?|Bps|bps|bit/s|bits/s(?:ec)?|b/s(?:ec)?))"
_UNIT = re.compile(_UNIT_WORDS)
_RATE_COLUMN = re.compile(
    r"bus[ _-]?(?:bw|bandwidth)|alg(?:o)?[ _-]?(?:bw|bandwidth)|bandwidth|throughput|\bbw\b", re.IGNORECASE
)
_SIZE_COLUMN = re.compile(r"\b(?:size|payload|bytes|message|msg|data|buffer|tensor|nbytes|length)", re.IGNORECASE)
_MARKS = re.compile(
    r"(?im)^[^\n]{0,120}\b(?:size|payload|bytes|msg|message|nbytes|length)\b[^\n]{0,200}"
    r"(?:bus ?_?(?:bw|bandwidth)|alg(?:o)?_?bw|bandwidth|throughput|" + _UNIT_WORDS + r")"
)
_LABELLED = re.compile(
    r"(?m)^\s{0,8}\|?\s{0,8}[A-Za-z][^|\n]{1,60}\|[^\n]{0,120}?\d[\d.,]{0,16}\s?" + _UNIT_WORDS + r"\s{0,40}(?:\||$)"
)
"""A row with bars that begins with a name and has a rate with its unit."""
_SENTENCE = re.compile(
    r"(?m)^[ \t>*#-]{0,16}([A-Za-z][^:=|\n]{1,80}?)\s{0,40}[:=]\s{0,40}(\d[\d.,]{0,20}(?:e[+-]?\d{1,3})?)\s{0,8}\[?("
    + _UNIT_WORDS
    + r")\b\]?\s*$"
)
"""A line that names one rate: `Bandwidth   : 171.420 MiB/s`."""
_LABELLED_VALUE = re.compile(
    r"([A-Za-z][\w /-]{0,40}?)\s{0,4}\(([^()\n]{1,16})\)\s{0,4}[:=]\s{0,20}(\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)"
)
"""A value behind its name and its unit: `Bandwidth (GB/s): 12.5`."""
_OF_BYTES = re.compile(r"[KMG]?i?B|bytes", re.IGNORECASE)
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "usec": 1e-6, "\u00b5s": 1e-6}
_OF_A_LINK = re.compile(r"(?i)\b(?:speed|link|port|width|max|capacity|limit|theoretical|nominal|expected)\b")
"""Names of rates that nobody measured."""
_DESCRIBES_A_DEVICE = re.compile(
    r"(?i)\b(?:memory bus width|(?:memory|gpu|core) clock(?: rate)?\b.{0,24}\d ?[MG]Hz|clock rate\s*:"
    r"|compute capability|total global mem)"
)
"""Lines of a device's properties, whose rates are nominal."""
_NEAR = 8
"""The number of lines before and after a rate that are searched for properties of a device."""
_SIZE = re.compile(r"(\d[\d.,_]{0,20})\s?([KMGT]?)(i?)(?:B(?:ytes)?)?", re.IGNORECASE)
_VALUE = re.compile(r"(\d[\d.,]{0,20}(?:e[+-]?\d{1,3})?)\s?(" + _UNIT_WORDS + r")?")
_BETWEEN = re.compile(r"\s{2,}|\t|(?<=\d)\s(?=\d)")
_TIMED = re.compile(r"(?i)(?:time|duration|elapsed)[ _(\[-]{0,3}(us|usec|\u00b5s|ms|s|sec|seconds)(?![a-z])")
"""A column of times whose name has their unit."""
_LIKELY_UNITS = ("GB/s", "GiB/s", "MB/s", "MiB/s", "Gb/s")
"""The units that scripts use, one of which the times may prove."""
_STEPS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DECIMAL_STEPS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_ROUNDING = 1e-3
"""The part of a byte by which a computed size may differ from a whole one."""
_MIN_CELLS = 2
_MOST_TIMED = 200
_MOST_RANKS = 100_000
_COLLECTIVES = re.compile(
    r"\b(all[_-]?reduce|all[_-]?gather|reduce[_-]?scatter|all[_-]?to[_-]?all|broadcast|send[_-]?recv)\b", re.IGNORECASE
)
_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "sendrecv": "send_recv",
}  # fmt: skip
_DIVIDED = ("all_gather", "reduce_scatter", "all_to_all")


class _Column(NamedTuple):
    place: int
    name: str
    unit: str


class _Row(NamedTuple):
    line: int
    size_bytes: int
    rates: dict[str, tuple[Number, str]]
    """The rates with their units by column: `busbw`, `algbw`, or the column's own name."""


class _Labelled(NamedTuple):
    line: int
    size_bytes: int
    rate: Number
    unit: str
    seconds: tuple[float, float] | None
    """The least and the longest time that prints like this, if the line has a time."""


class Ratio(NamedTuple):
    """The ratio of busbw to algbw, with the collective and the range of ranks that have it."""

    value: float
    operation: str
    low: int
    high: int


def recognises(text: str) -> bool:
    """Report whether a line names a size and a rate, or begins with the name of one, and a unit stands in the text."""
    if _UNIT.search(text) is None:
        return _MARKS.search(text) is not None and _TIMED.search(text) is not None
    if _SENTENCE.search(text) and _read_sentences(split_lines(text)).results:
        return True
    return _MARKS.search(text) is not None or ("|" in text and _LABELLED.search(text) is not None)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table. Raises UsageError if no row has a rate with a unit."""
    lines = split_lines(text)
    drafts = []
    for place, line in enumerate(lines):
        columns = _parse_header(line.text)
        proved = ""
        if columns and not any(column.unit for column in columns):
            proved = _prove_unit(columns, line.text, lines[place + 1 :])
            columns = [column._replace(unit=proved) for column in columns] if proved else columns
        rows = list(_read_rows(columns, lines[place + 1 :])) if columns else []
        if rows:
            above = " ".join(other.text for other in lines[max(0, place - 30) : place + 1])
            drafts.append(_build_draft(rows, above, is_proved=bool(proved)))
    if not drafts:
        others = (_read_named_rows(lines), _read_labelled_lines(lines), _read_sentences(lines))
        drafts += [named for named in others if named.results][:1]
    return collect_files(
        drafts,
        "a table of sizes and rates must name the unit of its rates (GB/s, Gbps, GiB/s), got none",
        "give the header with its units and at least one row",
    )


def _begin_rates() -> Draft:
    draft = Draft(tool="a script's own table", test="rates")
    draft.workload = Unlimited(why="the table does not say how its rates were measured")
    draft.notes.append("the data was not checked, and how the rates were taken is not known")
    return draft


def _is_measured(name: str, near: str) -> bool:
    """Report whether neither the rate's name nor the lines around it make it nominal."""
    return _OF_A_LINK.search(name) is None and _DESCRIBES_A_DEVICE.search(near) is None


def _read_sentences(lines: Sequence[Line]) -> Draft:
    """Return the rates of lines that name one each."""
    draft = _begin_rates()
    for place, line in enumerate(lines):
        found = _SENTENCE.match(line.text)
        if found and _is_measured(
            found[1], "\n".join(near.text for near in lines[max(0, place - _NEAR) : place + _NEAR])
        ):
            rate = number(found[2].replace(",", ""), found[1][:40], line.number)
            draft.add(line.number, [bandwidth(rate, _bytes_per_s(found[3]), found[3])], {"row": found[1].strip()[:60]})
    return draft


def _read_named_rows(lines: Sequence[Line]) -> Draft:
    """Return the rates of rows between bars that begin with a name instead of a size."""
    draft = _begin_rates()
    for line in lines:
        cells = _split_cells(line.text) if "|" in line.text else []
        if not cells or not (cells[0][:1].isalpha() or (len(cells) == _MIN_CELLS and cells[0].isdigit())):
            continue
        for place, cell in enumerate(cells[1:], 1):
            found = _VALUE.fullmatch(cell)
            if found and found[2]:
                rate = number(found[1].replace(",", ""), cells[0][:40], line.number)
                value = bandwidth(rate, _bytes_per_s(found[2]), found[2])
                draft.add(line.number, [value], {"row": cells[0][:60], "column": place})
    return draft


def _read_labelled_lines(lines: Sequence[Line]) -> Draft:
    """Return the rates of lines that name a size and a rate, each with its unit.

    Scripts print GB/s for 2^30 bytes/s too: the time in the lines decides, if they have one.
    """
    draft = _begin_rates()
    rows = [row for line in lines if (row := _parse_labelled_line(line)) is not None]
    timed = [row for row in rows if row.seconds is not None and row.seconds[0] and row.size_bytes]
    is_binary = bool(timed) and not all(map(_fits, timed)) and all(_fits(row, _binary(row.unit)) for row in timed)
    for row in rows:
        unit = _binary(row.unit) if is_binary else row.unit
        draft.add(row.line, [bandwidth(row.rate, _bytes_per_s(unit), row.unit)], {"size_bytes": row.size_bytes})
    if is_binary:
        unit = rows[0].unit
        draft.notes.append(f"by the times in its lines, {unit} is {_bytes_per_s(_binary(unit)):.4g} bytes/s")
    return draft


def _parse_labelled_line(line: Line) -> _Labelled | None:
    size, rate, unit, seconds = None, None, "", None
    for name, of, value in _LABELLED_VALUE.findall(line.text):
        if _OF_BYTES.fullmatch(of) and _SIZE_COLUMN.search(name):
            size = _parse_size(value, f"({of})")
        elif _UNIT.fullmatch(of) and _RATE_COLUMN.search(name):
            rate, unit = number(value, name[:40], line.number), of
        elif of in _SECONDS:
            seconds = number(value, name[:40], line.number).range(_SECONDS[of])
    return None if size is None or rate is None else _Labelled(line.number, size, rate, unit, seconds)


def _binary(unit: str) -> str:
    """Return the unit with the powers of 1024: GiB/s for GB/s."""
    return unit if unit[1] == "i" else f"{unit[0]}i{unit[1:]}"


def _fits(row: _Labelled, unit: str = "") -> bool:
    """Report whether the rate in this unit, by default the printed one, is the size over the time of its line."""
    assert row.seconds is not None
    low, high = row.seconds
    return overlap(row.rate.range(_bytes_per_s(unit or row.unit)), (row.size_bytes / high, row.size_bytes / low))


def _parse_header(text: str) -> list[_Column]:
    """Return the columns of a header with a size and a rate; empty for another line."""
    cells = _split_cells(text)
    if len(cells) < _MIN_CELLS or not _SIZE_COLUMN.search(cells[0]) or _VALUE.match(cells[0]):
        return []
    columns = []
    for place, cell in enumerate(cells):
        unit = _UNIT.search(cell)
        if place and (_RATE_COLUMN.search(cell) or unit):
            columns.append(_Column(place, _normalize_name(cell), unit[0] if unit else ""))
    return [_Column(0, cells[0], ""), *columns] if columns else []


def _prove_unit(columns: Sequence[_Column], header: str, lines: Sequence[Line]) -> str:
    """Return the only unit in which every rate is the size over the time of its row; empty without one."""
    times = [(place, found[1]) for place, cell in enumerate(_split_cells(header)) if (found := _TIMED.search(cell))]
    main = next((column for column in columns[1:] if column.name != "busbw"), None)
    if not times or main is None:
        return ""
    at, of = times[0]
    timed = []
    for line in lines[:_MOST_TIMED]:
        cells = _split_cells(line.text)
        if len(cells) <= max(main.place, at) or (size := _parse_size(cells[0], columns[0].name)) is None:
            continue
        matches = [_VALUE.fullmatch(cells[place]) for place in (main.place, at)]
        values = [number(one[1].replace(",", ""), main.name, line.number) for one in matches if one is not None]
        if len(values) == len(matches):
            rate, seconds = values
            timed.append(_Labelled(line.number, size, rate, "GB/s", seconds.range(_SECONDS[of.lower()])))
    timed = [row for row in timed if row.seconds is not None and row.seconds[0] > 0 and row.rate.value > 0]
    fitting = [unit for unit in _LIKELY_UNITS if timed and all(_fits(row, unit) for row in timed)]
    return fitting[0] if len(fitting) == 1 else ""


def _split_cells(text: str) -> list[str]:
    """Return the cells of a line between bars, commas, tabs or several spaces."""
    text = text.strip().strip("#").strip()
    if "|" in text:
        return [cell.strip() for cell in text.strip("|").split("|")]
    if text.count(",") >= _MIN_CELLS - 1 and not re.search(r"(?<![\d.])\d{1,3},\d{3}(?![\d.])", text):
        return [cell.strip() for cell in text.split(",")]
    return [cell.strip() for cell in _BETWEEN.split(text) if cell.strip()]


def _normalize_name(cell: str) -> str:
    word = cell.lower().replace(" ", "").replace("_", "").replace("-", "")
    return "busbw" if word.startswith("bus") else "algbw" if word.startswith("alg") else cell[:40]


def _read_rows(columns: Sequence[_Column], lines: Sequence[Line]) -> Iterator[_Row]:
    """Yield the rows below a header, up to the first other line after them."""
    seen = False
    for line in lines:
        cells = _split_cells(line.text)
        row = _read_row(columns, cells, line.number)
        if row is not None:
            seen = True
            yield row
        elif (seen and cells and not set(line.text) <= set("|-:=+ \t")) or (not seen and _parse_header(line.text)):
            return


def _read_row(columns: Sequence[_Column], cells: Sequence[str], line: int) -> _Row | None:
    size = _parse_size(cells[0], columns[0].name) if cells else None
    if size is None or len(cells) <= max(column.place for column in columns):
        return None
    rates = {}
    for column in columns[1:]:
        found = _VALUE.fullmatch(cells[column.place])
        unit = (found[2] or column.unit) if found else ""
        if found and unit:
            rates[column.name] = number(found[1].replace(",", ""), column.name, line), unit
    return _Row(line, size, rates) if rates else None


def _parse_size(cell: str, header: str) -> int | None:
    """Return the bytes of a size such as `1MiB`, `4.0GB` or `1048576`; its unit may stand in the header.

    Scripts print MB for 2^20 bytes or for 10^6: the second is taken only if the first is no whole number of bytes.
    """
    found = _SIZE.fullmatch(cell.strip())
    if found is None:
        return None
    unit = found[2].upper()
    if not unit and (of_header := re.search(r"\(([KMG])i?B\)", header)):
        unit = of_header[1]
    try:
        count = float(found[1].replace(",", "").replace("_", ""))
    except ValueError:
        return None
    binary, decimal = count * _STEPS[unit], count * _DECIMAL_STEPS[unit]
    if not found[3] and binary != round(binary) and abs(decimal - round(decimal)) < _ROUNDING:
        return round(decimal)
    return int(binary)


def _bytes_per_s(unit: str) -> float:
    """Return the bytes/s of a unit: 10^9 bytes for GB/s and GBps, 2^30 for GiB/s, 10^9 bits for Gbps and Gb/s."""
    power = "KMGT".index(unit[0]) + 1
    step = 1024.0**power if unit[1] == "i" else 1000.0**power
    rest = unit.removeprefix(unit[0]).removeprefix("i")
    return step if rest.startswith("B") else step / 8


def _build_draft(rows: Sequence[_Row], above: str, *, is_proved: bool) -> Draft:
    named = _COLLECTIVES.findall(above)
    operation = _NAMES[named[-1].lower().replace("_", "").replace("-", "")] if named else ""
    ratio = _find_ratio(rows)
    ranks = ratio.low if ratio is not None and ratio.low == ratio.high else None
    if ratio is not None and not operation:
        operation = ratio.operation
    names = dict.fromkeys(name for row in rows for name in row.rates)
    main = next((name for name in ("algbw", "busbw") if name in names), next(iter(names)))
    is_judged = main == "algbw" and bool(operation)
    draft = Draft(tool="a script's own table", test=operation if is_judged else main, ranks=ranks)
    draft.workload = (
        _workload(operation) if is_judged else Unlimited(why=f"the table does not say what its {main} is of")
    )
    for row in rows:
        rate, unit = row.rates.get(main) or next(iter(row.rates.values()))
        draft.add(row.line, [bandwidth(rate, _bytes_per_s(unit), unit)], {"size_bytes": row.size_bytes})
    units = dict.fromkeys(unit for row in rows for _, unit in row.rates.values())
    stands = "follows from the sizes and times" if is_proved else "stands in the table"
    draft.notes = [f"the unit {unit} {stands}: {_describe_unit(unit)}" for unit in units]
    draft.notes += _describe_ratio(ratio) if ratio is not None else []
    draft.notes.append("the data was not checked, and how the times were taken is not known")
    return draft


def _workload(operation: str) -> Workload:
    return Collective(operation=operation)


def _describe_unit(unit: str) -> str:
    factor = _bytes_per_s(unit)
    return f"{factor:.4g} bytes/s"


def _find_ratio(rows: Sequence[_Row]) -> Ratio | None:
    """Return the ratio of the row that gives it most precisely, with the number of ranks."""
    pairs = [(row.rates["busbw"][0], row.rates["algbw"][0]) for row in rows if {"busbw", "algbw"} <= row.rates.keys()]
    pairs = [(bus, alg) for bus, alg in pairs if bus.value > 0 and alg.value > 0]
    if not pairs:
        return None
    bus, alg = min(pairs, key=lambda pair: pair[0].half / pair[0].value + pair[1].half / pair[1].value)
    value, error = bus.value / alg.value, bus.half / bus.value + alg.half / alg.value
    low, high = value * (1 - error), value * (1 + error)
    if low > 1.0 and value < 2.0:
        return Ratio(value, "all_reduce", *_rank_range(2.0, low, high))
    if high < 1.0:
        return Ratio(value, "", *_rank_range(1.0, low, high))
    return None


def _rank_range(factor: float, low: float, high: float) -> tuple[int, int]:
    """Return the numbers of ranks n for which factor x (n-1)/n lies in the range."""
    first = factor / (factor - low)
    last = factor / (factor - high) if high < factor else _MOST_RANKS
    nearest = round(2 / (1 / first + 1 / last))
    return (nearest, nearest) if last - first < 1 else (max(2, round(first)), min(_MOST_RANKS, round(last)))


def _describe_ratio(ratio: Ratio) -> list[str]:
    ranks = f"{ratio.low}" if ratio.low == ratio.high else f"{ratio.low} to {ratio.high}"
    factor = "2(n-1)/n" if ratio.operation else "(n-1)/n"
    kind = "an all_reduce" if ratio.operation else f"one of {', '.join(_DIVIDED)}"
    return [f"busbw/algbw = {ratio.value:.3f} = {factor} for n = {ranks}, so {kind} over about {ranks} ranks"]
