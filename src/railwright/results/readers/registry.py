"""All readers of the output of other tools, and the choice of the one for a text."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple, cast

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import ForeignFile, Reader
from railwright.results.readers.nccl_tests import text as nccl_tests
from railwright.results.readers.nccl_tests.columns import has_rows
from railwright.results.readers.pasted.command_line import environment_of
from railwright.results.readers.pasted.log_lines import bounded
from railwright.results.readers.pasted.prefixes import without_common
from railwright.results.readers.several import apart


class Format(NamedTuple):
    """The format of a tool, whose reader is loaded where a text may have it."""

    module: str
    marks: tuple[str, ...]
    """Words of which every text has at least one that the reader recognises."""

    def may_be_in(self, text: str) -> bool:
        """Whether the reader has to be asked."""
        return any(mark in text for mark in self.marks)

    @property
    def reader(self) -> Reader:
        """The module that reads it."""
        return cast("Reader", import_module(f"railwright.results.readers.{self.module}"))


FORMATS = (
    Format("nccl_tests.text", ("busbw", '"bus_bw"')),
    Format("osu", ("OSU MPI", "Size")),
    Format("perftest.text", ('"BW_average"', "BW average[", "t_avg[usec]")),
    Format("ucx.perftest", ("# iterations |", "overall_lat,avg_bw,overall_bw", "Final:")),
    Format("ucc_perftest", ("Time, us",)),
    Format("nixlbench", ("Block Size (B)",)),
    Format("nvbandwidth.text", ('"nvbandwidth"', "bandwidth (GB/s)")),
    Format("cuda_samples", ("P2P=", "bandwidthTest-", "Memory Transfers")),
    Format("gdsio", ("GiB/sec, Avg_Latency:",)),
    Format("fio.text", ("IOPS=", "Run status group", '"fio version"', ";fio-")),
    Format("fio.text2", ("runt=", "aggrb=")),
    Format("elbencho.text", ("Throughput MiB/s", "ISO Date,Label,Phase,RuntimeMS,", "time ms [last]")),
    Format("ior", ("bw(MiB/s)", "Max(MiB)", "MiB/sec", "write ", "read ")),
    Format("mdtest", ("mdtest", "File creation")),
    Format("imb", ("#repetitions",)),
    Format("iperf3", ("Interval", "bits/sec", '"sum_sent"')),
    Format("kbench", ("FIO Benchmark Summary",)),
    Format("stream", ("Triad", "Copy")),
    Format("linpack.hpl", ("T/V", "||Ax-b||_oo", "WR", "WC")),
    Format("linpack.mkl", ("LDA",)),
    Format("hpcg", ("HPCG result is", "GFLOP/s Summary::Raw Total=", "GF_per")),
    Format("rocm_bandwidth_test", ("copy peak bandwidth GB/s",)),
)


def recognise(text: str) -> tuple[Reader, ...]:
    """The readers whose fixed words are in the text. Raises UsageError when there is none."""
    if found := tuple(_known(bounded(text))):
        return found
    looked_for = ", ".join(_short(known.reader) for known in FORMATS)
    raise UsageError(
        f"no known tool printed this; looked for {looked_for}",
        hint="give the output from the tool's first line, header included",
    )


def _known(text: str) -> Iterator[Reader]:
    """The readers whose fixed words are in the text; where there are none, the one whose rows are."""
    is_known = False
    for known in FORMATS:
        if known.may_be_in(text) and known.reader.recognises(text):
            is_known = True
            yield known.reader
    if not is_known and has_rows(text):
        yield nccl_tests
    elif not is_known:
        from railwright.results.readers.perftest import text as perftest

        if perftest.has_rows(text):
            yield perftest


def _short(reader: Reader) -> str:
    return reader.NAME.partition(" (")[0]


def has_table(text: str) -> bool:
    """Whether a text has the words or the rows of a tool's table."""
    return next(_known(text), None) is not None


def read(text: str, collective: str = "") -> tuple[ForeignFile, ...]:
    """Every run in a text, tool by tool; `collective` is what a table of nccl-tests is that does not say it.

    What all lines begin with is taken off where the text cannot be read with it. Raises UsageError.
    """
    try:
        return _read(text, collective)
    except UsageError:
        bare = without_common(text)
        if bare == text:
            raise
        try:
            return _read(bare, collective)
        except UsageError:
            pass  # the first error is of what was given
        raise


def _read(text: str, collective: str) -> tuple[ForeignFile, ...]:
    """The runs of every tool in the text. Raises UsageError where no tool's can be read."""
    readers = recognise(text)
    parts = ((readers[0], text),) if len(readers) == 1 else apart(text, readers)
    files: list[ForeignFile] = []
    refused: list[tuple[Reader, UsageError]] = []
    for reader, part in parts:
        try:
            files += _of(reader, part, collective)
        except UsageError as error:
            refused.append((reader, error))
    if not files:
        raise refused[0][1]
    notes = [f"{_short(reader)} is in the text too: {error.message}" for reader, error in refused]
    files.sort(key=_first_line)
    files[0] = replace(files[0], notes=(*files[0].notes, *notes))
    return tuple(files)


def _first_line(file: ForeignFile) -> int:
    """Where its first row stands; a run of which no row can be judged has none."""
    return int(file.results[0].settings.get("line", 0)) if file.results else 0


def _of(reader: Reader, text: str, collective: str) -> Iterator[ForeignFile]:
    files = nccl_tests.read(text, collective) if reader is nccl_tests else reader.read(text)
    shared = environment_of(text.splitlines()) if len(files) == 1 else {}
    for file in files:
        yield replace(file, environment={**shared, **file.environment})
