"""Tables that NCCL's own log cut apart: joined if every part is certain, otherwise refused with the line."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.results.readers.recorded import sizes, text, value

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.nccl_tests import text as nccl_tests

HEALTHY = "nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt"
HEAD, HALF = 5, 4
"""Columns of size to root, and of each half (time, algbw, busbw, #wrong)."""
MESSAGE = "21:21 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}"
MIB = 2**20


def read(log: str) -> ForeignFile:
    (file,) = nccl_tests.read(log)
    return file


def rows_of(log: str) -> list[str]:
    return [line for line in log.split("\n") if line.strip()[:1].isdigit()]


def torn(log: str, tear: Callable[[list[str]], list[str]], host: str = "node1", *, known: bool = True) -> str:
    """Return the table with every row replaced by `tear(columns)`. With `known`, a whole line names the host."""
    for row in rows_of(log):
        log = log.replace(row, "\n".join(tear(row.split())))
    return (f"{host}:{MESSAGE}\n" if known else "") + log


def parts(columns: list[str], host: str = "node1", *, at: tuple[int, ...] = (HEAD, HEAD + HALF)) -> list[str]:
    """Return the lines of a row that messages cut at the given columns."""
    edges = (0, *at, len(columns))
    lines: list[str] = []
    for start, end in pairwise(edges):
        part = "   ".join(columns[start:end])
        lines += [part] if end == len(columns) else [f"{part}{host}:{MESSAGE}", f"{host}:{MESSAGE}"]
    return lines


@pytest.mark.parametrize(
    ("name", "out_of_place_us", "first_line"),
    [("p2p-off", [79.32, 113.19, 186.00], 170), ("socket", [508.42, 784.84, 1698.78], 155)],
)
def test_recorded_rows_without_their_in_place_half_give_the_out_of_place_one(
    name: str, out_of_place_us: list[float], first_line: int
) -> None:
    file = read(text(f"nccl-log/2.28.9-{name}-2xh200.log"))
    assert (file.test, file.ranks, file.hosts) == ("all_reduce", 2, 1)
    assert sizes(file.results) == [MIB, 2 * MIB, 4 * MIB]
    assert {result.parameters["placement"] for result in file.results} == {"out_of_place"}
    for result, microseconds in zip(file.results, out_of_place_us, strict=True):
        assert value(result) == pytest.approx(result.parameters["size_bytes"] / microseconds * 1e6)
        assert result.verification is not None
        assert result.verification.bytes_wrong == 0
    assert file.results[0].settings["line"] == first_line
    assert "NCCL's log cut the rows apart: the text lacks the in-place half of 3" in file.notes
    assert any("rows are missing" in note for note in file.notes)


@pytest.mark.parametrize("at", [(HEAD,), (HEAD + HALF,), (HEAD, HEAD + HALF)])
@pytest.mark.parametrize("host", ["node1", "10node", "e07", "10.0.0.7", "n"])
def test_rows_cut_where_nccl_tests_prints_them_are_the_rows_as_they_were(host: str, at: tuple[int, ...]) -> None:
    whole, cut = read(text(HEALTHY)), read(torn(text(HEALTHY), lambda row: parts(row, host, at=at), host))
    assert [(one.parameters, one.samples, one.verification) for one in cut.results] == [
        (one.parameters, one.samples, one.verification) for one in whole.results
    ]
    assert cut.notes == whole.notes
    assert (cut.ranks, cut.hosts) == (2, 2)


def test_warnings_and_other_programs_between_the_parts_do_not_matter() -> None:
    warning = "21:21 [0] transport/net.cc:12 NCCL WARN slow"

    def tear(row: list[str]) -> list[str]:
        lines = parts(row)
        return [lines[0].replace(MESSAGE, warning), "12:00:01 INFO a program", *lines[1:]]

    assert len(read(torn(text(HEALTHY), tear)).results) == len(read(text(HEALTHY)).results)


@pytest.mark.parametrize("host", ["node1", "10node", "e07"])
def test_a_host_that_no_whole_line_names_is_not_told_from_the_number_before_it(host: str) -> None:
    with pytest.raises(UsageError, match=r"^line \d+: 17 columns where the header has 13"):
        read(torn(text(HEALTHY), lambda row: parts(row, host)[::2], host, known=False))


def test_two_hosts_of_which_one_name_ends_the_other_are_not_told_apart() -> None:
    other = f"1node1:{MESSAGE}\n"
    with pytest.raises(UsageError, match=r"^line \d+: 17 columns where the header has 13"):
        read(other + torn(text(HEALTHY), lambda row: parts(row, "1node1"), "node1"))


@pytest.mark.parametrize("at", [(3,), (HEAD + 1,), (HEAD, HEAD + 2), (HEAD, HEAD + HALF + 1)])
def test_a_row_that_is_cut_anywhere_else_is_refused_with_its_line(at: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"^line \d+: "):
        read(torn(text(HEALTHY), lambda row: parts(row, at=at)))


def test_a_half_that_ends_the_row_is_never_taken_for_the_out_of_place_one() -> None:
    """The out-of-place half is lost; only its position shows that the other is the in-place half."""
    with pytest.raises(UsageError, match=r"the row of line \d+ must have 13 columns, got 9"):
        read(torn(text(HEALTHY), lambda row: parts(row[:HEAD] + row[HEAD + HALF :], at=(HEAD,))))


def test_a_row_of_which_only_its_size_is_there_is_refused_and_left_out_at_the_end_of_the_text() -> None:
    with pytest.raises(UsageError, match=r"^line \d+: a row must have 13 columns, got 5"):
        read(torn(text(HEALTHY), lambda row: parts(row)[:1]))
    log = f"node1:{MESSAGE}\n" + text(HEALTHY)
    last = rows_of(log)[-1]
    file = read(log[: log.index(last)] + parts(last.split())[0])
    assert len(file.results) == len(read(log).results) - 2
    assert any("5 of 13 columns" in note for note in file.notes)


def test_a_part_of_another_row_does_not_fit_the_numbers_of_the_first() -> None:
    first, second = (row.split() for row in rows_of(text(HEALTHY))[:2])
    mixed = [*first[:HEAD], *first[HEAD : HEAD + HALF], *second[HEAD + HALF :]]
    with pytest.raises(UsageError, match=r"^line \d+: algbw"):
        read(text(HEALTHY).replace(rows_of(text(HEALTHY))[0], "\n".join(parts(mixed))))
