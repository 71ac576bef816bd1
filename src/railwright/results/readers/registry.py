"""The registry of all readers, and the choice of readers for a text and for each of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple, cast

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import ForeignFile, NoRows, Reader
from railwright.results.readers.nccl_tests import text as nccl_tests
from railwright.results.readers.nccl_tests.rows import has_rows
from railwright.results.readers.pasted.command_line import parse_environment
from railwright.results.readers.pasted.log_lines import check_length
from railwright.results.readers.pasted.prefixes import remove_common_prefix

_NUMBER = re.compile(r"[\d.,:+-]*\d[\d.,:%a-zA-Z/]*")
_LEAST_WORDS = 2
_KEYS = ('"bus_bw"', '"BW_average"', '"bandwidth_matrix"', '"fio version"', '"sum_sent"')
"""A JSON report that a reader knows has one of these."""


class Format(NamedTuple):
    """The format of a tool's output. Its reader is loaded only if a text may have the format."""

    tool: str
    module: str
    marks: tuple[str, ...]
    """Every text that the reader recognizes contains at least one of these."""

    @property
    def reader(self) -> Reader:
        """The module that reads the format."""
        return cast("Reader", import_module(f"railwright.results.readers.{self.module}"))

    def may_be_in(self, text: str) -> bool:
        """Report whether the reader must inspect the text."""
        return any(mark in text for mark in self.marks)

    def is_in(self, text: str) -> bool:
        """Report whether the text has the fixed words of the format."""
        return self.may_be_in(text) and self.reader.recognises(text)


_NCCL_TESTS = Format("nccl-tests", "nccl_tests.text", ("busbw", '"bus_bw"'))
_PERFTEST = Format("perftest", "perftest.text", ('"BW_average"', "BW average[", "t_avg[usec]"))
FORMATS = (
    _NCCL_TESTS,
    Format("OSU Micro-Benchmarks", "osu", ("OSU MPI", "Size")),
    _PERFTEST,
    Format("ucx_perftest", "ucx.perftest", ("# iterations |", "overall_lat,avg_bw,overall_bw", "Final:")),
    Format("ucc_perftest", "ucc_perftest", ("Time, us",)),
    Format("nixlbench", "nixlbench", ("Block Size (B)",)),
    Format("nvbandwidth", "nvbandwidth.text", ('"nvbandwidth"', "bandwidth (GB/s)")),
    Format(
        "p2pBandwidthLatencyTest, busGrind and bandwidthTest",
        "cuda_samples",
        ("P2P=", "bandwidthTest-", "Memory Transfers", "Host/Device"),
    ),
    Format("gdsio", "gdsio", ("GiB/sec, Avg_Latency:",)),
    Format("fio", "fio.text", ("IOPS=", "samples=", "Run status group", '"fio version"', ";fio-")),
    Format("fio 2", "fio.text2", ("runt=", "aggrb=")),
    Format("elbencho", "elbencho.text", ("Throughput MiB/s", "ISO Date,Label,Phase,RuntimeMS,", "time ms [last]")),
    Format("IOR", "ior", ("bw(MiB/s)", "Max(MiB)", "MiB/sec", "write ", "read ")),
    Format("mdtest", "mdtest", ("mdtest", "File creation")),
    Format("IMB", "imb", ("#repetitions",)),
    Format("iperf3", "iperf3", ("Interval", "bits/sec", '"sum_sent"')),
    Format("kbench", "kbench", ("FIO Benchmark Summary",)),
    Format("STREAM", "stream", ("Triad", "Copy")),
    Format("HPL", "linpack.hpl", ("T/V", "||Ax-b||_oo", "WR", "WC")),
    Format("Intel LINPACK", "linpack.mkl", ("LDA",)),
    Format("HPCG", "hpcg", ("HPCG result is", "GFLOP/s Summary::Raw Total=", "GF_per")),
    Format("rocm_bandwidth_test", "rocm_bandwidth_test", ("copy peak bandwidth GB/s",)),
    Format("DeepEP", "deepep", ("[tuning]", "ombine bandwidth: ")),
)
_OWN_TABLE = Format("a script's own table", "own_table", ("/s", "ps", "bw", "andwidth"))
"""The format of last resort: any table of sizes and rates with a unit."""


class UnknownText(UsageError):
    """The text matches no known tool."""


def recognise(text: str) -> tuple[Format, ...]:
    """Return the formats whose fixed words are in the text. Raises UsageError if there is none."""
    if found := tuple(_find_formats(check_length(text))):
        return found
    raise UnknownText(
        f"the text matches no known tool; looked for {', '.join(known.tool for known in FORMATS)}",
        hint="give the output starting with the tool's first line, header included",
    )


