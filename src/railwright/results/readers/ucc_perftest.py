"""Reader of ucc_perftest (UCC up to 1.9): a collective by size, with -F also its bandwidth.

    Collective:             Alltoall
    Memory type:            cuda
           Count        Size                Time, us                           Bandwidth, GB/s
                                     avg         min         max         avg         max         min
           65536      262144       76.46       72.62       82.30       24.00       25.27       22.30

Every rank computes the mean of its own times; the three columns are the mean, the minimum and the maximum over ranks.
The bandwidths follow from them in the same order, whatever their header says: bytes over time x the busbw factor of
nccl-tests, in 10^9 bytes/s. Until 1.4 the size of Alltoall, Reduce_scatter and Scatter is one rank's data for each
peer. Since 1.5, which prints `Total time` below and the GPUs of ranks above, it is the data of all together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import ceil, floor, inf
from typing import NamedTuple

from msgspec import field
from msgspec.structs import replace

from railwright.results.readers.foreign_file import Draft, ForeignFile, collect_files, latency, mpi_collective
from railwright.results.readers.pasted.command_line import LaunchCommand, parse_environment, parse_launch_command
from railwright.results.readers.pasted.log_lines import Line, last_row, refusal, split_lines, split_runs
from railwright.results.readers.pasted.printed_numbers import (
    Number,
    Range,
    number,
    overlap,
    parse_integer,
    refuse_outside,
)
from railwright.results.workload import Unlimited, Workload
from railwright.topology.devices import Scalar

_HEADER = re.compile(r"\bCount\s{1,20}Size\s{1,40}Time, us(\s{1,80}(?:Bus )?Bandwidth, GB/s)?\s*$", re.MULTILINE)
_SAID = re.compile(r"(Collective|Memory type|Data ?type|Reduction|Inplace|Iteration mode):\s{0,40}(\S.{0,40}?)\s*$")
_ROW = re.compile(r"(?:\d{1,19}|N/A)(?:\s{1,40}(?:\d[\d.]{0,24}|N/A|-?nan|-?inf)){1,8}")
_DEVICE = re.compile(r"Rank\s{1,8}(\d{1,7})\s{0,8}: (\S{1,80}) - (.{2,60}?) [0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}\.\d")
_SINCE_1_5 = re.compile(r"^Total time: |Bus Bandwidth|Iteration mode:")
_COMMAND = re.compile(r"ucc_perftest\s.{0,400}?-c\s{0,4}([a-z_]{4,20})")
_OPTIONS = re.compile(r"ucc_perftest\s.*")
_NCCL = re.compile(r"\bUCC_TLS=[\"']?(?:self,)?nccl(?:,self)?(?![\w,])|UCC_TL_NCCL_TUNE=(?:\w+:){0,3}inf\b|\{TL_NCCL\}")
"""The marks of NCCL's team layer: UCC may use no other, must prefer it, or reports it in its log."""
_BITS = re.compile(r"b?(?:u?int|float)(\d{1,3})(_complex)?")
_TIMES, _BANDWIDTHS = ("avg", "min", "max"), ("bandwidth at avg", "bandwidth at min", "bandwidth at max")
_PARTED = ("ucc_alltoall", "ucc_reduce_scatter", "ucc_scatter")
"""The collectives whose size was that of one rank's part before 1.5."""
_IN_PARTS = ("ucc_allgather", "ucc_gather")
"""The collectives whose size is that of one rank's part in every version."""
_SINGLE = 1e-6
"""The relative error of bandwidths, which are computed in single precision."""
_ABOVE = 60
"""The number of lines above a table that are searched for its command."""


class _Row(NamedTuple):
    line: int
    size: int | None
    numbers: dict[str, Number]


