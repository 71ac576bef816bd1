"""Reader of iperf3 3.0 to 3.17, as text or with -J, and of iperf 2, whose first lines differ.

    [ ID] Interval           Transfer     Bitrate         Retr
    [  5]   0.00-10.00  sec  10.9 GBytes  9.39 Gbits/sec    0             sender
    [  5]   0.00-10.04  sec  10.9 GBytes  9.37 Gbits/sec                  receiver

Transfer is in powers of 1024 bytes, the rate in powers of 1000 bits (iperf3 src/units.c). The result is the
receiver's row, or the row `[SUM]` of several streams. With --bidir each direction is a result.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from railwright.errors import UsageError
from railwright.groups import group_by_key
from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, collect_files, decode_json
from railwright.results.readers.pasted.log_lines import Line, refusal, split_runs
from railwright.results.readers.pasted.printed_numbers import number
from railwright.results.workload import Message
from railwright.topology.devices import Scalar
from railwright.units import format_count

_ROW = re.compile(
    r"\[\s{0,4}(SUM|\d{1,5})\](?:\[([TR]X)-[CS]\])?\s{1,8}(\d{1,7}\.\d{1,4})-\s?(\d{1,7}\.\d{1,4})\s{1,8}sec\s{1,8}"
    r"(\d{1,12}(?:\.\d{1,3})?) ([KMGT]?)Bytes\s{1,8}(\d{1,12}(?:\.\d{1,3})?) ([KMGT]?)(bits|Bytes)/sec(.{0,120})"
)
_PARALLEL = re.compile(r"\s(?:-P|--parallel)[ =]?(\d{1,4})(?:\s|$)")
_CONNECTED = re.compile(r"\] local ([\w.:%-]{2,60}) port \d{1,5} connected (?:to|with) ([\w.:%-]{2,60}) port \d")
_END = re.compile(r'"end"\s{0,64}:\s{0,64}(\{)(?=\s{0,64}"(?:streams|sum))')
_START_FIELDS = (
    re.compile(r'"version"\s{0,64}:\s{0,64}"([^"]{1,40})"'),
    re.compile(r'"protocol"\s{0,64}:\s{0,64}"(\w{1,8})"'),
    re.compile(r'"num_streams"\s{0,64}:\s{0,64}(\d{1,4})\b'),
)
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DECIMALS = 2
_ROUNDED = 0.06
"""The relative tolerance. Printed rates and bytes have three digits, and the printed interval is not exact."""


class _Sum(msgspec.Struct):
    seconds: float
    bytes: float
    bits_per_second: float


class _End(msgspec.Struct):
    sum_sent: _Sum | None = None
    sum_received: _Sum | None = None
    sum_received_bidir_reverse: _Sum | None = None


class _Test(msgspec.Struct):
    protocol: str = "TCP"
    num_streams: int = 1


class _Start(msgspec.Struct):
    version: str = ""
    test_start: _Test = msgspec.field(default_factory=_Test)


class _Report(msgspec.Struct):
    start: _Start
    end: _End


class _Row(NamedTuple):
    """A printed interval of a stream, or of all streams."""

    line: int
    stream: str
    way: str
    """`TX` or `RX` with --bidir, otherwise empty."""
    end: str
    """`sender`, `receiver`, or empty for an interval."""
    interval: str
    seconds: float
    bytes_per_s: float
    shown: str
    retransmits: int | None


def recognises(text: str) -> bool:
    """Report whether the text has the header of the rows, rows alone, or the keys of a -J report."""
    as_text = "Interval" in text and "Transfer" in text and ("Bitrate" in text or "Bandwidth" in text)
    rows_alone = "bits/sec" in text and "Bytes " in text and " sec " in text and "]" in text
    return (as_text and ("its/sec" in text or "Bytes/sec" in text)) or rows_alone or _is_json(text)


def _is_json(text: str) -> bool:
    return '"sum_sent"' in text and '"bits_per_second"' in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every run. Raises UsageError for a rate that contradicts its bytes, or for a text without rows."""
    if _is_json(text):
        return collect_files(
            _read_json(text),
            "iperf3's report must contain the sum of the bytes sent, got none",
            "give the report of a whole run",
        )
    runs = split_runs(text, lambda line: line.text.lstrip().startswith(("Connecting to host", "Client conn")))
    hint = "give the output to the end, with the sender and receiver rows"
    runs = [part for run in runs for part in _split_versions(run)]
    return collect_files(
        map(_read_run, runs), "iperf's output must contain a row ([ ID] Interval ... sec ... bits/sec), got none", hint
    )


