"""What the OSU Micro-Benchmarks print: MPI tests of 5.3 to 7.5, for hosts and for GPUs.

    # OSU MPI-CUDA Bandwidth Test v5.6.2
    # Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
    # Size      Bandwidth (MB/s)
    1                       0.08

MB/s is 10^6 bytes/s. Latency is one way, in us, and an average: over the calls of rank 0, or over all ranks of a
collective (where `-f` adds the least and the most of any rank's average). `-z` adds percentiles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from railwright.errors import UsageError
from railwright.limits.model import Quantity
from railwright.results.model import Result, Verification
from railwright.results.readers.log_lines import (
    Line,
    Number,
    by_origin,
    cut_short,
    lines_of,
    number,
    overlap,
    refusal,
    sections,
    whole,
)
from railwright.results.readers.model import ForeignFile, point
from railwright.topology.model import Scalar

NAME = "OSU Micro-Benchmarks (OSU MPI ... Test v)"

_TITLE = re.compile(r"#? ?OSU MPI(?:-([A-Z]{2,10}))?(_\w{3,12})? (.{2,60}?) Test v(\d[\w.-]{0,15})")
_COLUMN = re.compile(
    r"Size|Bandwidth \(MB/s\)|MB/s|Messages/s|Iterations|Validation|(?:(?:Avg|Min|Max) )?Lat(?:ency)? ?\(us\)"
    r"|P\d{2} Tail Lat ?\(us\)|P\d{2} Tail BW ?\(MB/s\)"
)
_PAIRS = re.compile(r"\[ pairs: (\d{1,7}) \] \[ window size: (\d{1,7}) \]")
_BUFFERS = re.compile(r"Send Buffer on (\w{1,16}) \(\w{1,2}\) and Receive Buffer on (\w{1,16}) \(\w{1,2}\)")
_DATATYPE = re.compile(r"Datatype: (MPI_\w{2,24})")

_POINT_TO_POINT = {
    "Bandwidth": "osu_bw",
    "Bi-Directional Bandwidth": "osu_bibw",
    "Latency": "osu_latency",
    "Multiple Bandwidth / Message Rate": "osu_mbw_mr",
    "Multi Latency": "osu_multi_lat",
    "Multi-threaded Latency": "osu_latency_mt",
    "Multi-process Latency": "osu_latency_mp",
}
_ONE_SIDED = {"_Put": "osu_put", "_Get": "osu_get", "_Accumulate": "osu_acc", "_Get_accumulate": "osu_get_acc"}
_COLLECTIVES = {
    "Allgather": "allgather", "Allgatherv": "allgatherv", "Allreduce": "allreduce", "Barrier": "barrier",
    "All-to-All Personalized Exchange": "alltoall", "All-to-Allv Personalized Exchange": "alltoallv",
    "Alltoall": "alltoall", "Alltoallv": "alltoallv", "Broadcast": "bcast", "Gather": "gather", "Gatherv": "gatherv",
    "Reduce": "reduce", "Reduce_scatter": "reduce_scatter", "Scatter": "scatter", "Scatterv": "scatterv",
}  # fmt: skip
_PAIRWISE = frozenset({"osu_bw", "osu_bibw", "osu_latency", "osu_latency_mt"})


@dataclass
class _Test:
    """One test while it is read."""

    name: str
    version: str
    accelerator: str
    line: int
    columns: list[str] = field(default_factory=list)
    settings: dict[str, Scalar] = field(default_factory=dict)
    parameters: dict[str, Scalar] = field(default_factory=dict)
    ranks: int | None = None
    results: list[Result] = field(default_factory=list)
    last_size: int = -1
    notes: list[str] = field(default_factory=list)


def recognises(text: str) -> bool:
    """The words of the first line."""
    return "OSU MPI" in text and " Test v" in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Every test of the text. Raises UsageError for a test or a table that cannot be read."""
    files: list[tuple[int, ForeignFile]] = []
    for stream in by_origin(lines_of(text)):
        for part in sections(stream, _begins):
            if part and _begins(part[0]):
                test = _test(part)
                if test.results:
                    files.append((test.line, _finished(test)))
    if not files:
        raise UsageError(
            "no row of an OSU table was found", hint="give the output from '# OSU MPI ... Test v' to the last size"
        )
    return tuple(file for _, file in sorted(files, key=lambda pair: pair[0]))


