"""Reader of perftest 4.x to 6.x: ib_write_bw, ib_read_bw, ib_send_bw, ib_atomic_bw and their _lat.

                        RDMA_Write BW Test
     Dual-port       : OFF          Device         : mlx5_0
     Mtu             : 4096[B]
     #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
     65536      5000             197.82             197.80               0.377276

The header names one of three units: MiB/sec, MB/sec (older versions; the same 2^20 bytes/s) and Gb/sec (10^9 bits/s).
The message rate times the size is the average bandwidth, which confirms the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    bandwidth,
    collect_files,
    latency,
    percentiles,
)
from railwright.results.readers.pasted.log_lines import (
    ENDED_BY_ERROR,
    Line,
    last_row,
    parse_columns,
    refusal,
    split_runs,
)
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap, parse_integer
from railwright.results.readers.perftest import json as perftest_json
from railwright.results.workload import Message
from railwright.topology.devices import Scalar

_TITLE = re.compile(
    r"(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm|_with_imm)?(?: (FETCH_AND_ADD|CMP_AND_SWAP))?"
    r"( Bidirectional)?( Post List)? (BW|Latency)(?: forwarding| Multicast)? Test"
)
_ERROR = re.compile(r"Failed status \d{1,3}\b|Completion with error\b.{0,60}|Failed to complete \w{1,40} function")
_PROGRAM = re.compile(r"\bib_(?:send|write|read|atomic)_(?:bw|lat)\b")
_COLUMN = re.compile(
    r"#bytes|#sl|#iterations|BW peak\[\S{1,8}\]|BW average\[\S{1,8}\]|MsgRate\[Mpps\]|BW Port[12]\[\S{1,8}\]"
    r"|MsgRate Port[12]\[Mpps\]|CPU_Util\[%{1,2}\]|t_(?:min|max|typical|avg|stdev)\[usec\]"
    r"|99(?:\.9)?% percentile\[usec\]|tps average"
)
_HEADER = re.compile(r"#bytes\b|\bbytes(?=\s{1,24}#?iterations\b)")
_BARE = re.compile(r"(?<!#)\biterations\b")
"""The second column without its #, which a document format took for the mark of a heading, or which was left out."""
_UNIT = re.compile(r"BW average\[(\S{1,8})\]")
_BYTES_PER_S = {"MiB/sec": 2.0**20, "MB/sec": 2.0**20, "Gb/sec": 1e9 / 8}
_ROW_ALONE = re.compile(
    r"(?m)^[ \t]{0,16}(\d{1,12})\s{1,24}\d{1,12}\s{1,24}\d[\d.]{2,16}\s{1,24}(\d[\d.]{2,16})"
    r"\s{1,24}(\d\.\d{3,9})[ \t]*$"
)
"""A row without its header: five numbers, of which the first x the last is the fourth, in some unit."""
_COLUMNS_ALONE = ("#bytes", "#iterations", "BW peak[{}]", "BW average[{}]", "MsgRate[Mpps]")
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

_KNOWN_TO = 0.01
"""The relative precision that a message rate needs to identify a unit."""
_ORDER = ("t_min[usec]", "t_typical[usec]", "99% percentile[usec]", "99.9% percentile[usec]", "t_max[usec]")