def _split_versions(lines: list[Line]) -> list[list[Line]]:
    """Split a text that has rows of both iperf 2 and iperf3: only the latter name the sender and the receiver.

    iperf3 prints two decimals of a second, iperf 2 one or four.
    """
    rows = {line.number: row for line in lines if (row := _parse_row(line)) is not None}
    forms = {number: len(row.interval.rpartition(".")[2]) == _DECIMALS for number, row in rows.items()}
    named = {forms[number] for number, row in rows.items() if row.end}
    if named != {True} or all(forms.values()):
        return [lines]
    parts: list[list[Line]] = [[]]
    form: bool | None = None
    for line in lines:
        if (of_line := forms.get(line.number, form)) != form and form is not None:
            parts.append([])
        form = of_line
        parts[-1].append(line)
    return parts


def _read_run(lines: list[Line]) -> Draft:
    draft = _new_draft("UDP" if any("Datagrams" in line.text for line in lines) else "TCP")
    draft.notes.append("the rate is in powers of 1000 bits")
    rows: list[_Row] = []
    for line in lines:
        if draft.hosts is None and (ends := _CONNECTED.search(line.text)):
            draft.hosts = 1 if ends[1] == ends[2] else 2
        if found := _PARALLEL.search(line.text):
            draft.parameters["streams"] = int(found[1])
        elif (row := _parse_row(line)) is not None:
            rows.append(row)
    streams = {row.stream for row in rows}
    several, asked = len(streams - {"SUM"}), draft.parameters.get("streams", 0)
    if several > 1:
        draft.parameters["streams"] = several
    if "SUM" not in streams and isinstance(asked, int) and 0 < several < asked:
        draft.notes.append(
            f"the text has {several} of {asked} streams: the rate is the sum of these, less than that of all"
        )
    for row in _select_result_rows(rows):
        settings: dict[str, Scalar] = {"duration_s": row.seconds}
        settings |= {} if row.retransmits is None else {"retransmits": row.retransmits}
        _add(draft, row.line, row.bytes_per_s, row.shown, row.way, settings)
    if again := _count_retransmits(rows):
        draft.notes.append(f"{format_count(again, 'segment')} had to be sent again")
    if draft.hosts == 2:
        draft.notes.append("the ends have two addresses and are assumed to be two hosts")
    if rows and all(row.interval.startswith("0.0-") for row in rows):
        draft.notes.append("the rows have the form of iperf 2")
    elif rows and not any(row.end for row in rows):
        draft.notes.append("the text lacks the end of the run: these rows are its intervals")
    return draft


def _count_retransmits(rows: Sequence[_Row]) -> int:
    """Return the segments that the sender sent again: of all streams, or of the intervals where the end is missing."""
    told = [row for row in rows if row.retransmits is not None]
    told = [row for row in told if row.end] or told
    return sum(row.retransmits or 0 for row in [row for row in told if row.stream == "SUM"] or told)


def _new_draft(protocol: str, version: str = "") -> Draft:
    """Create a run over sockets. Datagrams are sent at the requested rate, so they have no limit."""
    draft = Draft(tool="iperf3", version=version, test="iperf3", ranks=2, settings={"protocol": protocol})
    draft.workload = None if protocol == "UDP" else Message(by="sockets")
    return draft


def _parse_row(line: Line) -> _Row | None:
    found = _ROW.search(line.text)
    if found is None:
        return None
    stream, way, start, end, moved, unit, rate, scale, kind, rest = found.groups()
    seconds, shown = float(end) - float(start), f"{rate} {scale}{kind}/sec"
    printed = number(rate, "rate", line.number)
    bytes_per_s = printed.value * _SCALE[scale] / 8 if kind == "bits" else printed.value * _BINARY[scale]
    amount = number(moved, "transfer", line.number)
    about = amount.value * _BINARY[unit] / seconds if seconds > 0 else 0.0
    if seconds >= 1 and amount.value >= 1 and abs(about - bytes_per_s) > _ROUNDED * max(about, bytes_per_s):
        raise refusal(line.number, f"{amount.text} {unit}Bytes in {seconds:g} s are not {shown}")
    words = rest.split()
    retried = int(words[0]) if words and words[0].isdecimal() and len(words[0]) <= 12 else None
    last = next((word for word in ("sender", "receiver") if word in words), "")
    return _Row(line.number, stream, way or "", last, f"{start}-{end}", seconds, bytes_per_s, shown, retried)