def _begins(line: Line) -> bool:
    return "OSU MPI" in line.text and _TITLE.match(line.text.strip()) is not None


def _named(line: Line) -> _Test:
    found = _TITLE.match(line.text.strip())
    if found is None:
        raise refusal(line.number, "not the first line of an OSU test")
    accelerator, one_sided, title, version = found.groups()
    name = _POINT_TO_POINT.get(title, "")
    if one_sided is not None:
        kind = {"Bandwidth": "bw", "Bi-directional Bandwidth": "bibw", "Bi-Directional Bandwidth": "bibw"}
        name = f"{_ONE_SIDED[one_sided]}_{kind.get(title, 'latency')}" if one_sided in _ONE_SIDED else ""
    elif title.removesuffix(" Latency") in _COLLECTIVES:
        name = f"osu_{_COLLECTIVES[title.removesuffix(' Latency')]}"
    if not name:
        raise refusal(line.number, f"the OSU test {title[:60]!r} is not read", f"read are: {', '.join(_READ)}")
    return _Test(name, version, (accelerator or "").lower(), line.number)


_READ = (*_POINT_TO_POINT.values(), *(f"osu_{name}" for name in dict.fromkeys(_COLLECTIVES.values())), "one-sided")


def _test(part: list[Line]) -> _Test:
    test = _named(part[0])
    if test.accelerator:
        test.settings["accelerator"] = test.accelerator
    if test.name in _PAIRWISE or test.name.startswith(tuple(_ONE_SIDED.values())):
        test.ranks = 2
    for line in part[1:]:
        text = line.text.strip()
        if text.startswith(("#", "Size ")) or "[ pairs:" in text:
            _comment(test, text, line.number)
        elif text[:1].isdigit() and test.columns:
            _row(test, text.split(), line.number, part[-1].number)
    return test


def _comment(test: _Test, text: str, line: int) -> None:
    if found := _PAIRS.search(text):
        test.ranks, test.settings["window"] = 2 * int(found.group(1)), int(found.group(2))
    elif found := _BUFFERS.search(text):
        test.parameters |= {"send_buffer": found.group(1).lower(), "receive_buffer": found.group(2).lower()}
    elif found := _DATATYPE.search(text):
        test.settings["datatype"] = found.group(1)
    elif text.lstrip("# ").startswith("Size"):
        rest = text.lstrip("# ")
        columns = _COLUMN.findall(rest)
        if "".join(columns).replace(" ", "") != rest.replace(" ", "") or len(columns) < 2:
            raise refusal(line, f"the columns {rest[:80]!r} are not known")
        test.columns = columns


def _row(test: _Test, tokens: list[str], line: int, last_line: int) -> None:
    if not tokens[0].isdigit() or (len(tokens) > 1 and not (tokens[1][:1].isdigit() or tokens[1] in ("nan", "inf"))):
        return
    if len(tokens) != len(test.columns):
        if line == last_line and len(tokens) < len(test.columns):
            test.notes.append(cut_short(line, len(tokens), len(test.columns)))
            return
        raise refusal(line, f"{len(tokens)} columns where the header has {len(test.columns)}")
    cells = dict(zip(test.columns, tokens, strict=True))
    size = whole(cells["Size"], "size", line)
    if size <= test.last_size:
        raise refusal(line, f"size {size} after size {test.last_size}: the rows of several tables are mixed")
    test.last_size = size
    checked = _verification(cells.get("Validation", ""), size, line)
    numbers = {
        name: number(cell, name, line) for name, cell in cells.items() if name not in ("Size", "Validation")
    }  # fmt: skip
    _check(numbers, size, line)
    test.results.extend(_results(test, numbers, size, line, checked))