class _Test(Draft, kw_only=True):
    unit: str = ""
    """The unit of the bandwidths, as in the header."""


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table."""
    if perftest_json.recognises(text):
        return True
    is_table = "BW average[" in text or ("t_avg[usec]" in text and "#repetitions" not in text)
    return is_table and _HEADER.search(text) is not None


def has_rows(text: str) -> bool:
    """Report whether a text without the header has unmistakable rows."""
    return any(_derive_unit(found) for found in _ROW_ALONE.finditer(text))


def _derive_unit(row: re.Match[str]) -> str:
    """Derive the unit of a row's bandwidths from its message rate; "" if it is not a row of five columns."""
    size, average, rate = int(row[1]), number(row[2], "BW average", 0), number(row[3], "MsgRate", 0)
    if not size or average.value <= 0 or rate.half > _KNOWN_TO * rate.value:
        return ""
    return next((unit for unit in ("Gb/sec", "MB/sec")
                 if overlap(average.range(), rate.range(1e6 * size / _BYTES_PER_S[unit]))), "")  # fmt: skip


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table of the text.

    Raises UsageError for a contradictory table, or for a text without rows. A table without the name of its test is
    named by its columns.
    """
    if perftest_json.recognises(text):
        return perftest_json.read(text)
    return collect_files(
        map(_read_test, split_runs(text, _begins)),
        "perftest's output must contain a row (#bytes, #iterations, ...), got none",
        "give the client's output starting with the line '... BW Test' or '... Latency Test'",
    )


def _begins(line: Line) -> bool:
    return _TITLE.search(line.text) is not None


def _read_test(part: list[Line]) -> _Test:
    """Read a table. Without a title, its test is the last program named above it."""
    test = _Test(tool="perftest", ranks=2, last_line=last_row(part))
    failed = ""
    title = _TITLE.search(part[0].text)
    if title:
        test.test = f"ib_{_VERB[title[1]]}_{'bw' if title[5] == 'BW' else 'lat'}"
    both_ways = title is not None and title[3] is not None
    test.parameters["direction"] = "both" if both_ways else "one"
    for line in part[1:] if title else part:
        text = line.text
        if found := _HEADER.search(text):
            header = f"#bytes{_BARE.sub('#iterations', text[found.end() :])}".expandtabs()
            test.columns = parse_columns(header, _COLUMN, line.number, shown=text.strip()[:100])
            if found := _UNIT.search(text):
                test.unit = found[1]
                if test.unit not in _BYTES_PER_S:
                    raise refusal(line.number, f"unit must be one of {', '.join(_BYTES_PER_S)}, got {test.unit!r}")
        elif test.columns and (found := _ERROR.search(text)):
            failed = failed or f"{ENDED_BY_ERROR}: {found[0]}"
        elif test.columns or ((row := _ROW_ALONE.match(text)) and (unit := _derive_unit(row))):
            if not test.columns:
                test.unit, test.columns = unit, [name.format(unit) for name in _COLUMNS_ALONE]
            _read_row(test, text.split(), line.number)
        elif found := _PROGRAM.search(text[:1000]):
            test.test = test.test if title else found[0]
            _take_settings(test, text[:1000])
        else:
            _take_settings(test, text)
    test.notes = [*_notes(test), *test.notes, *([failed] if failed else [])]
    on_gpus = "gpu_memory" in test.settings
    test.workload = Message(
        by="verbs",
        one_sided="send" not in test.test,
        both_ways=both_ways,
        from_gpu=on_gpus,
        to_gpu=on_gpus,
        connection=str(test.settings.get("connection", "")),
        has_grh=test.settings.get("link_type") == "IB" and "gid_index" in test.settings,
    )
    return test


def _take_settings(test: _Test, text: str) -> None:
    if "--use_cuda" in text or "--use_rocm" in text or "initializing CUDA" in text:
        test.settings["gpu_memory"] = True
    for key, value in _SETTING.findall(text):
        name, is_number = _KEYS[key]
        if not is_number:
            test.settings[name] = value
            if name == "connection" and value != "RC":
                test.parameters[name] = value
        elif value.isdecimal():
            test.settings[name] = int(value)


def _read_row(test: _Test, words: list[str], line: int) -> None:
    if len(words) < 2 or not words[0].isdecimal() or not words[1].isdecimal():
        return
    if len(words) == len(test.columns) + 1 and test.unit and "MsgRate[Mpps]" not in test.columns:
        test.columns.append("MsgRate[Mpps]")  # the header lost this column when it was copied
    cells = test.cells(words, line)
    if not cells:
        return
    if not test.test:
        latency = any("t_avg" in column or "t_typical" in column for column in test.columns)
        test.test = "ib_lat" if latency else "ib_bw"
        test.notes.append(f"the text does not name the perftest program; {test.test} has the same columns")
    size = parse_integer(cells.pop("#bytes"), "#bytes", line)
    test.rise_to(size, line, may_repeat=True)
    iterations = parse_integer(cells.pop("#iterations"), "#iterations", line)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    add = _add_latency if "t_avg[usec]" in numbers else _add_bandwidth
    add(test, numbers, size, iterations, line)


def _add_bandwidth(test: _Test, numbers: dict[str, Number], size: int, iterations: int, line: int) -> None:
    unit, scale = test.unit, _BYTES_PER_S[test.unit]
    average, peak = numbers[f"BW average[{unit}]"], numbers.get(f"BW peak[{unit}]")
    settings: dict[str, Scalar] = {"iterations": iterations}
    if peak is not None and peak.value > 0:  # 0 means not measured (-D, -N)
        if average.low > peak.high * 1.02:
            raise refusal(line, f"average {average.text} is above the peak {peak.text} {unit}")
        settings["peak_bytes_per_s"] = peak.value * scale
    values = [bandwidth(average, scale, unit)]
    if rate := numbers.get("MsgRate[Mpps]"):
        if not overlap(average.range(), rate.range(1e6 * size / scale)):
            computed = f"{rate.text} Mpps x {size} bytes = {rate.value * 1e6 * size / scale:.2f} {unit}"
            raise refusal(line, f"average {average.text} {unit} is not {computed}")
        values.append(MeasuredValue("messages_per_s", rate.value * 1e6, f"{rate.text} Mpps"))
    test.add(line, values, {"size_bytes": size}, settings)


def _add_latency(test: _Test, numbers: dict[str, Number], size: int, iterations: int, line: int) -> None:
    average, typical = numbers["t_avg[usec]"], numbers.get("t_typical[usec]")
    settings: dict[str, Scalar] = {"iterations": iterations, "mean_s": average.value * 1e-6}
    if typical is None:
        value = latency(average, "usec t_avg")
    else:
        for before, after in pairwise(numbers[name] for name in _ORDER if name in numbers):
            if before.low > after.high:
                raise refusal(line, f"min, typical, 99 % and max must rise, got {after.text} us after {before.text} us")
        minimum, median, p99, p99_9, maximum = (numbers.get(name, typical).value * 1e-6 for name in _ORDER)
        summary = percentiles(iterations, minimum, median, p99, maximum)
        value = MeasuredValue("latency_s", median, f"{typical.text} usec t_typical", summary)
        if _ORDER[3] in numbers:
            settings["p99_9_s"] = p99_9
    test.add(line, [value], {"size_bytes": size}, settings)


def _notes(test: _Test) -> Iterator[str]:
    yield "the data was not checked"
    if test.unit == "MB/sec":
        yield "MB/sec of perftest is 2^20 bytes/s: newer versions print the same value as MiB/sec"
    elif test.unit:
        yield f"{test.unit} is {'2^20 bytes/s' if test.unit == 'MiB/sec' else '10^9 bits/s'}"
    if test.parameters["direction"] == "both":
        yield "bidirectional: the bandwidth is the sum of both directions"
    if "t_stdev[usec]" in test.columns:
        yield "perftest computes t_stdev in whole microseconds, so it is left out"