def _select_result_rows(rows: list[_Row]) -> list[_Row]:
    """Return the rows that become results, of each direction the sum of the streams as received, otherwise as sent.

    If the text lacks the end of the run, these are the sums of its intervals.
    """
    ended = [row for row in rows if row.end] or rows
    found: list[_Row] = []
    for way in dict.fromkeys(row.way for row in ended):
        same = [row for row in ended if row.way == way]
        summed = [row for row in same if row.stream == "SUM"] or _sum_streams(same)
        received = [row for row in summed if row.end == "receiver" and row.bytes_per_s > 0]
        found += received or summed
    return found


def _sum_streams(rows: list[_Row]) -> list[_Row]:
    """Sum the streams of each interval, as the row [SUM] does, except in intervals that are cut."""
    found = []
    intervals = [same for _, same in group_by_key(rows, lambda row: (row.end, row.interval))]
    most = max(len(same) for same in intervals) if len(intervals) > 1 else 0
    for place, same in enumerate(intervals):
        if len(same) < most and place in (0, len(intervals) - 1):
            continue
        if len({row.stream for row in same}) < max(len(same), 2):  # a single stream, or several runs of it
            found += same
            continue
        rate = sum(row.bytes_per_s for row in same)
        retried = [row.retransmits for row in same if row.retransmits is not None]
        shown = f"{8 * rate / 1e9:.3g} Gbits/sec"
        found.append(same[0]._replace(bytes_per_s=rate, shown=shown, retransmits=sum(retried) if retried else None))
    return found


def _add(draft: Draft, line: int, bytes_per_s: float, shown: str, way: str, settings: dict[str, Scalar]) -> None:
    value = MeasuredValue("bandwidth_bytes_per_s", bytes_per_s, shown)
    draft.add(line, [value], {"direction": way} if way else {}, settings)


def _read_json(text: str) -> list[Draft]:
    """Read the report. If it is truncated, or if there are several, read every `end` object that is readable."""
    try:
        hint = "give the report whole, braces included"
        report = decode_json(text[text.index("{") :], _Report, "report of iperf3 -J", hint)
    except UsageError:
        ends = list(_find_reports(text))
        if not ends:
            raise
        return [_convert_report(one, f"report {number} of {len(ends)}") for number, one in enumerate(ends, 1)]
    return [_convert_report(report, "")]


def _find_reports(text: str) -> Iterator[_Report]:
    """Yield a report for each readable `end` object, with the version, protocol and number of streams before it."""
    before = 0
    for found in _END.finditer(text):
        with contextlib.suppress(ValueError, RecursionError, msgspec.ValidationError):
            decoded, last = json.JSONDecoder().raw_decode(text, found.start(1))
            end = msgspec.convert(decoded, _End, strict=True)
            version, protocol, streams = (one.search(text, before, found.start()) for one in _START_FIELDS)
            test = _Test(protocol=protocol[1] if protocol else "TCP", num_streams=int(streams[1]) if streams else 1)
            yield _Report(start=_Start(version=version[1] if version else "", test_start=test), end=end)
            before = last


def _convert_report(report: _Report, place: str) -> Draft:
    test, end = report.start.test_start, report.end
    draft = _new_draft(test.protocol[:8], report.start.version.partition("iperf ")[2][:16])
    if place:
        draft.notes.append(f"{place}: the report is not complete here, so only its end was read")
    if test.num_streams > 1:
        draft.parameters["streams"] = test.num_streams
    ways = (("", end.sum_received or end.sum_sent), ("reverse", end.sum_received_bidir_reverse))
    for way, found in ways:
        if found is None or not 0 < found.seconds < 1e9:
            continue
        if abs(found.bytes / found.seconds - found.bits_per_second / 8) > 0.01 * max(found.bits_per_second / 8, 1.0):
            raise refusal(1, f"{found.bytes:g} bytes in {found.seconds:g} s is not {found.bits_per_second:g} bits/s")
        shown = f"{found.bits_per_second / 1e9:.3g} Gbits/sec"
        _add(draft, 1, found.bits_per_second / 8, shown, way, {"duration_s": found.seconds})
    return draft