def _find_formats(text: str) -> Iterator[Format]:
    """Yield the formats whose fixed words are in the text. If there are none, yield the one whose rows are in it."""
    is_known = False
    for known in FORMATS:
        if known.is_in(text):
            is_known = True
            yield known
    if not is_known and has_rows(text):
        yield _NCCL_TESTS
    elif not is_known:
        from railwright.results.readers.perftest import text as perftest

        if perftest.has_rows(text):
            yield _PERFTEST


def has_table(text: str) -> bool:
    """Report whether a text has the words or the rows of a tool's table, or a script's own."""
    return next(_find_formats(text), None) is not None or _OWN_TABLE.is_in(text)


def read(text: str, collective: str = "") -> tuple[ForeignFile, ...]:
    """Read every run in a text, tool by tool.

    `collective` is the operation of nccl-tests tables that do not name theirs.

    If the text is unreadable, it is read again without the prefix that all lines share, then as a script's own table
    if it has no format. Raises UsageError, about the text as given, if none is readable.
    """
    if any(key in text for key in _KEYS):
        from railwright.results.readers.pasted.json_texts import split_json

        found, rest = split_json(text)
        if reports := [report for report in found if any(key in report for key in _KEYS)]:
            return _read_reports(reports, rest, collective)
    try:
        return _read(text, collective)
    except UsageError as error:
        bare = remove_common_prefix(text)
        is_known = not isinstance(error, NoRows) and any(
            next(_find_formats(part), None) is not None for part in {text, bare}
        )
        with suppress(UsageError):  # the first error describes the text as given
            if bare != text:
                return _read(bare, collective)
        for part in (text, bare) if not is_known and _OWN_TABLE.is_in(text) else ():
            with suppress(UsageError):
                return _OWN_TABLE.reader.read(part)
        raise


def _read_reports(reports: Sequence[str], rest: str, collective: str) -> tuple[ForeignFile, ...]:
    """Read every JSON report, and the tables of other tools beside them."""
    files = [file for report in reports for file in _read(report, collective)]
    tools = {file.tool for file in files}
    with suppress(UsageError):
        files += [file for file in _read(rest, collective) if file.tool not in tools]
    return tuple(files)


def _read(text: str, collective: str) -> tuple[ForeignFile, ...]:
    """Read the runs of every tool in the text. Raises UsageError if no tool's output is readable."""
    files: list[ForeignFile] = []
    refused: list[tuple[Format, UsageError]] = []
    for known, part in _split_formats(text, recognise(text)):
        try:
            files += _read_format(known, part, collective)
        except UsageError as error:
            refused.append((known, error))
    if not files:
        raise refused[0][1]
    notes = [f"the text also has output of {known.tool}: {error.message}" for known, error in refused]
    files.sort(key=_first_line)
    files[0] = replace(files[0], notes=(*files[0].notes, *notes))
    return tuple(files)


def _first_line(file: ForeignFile) -> int:
    """Return the line of the first row, or 0 if the run has no results."""
    return int(file.results[0].settings.get("line", 0)) if file.results else 0


def _read_format(known: Format, text: str, collective: str) -> Iterator[ForeignFile]:
    files = nccl_tests.read(text, collective) if known is _NCCL_TESTS else known.reader.read(text)
    shared = parse_environment(text.splitlines()) if len(files) == 1 else {}
    for file in files:
        yield replace(file, environment={**shared, **file.environment})


def _split_formats(text: str, formats: Sequence[Format]) -> Iterator[tuple[Format, str]]:
    """Yield each format with its part of the text. The lines of others are blank there, which keeps the line numbers.

    A format whose fixed words span several lines gets the whole text, because its rows are unmistakable.
    """
    lines = text.split("\n")
    owners = _assign_lines(lines, formats) if len(formats) > 1 else []
    for known in formats:
        if known in owners:
            own = (line if owner is known else "" for line, owner in zip(lines, owners, strict=True))
            yield known, "\n".join(own)
        else:
            yield known, text


def _assign_lines(lines: list[str], formats: Sequence[Format]) -> list[Format]:
    """Return the format of each line.

    Lines between the last row of a table and the next header belong to the next table.
    """
    claims: list[tuple[int, Format]] = []
    for place, line in enumerate(lines):
        by = [known for known in formats if line and known.is_in(line)]
        claims += [(place, by[0])] if len(by) == 1 else []
    owners: list[Format] = []
    for (place, known), (following, other) in zip(claims, [*claims[1:], (len(lines), None)], strict=False):
        end = following
        if other not in (known, None):
            rows = (at for at in range(following - 1, place, -1) if _is_row(lines[at]))
            end = next(rows, place) + 1
        owners += [known] * (end - len(owners))
        if other is not None:
            owners += [other] * (following - len(owners))
    return owners


def _is_row(line: str) -> bool:
    """Report whether most words of a line are numbers."""
    words = line.split()
    return len(words) >= _LEAST_WORDS and 2 * sum(_NUMBER.fullmatch(word) is not None for word in words) >= len(words)