class _Table(Draft, kw_only=True):
    labels: dict[str, str] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)
    is_since_1_5: bool = False
    factor: Range = (0.0, inf)
    """The range of bandwidth over bytes per time that all rows allow."""

    @property
    def is_in_parts(self) -> bool:
        """Whether the size is one rank's data for each peer."""
        return self.test in _IN_PARTS or (self.test in _PARTED and not self.is_since_1_5)

    @property
    def is_irregular(self) -> bool:
        """Whether ranks may have different counts, and rows any order."""
        return self.test.endswith("v")


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table."""
    return "Time, us" in text and _HEADER.search(text) is not None


def _workload(table: _Table) -> Workload | None:
    """Return the workload of a collective between processes, by NCCL if the text says so."""
    found = mpi_collective(table.test.removeprefix("ucc_"))
    by_nccl = "team_layer" in table.settings
    if found and by_nccl and table.is_in_parts:
        return Unlimited(why="no limit is derived for NCCL from the size of one rank's part")
    return found and replace(found, by="nccl" if by_nccl else "mpi", of_each_rank=table.is_in_parts)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table. Raises UsageError for bandwidths that are not the bytes over the time."""
    devices = [(line.number, found) for line in split_lines(text) if (found := _DEVICE.search(line.text))]
    tables: list[_Table] = []
    above: list[Line] = []
    end = 0
    for part in split_runs(text, lambda line: _HEADER.search(line.text) is not None):
        if _HEADER.search(part[0].text):
            table = _read_table(part, above[-_ABOVE:], end)
            begin, end = end, table.rows[-1].line if table.rows else part[0].number
            _take_device_ranks(table, [found for number, found in devices if begin < number <= end])
            _add_results(table)
            tables.append(table)
        above += part
    return collect_files(
        tables,
        "the output of ucc_perftest must contain a row of a table, got none",
        "give the output from 'Collective:' to the last size",
    )


def _read_table(part: list[Line], above: list[Line], end: int) -> _Table:
    """Read the rows below a header and the lines above it. The previous table has its last row on line `end`."""
    words = [line.text.lstrip("# ") for line in above]
    own = [line.text.lstrip("# ") for line in above if line.number > end]
    labels = {found[1].replace(" ", "").lower(): found[2] for line in own if (found := _SAID.match(line))}
    asked = [found[1] for line in words if (found := _COMMAND.search(line))]
    name = labels.get("collective", asked[-1] if asked else "collective").lower().replace(" ", "_")
    table = _Table(tool="UCC", test=f"ucc_{name}", labels=labels, line=part[0].number, last_line=last_row(part))
    table.columns = ["Count", "Size", *_TIMES]
    if (header := _HEADER.search(part[0].text)) and header[1]:
        table.columns += _BANDWIDTHS
    table.is_since_1_5 = any(_SINCE_1_5.search(line.text) for line in (*above, *part))
    command = _parse_launcher(words)
    table.ranks, table.hosts, table.environment = command.ranks, command.hosts, parse_environment(words)
    table.settings |= {
        name: labels[name] for name in ("memorytype", "datatype", "reduction", "inplace") if name in labels
    }
    own += [line.text for line in part if line.number < table.last_line]
    if labels.get("memorytype") == "cuda" and any(map(_NCCL.search, own)):
        table.settings["team_layer"] = "nccl"
    for line in part[1:]:
        text = line.text.lstrip("# ")
        if _ROW.fullmatch(text) and (cells := table.cells(text.split(), line.number)):
            table.rows.append(_read_row(table, cells, line.number))
    return table


def _parse_launcher(above: list[str]) -> LaunchCommand:
    """Parse the launcher's options only, because ucc_perftest has options of the same letters."""
    return parse_launch_command([_OPTIONS.sub("", line) for line in above])


def _take_device_ranks(table: _Table, devices: list[re.Match[str]]) -> None:
    """Take ranks, hosts and GPUs from the lines that every rank prints about its GPU."""
    if devices:
        table.is_since_1_5 = True
        table.gpus = tuple(dict.fromkeys(found[3] for found in devices))
        ranks = {int(found[1]) for found in devices}
        if ranks == set(range(len(ranks))):
            table.ranks, table.hosts = len(ranks), len({found[2] for found in devices})


def _read_row(table: _Table, cells: Mapping[str, str], line: int) -> _Row:
    count, size = (
        None if cells[name] == "N/A" else parse_integer(cells[name], name, line) for name in ("Count", "Size")
    )
    numbers = {name: number(cell, name, line) for name, cell in cells.items() if name in _TIMES}
    numbers |= {name: number(cells[name], name, line) for name in _BANDWIDTHS if cells.get(name, "N/A") != "N/A"}
    average, minimum, maximum = (numbers[name] for name in _TIMES)
    refuse_outside("average", average, minimum, maximum, line, " us")
    if size is not None:
        _take_size(table, count, size, line)
        _narrow_factor(table, numbers, size, line)
    return _Row(line, size, numbers)


