"""What perftest (ib_write_bw, ib_read_bw, ib_send_bw, ib_atomic_bw and their _lat) prints, 4.x to 6.x.

                        RDMA_Write BW Test
     Dual-port       : OFF          Device         : mlx5_0
     Mtu             : 4096[B]
     #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
     65536      5000             197.82             197.80               0.377276

Three units, by the header: MiB/sec, MB/sec (older versions; the same 2^20 bytes/s) and Gb/sec (10^9 bits/s).
The message rate times the size is the average bandwidth, which proves the unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from railwright.errors import UsageError
from railwright.results.model import Result
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
from railwright.results.readers.model import ForeignFile, percentiles, point
from railwright.topology.model import Scalar

NAME = "perftest (columns #bytes and BW average or t_avg)"

_TITLE = re.compile(
    r"(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm|_with_imm)?(?: (FETCH_AND_ADD|CMP_AND_SWAP))?"
    r"( Bidirectional)?( Post List)? (BW|Latency)(?: forwarding| Multicast)? Test"
)
_PROGRAM = re.compile(r"\bib_(send|write|read|atomic)_(bw|lat)\b")
_COLUMN = re.compile(
    r"#bytes|#sl|#iterations|BW peak\[\S{1,8}\]|BW average\[\S{1,8}\]|MsgRate\[Mpps\]|BW Port[12]\[\S{1,8}\]"
    r"|MsgRate Port[12]\[Mpps\]|CPU_Util\[%{1,2}\]|t_(?:min|max|typical|avg|stdev)\[usec\]"
    r"|99(?:\.9)?% percentile\[usec\]|tps average"
)
_UNIT = re.compile(r"BW average\[(\S{1,8})\]")
_BYTES_PER_S = {"MiB/sec": 2.0**20, "MB/sec": 2.0**20, "Gb/sec": 1e9 / 8}
_VERB = {"Send": "send", "RDMA_Write": "write", "RDMA_Read": "read", "Atomic": "atomic"}

_KEYS: dict[str, tuple[str, bool]] = {
    "Dual-port": ("dual_port", False), "Device": ("device", False), "Number of qps": ("queue_pairs", True),
    "Transport type": ("transport", False), "Connection type": ("connection", False),
    "PCIe relax order": ("pcie_relaxed_order", False), "ibv_wr* API": ("ibv_wr", False), "Using DDP": ("ddp", False),
    "Using Enhanced Reorder": ("enhanced_reorder", False), "TX depth": ("tx_depth", True),
    "RX depth": ("rx_depth", True), "Post List": ("post_list", True), "CQ Moderation": ("cq_moderation", True),
    "Mtu": ("mtu_bytes", True), "Link type": ("link_type", False), "GID index": ("gid_index", True),
    "Max inline data": ("inline_bytes", True), "Outstand reads": ("outstanding_reads", True),
    "rdma_cm QPs": ("rdma_cm", False), "Use ROCm memory": ("rocm_memory", False),
}  # fmt: skip
_SETTING = re.compile(
    r"(" + "|".join(re.escape(key) for key in sorted(_KEYS, key=len, reverse=True)) + r")\s{0,16}: ?([\w.+-]{1,32})"
)


@dataclass
class _Test:
    """One table while it is read."""

    name: str = ""
    bidirectional: bool = False
    columns: list[str] = field(default_factory=list)
    settings: dict[str, Scalar] = field(default_factory=dict)
    unit: str = ""
    results: list[Result] = field(default_factory=list)
    last_size: int = -1
    notes: list[str] = field(default_factory=list)


def recognises(text: str) -> bool:
    """The words of the table's header."""
    return "#bytes" in text and ("BW average[" in text or "t_avg[usec]" in text)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Every table of the text. Raises UsageError for one that contradicts itself or does not name its test."""
    files: list[tuple[int, ForeignFile]] = []
    for stream in by_origin(lines_of(text)):
        program = ""
        for part in sections(stream, lambda line: _TITLE.search(line.text) is not None):
            test = _test(part, program)
            named = [found for line in part if (found := _PROGRAM.search(line.text[:1000]))]
            program = f"ib_{named[-1].group(1)}_{named[-1].group(2)}" if named else program
            if test.results:
                files.append((int(test.results[0].settings["line"]), _finished(test)))
    if not files:
        raise UsageError(
            "no row of a perftest table was found (#bytes, #iterations, ...)",
            hint="give the client's output from the line '... BW Test' or '... Latency Test' on",
        )
    return tuple(file for _, file in sorted(files, key=lambda pair: pair[0]))


def _test(part: list[Line], program: str) -> _Test:
    test = _Test()
    for line in part:
        text = line.text
        if found := _TITLE.search(text):
            test.name = f"ib_{_VERB[found.group(1)]}_{'bw' if found.group(5) == 'BW' else 'lat'}"
            test.bidirectional = bool(found.group(3))
        elif "#bytes" in text:
            _header(test, text, line.number)
        elif test.columns:
            _row(test, text.split(), line.number, part[-1].number, program)
        elif found := _PROGRAM.search(text[:1000]):
            program = f"ib_{found.group(1)}_{found.group(2)}"
        elif " : " in text or ":" in text:
            _setting(test, text)
    return test


def _setting(test: _Test, text: str) -> None:
    for key, value in _SETTING.findall(text):
        name, whole_number = _KEYS[key]
        if not whole_number:
            test.settings[name] = value
        elif value.isdigit():
            test.settings[name] = int(value)


def _header(test: _Test, text: str, line: int) -> None:
    columns = _COLUMN.findall(text)
    if "".join(columns).replace(" ", "") != "".join(text[text.index("#bytes") :].split()):
        raise refusal(line, f"the columns {text.strip()[:100]!r} are not known")
    test.columns = columns
    if found := _UNIT.search(text):
        test.unit = found.group(1)
        if test.unit not in _BYTES_PER_S:
            raise refusal(line, f"unit {test.unit!r} is not one of {', '.join(_BYTES_PER_S)}")


def _row(test: _Test, tokens: list[str], line: int, last_line: int, program: str) -> None:
    if len(tokens) < 2 or not tokens[0].isdigit() or not tokens[1].isdigit():
        return
    if len(tokens) != len(test.columns):
        if line == last_line and len(tokens) < len(test.columns):
            test.notes.append(cut_short(line, len(tokens), len(test.columns)))
            return
        raise refusal(line, f"{len(tokens)} columns where the header has {len(test.columns)}")
    test.name = test.name or program
    if not test.name:
        raise refusal(line, "the text does not say which test this is", "add the command line above the table")
    cells = dict(zip(test.columns, tokens, strict=True))
    size = whole(cells.pop("#bytes"), "#bytes", line)
    if size < test.last_size:
        raise refusal(line, f"size {size} after size {test.last_size}: the rows of several tables are mixed")
    test.last_size = size
    iterations = whole(cells.pop("#iterations"), "#iterations", line)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    made = _latency if "t_avg[usec]" in numbers else _bandwidth
    test.results.extend(made(test, numbers, size, iterations, line))


def _bandwidth(test: _Test, numbers: dict[str, Number], size: int, iterations: int, line: int) -> list[Result]:
    scale = _BYTES_PER_S[test.unit]
    average = numbers[f"BW average[{test.unit}]"]
    peak = numbers.get(f"BW peak[{test.unit}]")
    rate = numbers.get("MsgRate[Mpps]")
    settings: dict[str, Scalar] = {**test.settings, "iterations": iterations}
    if peak is not None and peak.value > 0:  # 0 means not measured (-D, -N)
        if average.low > peak.high * 1.02:
            raise refusal(line, f"average {average.text} is above the peak {peak.text} {test.unit}")
        settings["peak_bytes_per_s"] = peak.value * scale
    results = [_point(test, size, line, settings, average, scale)]
    if rate is not None:
        low, high = rate.low * 1e6 * size / scale, rate.high * 1e6 * size / scale
        if not overlap(average.low, average.high, low, high):
            raise refusal(
                line,
                f"average {average.text} {test.unit} is not {rate.text} Mpps x {size} bytes = "
                f"{rate.value * 1e6 * size / scale:.2f} {test.unit}",
            )
        results.append(
            point(
                benchmark=test.name, quantity="messages_per_s", value=rate.value * 1e6, shown=f"{rate.text} Mpps",
                line=line, method=f"perftest {test.name}", parameters=_parameters(test, size), settings=settings,
                ranks=2,
            )
        )  # fmt: skip
    return results


def _point(test: _Test, size: int, line: int, settings: dict[str, Scalar], average: Number, scale: float) -> Result:
    return point(
        benchmark=test.name,
        quantity="bandwidth_bytes_per_s",
        value=average.value * scale,
        shown=f"{average.text} {test.unit}",
        line=line,
        method=f"perftest {test.name}",
        parameters=_parameters(test, size),
        settings=settings,
        ranks=2,
    )


def _latency(test: _Test, numbers: dict[str, Number], size: int, iterations: int, line: int) -> list[Result]:
    settings: dict[str, Scalar] = {
        **test.settings, "iterations": iterations, "mean_s": numbers["t_avg[usec]"].value * 1e-6
    }  # fmt: skip
    typical = numbers.get("t_typical[usec]")
    summary = None
    if typical is not None:
        order = [numbers[name] for name in _ORDER if name in numbers]
        for before, after in pairwise(order):
            if before.low > after.high:
                raise refusal(line, f"{after.text} us is below {before.text} us: min, typical, 99 % and max must rise")
        least, p99, most = (
            numbers.get(name, typical).value * 1e-6 for name in ("t_min[usec]", _ORDER[2], "t_max[usec]")
        )
        summary = percentiles(iterations, least, typical.value * 1e-6, p99, most)
        if _ORDER[3] in numbers:
            settings["p99_9_s"] = numbers[_ORDER[3]].value * 1e-6
    shown = typical or numbers["t_avg[usec]"]
    return [
        point(
            benchmark=test.name,
            quantity="latency_s",
            value=shown.value * 1e-6,
            shown=f"{shown.text} usec {'t_typical' if typical else 't_avg'}",
            line=line,
            method=f"perftest {test.name}",
            parameters=_parameters(test, size),
            settings=settings,
            ranks=2,
            summary=summary,
        )
    ]


_ORDER = ("t_min[usec]", "t_typical[usec]", "99% percentile[usec]", "99.9% percentile[usec]", "t_max[usec]")


def _parameters(test: _Test, size: int) -> dict[str, Scalar]:
    return {"size_bytes": size, "direction": "both" if test.bidirectional else "one"}


def _finished(test: _Test) -> ForeignFile:
    notes = ["the data was not checked"]
    if test.unit == "MB/sec":
        notes.append("MB/sec of perftest is 2^20 bytes/s: newer versions print the same as MiB/sec")
    elif test.unit:
        notes.append(f"{test.unit} is {'2^20 bytes/s' if test.unit == 'MiB/sec' else '10^9 bits/s'}")
    if test.bidirectional:
        notes.append("bidirectional: the bandwidth is the sum of both directions")
    if "t_stdev[usec]" in test.columns:
        notes.append("t_stdev is computed in whole microseconds by perftest, so it is left out")
    return ForeignFile(
        tool="perftest", test=test.name, ranks=2, results=tuple(test.results), notes=(*notes, *test.notes)
    )