def _verification(word: str, size: int, line: int) -> Verification | None:
    if word in ("", "-"):
        return None
    if word not in ("Pass", "Fail"):
        raise refusal(line, f"validation {word[:20]!r} is neither Pass nor Fail")
    # How many bytes were wrong is not printed; with Fail it is at least one.
    return Verification(method="OSU -c", bytes_checked=size, bytes_wrong=0 if word == "Pass" else max(size, 1))


def _check(numbers: dict[str, Number], size: int, line: int) -> None:
    megabytes, messages = numbers.get("MB/s"), numbers.get("Messages/s")
    if megabytes and messages:
        low, high = messages.low * size / 1e6, messages.high * size / 1e6
        if not overlap(megabytes.low, megabytes.high, low, high):
            raise refusal(line, f"{megabytes.text} MB/s is not {messages.text} messages/s x {size} bytes")
    average, least, most = (_latency(numbers, kind) for kind in ("Avg", "Min", "Max"))
    if average and least and most and not (least.low <= average.high and average.low <= most.high):
        raise refusal(line, f"the average {average.text} us is not between {least.text} and {most.text} us")


def _latency(numbers: dict[str, Number], kind: str) -> Number | None:
    return next((cell for name, cell in numbers.items() if name.startswith(f"{kind} Lat")), None)


def _results(
    test: _Test, numbers: dict[str, Number], size: int, line: int, checked: Verification | None
) -> list[Result]:
    settings = {**test.settings, **_extras(numbers)}
    made: list[Result] = []
    for name, cell in numbers.items():
        quantity: Quantity
        if name in ("Bandwidth (MB/s)", "MB/s"):
            quantity, value, unit = "bandwidth_bytes_per_s", cell.value * 1e6, "MB/s"
        elif name == "Messages/s":
            quantity, value, unit = "messages_per_s", cell.value, "messages/s"
        elif name.startswith(("Lat", "Avg Lat")):
            quantity, value, unit = "latency_s", cell.value * 1e-6, "us"
        else:
            continue
        made.append(
            point(
                benchmark=test.name,
                quantity=quantity,
                value=value,
                shown=f"{cell.text} {unit}",
                line=line,
                method=f"OSU {test.name} {test.version}",
                parameters={"size_bytes": size, **test.parameters},
                settings=settings,
                ranks=test.ranks,
                verification=checked,
            )
        )
    return made


def _extras(numbers: dict[str, Number]) -> dict[str, Scalar]:
    """Percentiles, extremes over ranks and iterations: what stands beside the value."""
    extras: dict[str, Scalar] = {}
    for name, cell in numbers.items():
        if name.startswith("P") and "Lat" in name:
            extras[f"{name[:3].lower()}_s"] = cell.value * 1e-6
        elif name.startswith("P"):
            extras[f"{name[:3].lower()}_bytes_per_s"] = cell.value * 1e6
        elif name.startswith(("Min", "Max")):
            extras[f"{name[:3].lower()}_rank_s"] = cell.value * 1e-6
        elif name == "Iterations":
            extras["iterations"] = int(cell.value)
    return extras


def _finished(test: _Test) -> ForeignFile:
    notes = ["MB/s is 10^6 bytes/s"] if any("MB/s" in column for column in test.columns) else []
    if any("Lat" in column for column in test.columns) and not any(c.startswith("P") for c in test.columns):
        notes.append("each latency is a mean: one delay in it moves it (osu -z prints percentiles)")
    if "Validation" not in test.columns:
        notes.append("the data was not checked")
    if test.ranks is None:
        notes.append("OSU does not print the number of ranks")
    return ForeignFile(
        tool="OSU",
        version=test.version,
        test=test.name,
        ranks=test.ranks,
        results=tuple(test.results),
        notes=(*notes, *test.notes),
    )