def _take_size(table: _Table, count: int | None, size: int, line: int) -> None:
    if not table.is_irregular:
        table.rise_to(size, line)
    kind = _BITS.fullmatch(table.labels.get("datatype", ""))
    if kind and count is not None and 8 * size != count * int(kind[1]) * (2 if kind[2] else 1):
        raise refusal(line, f"size {size} is not {count} x {kind[0]}")


def _narrow_factor(table: _Table, numbers: Mapping[str, Number], size: int, line: int) -> None:
    """Narrow the factor to the range that a row's bandwidths allow. Raises UsageError if nothing remains."""
    left = (0.0, inf) if table.is_irregular else table.factor
    for time, bandwidth in zip(_TIMES, _BANDWIDTHS, strict=True):
        if bandwidth in numbers and size:
            low, high = numbers[bandwidth].range(1e3 / size)  # GB/s x us is 1000 bytes
            found = (low * numbers[time].low, high * numbers[time].high)
            if not overlap(left, found):
                computed = f"{size} bytes in {numbers[time].text} us x the factor of the other bandwidths"
                raise refusal(line, f"{numbers[bandwidth].text} GB/s are not {computed}")
            left = (max(left[0], found[0]), max(left[0], min(left[1], found[1])))
    table.factor = left


def _add_results(table: _Table) -> None:
    """Add the results of the table, with the ranks that its bandwidths imply."""
    _derive_ranks(table)
    table.settings["size_of"] = "each rank" if table.is_in_parts else "all ranks"
    for row in table.rows:
        average, minimum, maximum = (row.numbers[name] for name in _TIMES)
        extras: dict[str, Scalar] = {"avg_rank_s": average.value * 1e-6, "min_rank_s": minimum.value * 1e-6}
        table.add(row.line, [latency(maximum, "us")], {} if row.size is None else {"size_bytes": row.size}, extras)
    table.notes = [*_notes(table), *table.notes]
    table.workload = _workload(table)


def _derive_ranks(table: _Table) -> None:
    """Derive the ranks from the factor. Raises UsageError if it contradicts known ranks, or fits no number of ranks.

    Ranks are not derived for in-place operations, because UCC counts other bytes for them, or none.
    """
    low, high = table.factor
    if high == inf or table.is_irregular or table.labels.get("inplace") == "1":
        return
    if table.test in _PARTED and high < 1:
        table.is_since_1_5 = True
    minimum, maximum = _possible_ranks(table)
    known = table.ranks
    if minimum > maximum or (known is not None and not minimum <= known <= maximum):
        raise refusal(
            table.rows[-1].line,
            f"the bandwidths are {low:.4g} x size / time, which does not fit {table.test}"
            f" by {known or 'any number of'} ranks",
        )
    if known is None and minimum == maximum:
        table.ranks = ceil(minimum)
        table.notes.append(f"the bandwidths imply {table.ranks} ranks")


def _possible_ranks(table: _Table) -> Range:
    """Return the minimum and the maximum number of ranks that give the factor of the table."""
    low, high = table.factor
    if table.test in ("ucc_bcast", "ucc_reduce"):
        return (1, inf) if low <= 1 <= high else (inf, 1)
    if table.is_in_parts:
        minimum, maximum = low + 1, high + 1
    elif table.test == "ucc_allreduce" or table.test in _PARTED:
        bound = 2.0 if table.test == "ucc_allreduce" else 1.0
        minimum, maximum = (bound / (bound - factor) if factor < bound else inf for factor in (low, high))
    else:
        return 1, inf
    return (inf if minimum == inf else ceil(minimum * (1 - _SINGLE))), (
        inf if maximum == inf else floor(maximum * (1 + _SINGLE))
    )


def _notes(table: _Table) -> Iterator[str]:
    yield "each time is the mean of the slowest rank"
    if table.factor[1] < inf:
        yield "the printed bandwidth is the bus bandwidth of nccl-tests"
    yield "the data was not checked"
    if table.labels.get("iterationmode") == "streaming":
        yield "there was no barrier between iterations: consecutive collectives overlap"
    if table.test == "ucc_collective":
        yield "the text lacks the lines above the table, which name the collective"
    if table.ranks is None:
        yield "UCC does not print the number of ranks"
