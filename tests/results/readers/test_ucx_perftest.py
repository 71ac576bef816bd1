"""ucx_perftest: the line that represents the run, its size, and the texts that are refused."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import THREADS

from railwright.errors import UsageError
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Message

HEAD = """\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
"""
OLD = """\
+--------------+-----------------------------+---------------------+-----------------------+
|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
| # iterations | typical | average | overall |  average |  overall |   average |   overall |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
       1000000     1.250     1.300     1.290       5.91       5.91      775194      775194
"""
BOX = """\
| API:          protocol layer                                                             |
| Test:         tag match latency                                                          |
| Message size: 8                                                                          |
"""


def pasted(name: str) -> ForeignFile:
    (file,) = registry.read((THREADS / f"{name}.txt").read_text(encoding="utf-8"))
    return file


def rates(file: ForeignFile) -> list[float]:
    return [one.summary.median for one in file.results if one.summary and one.quantity == "bandwidth_bytes_per_s"]


def test_the_final_line_counts_and_its_size_is_that_of_the_command() -> None:
    file = pasted("100-ucx_perftest-g7e-efa")
    assert (file.test, file.ranks, file.hosts) == ("tag_bw", 2, None)
    assert rates(file) == [pytest.approx(45394.37 * 2**20)]
    assert file.results[0].parameters["size_bytes"] == 100 * 2**20
    assert (type(file.workload), file.workload.from_gpu, file.workload.to_gpu) == (Message, True, True)


def test_each_test_of_a_batch_has_the_name_that_stands_above_it() -> None:
    rows = "Final:       1000      0.240  1675.942  1671.351    46615.58   46743.62         597         598\n"
    text = f"===== tag_bw =====\n{HEAD}{rows}\n===== tag_sync_bw =====\n{HEAD}{rows}"
    assert [file.test for file in registry.read(text)] == ["tag_bw", "tag_sync_bw"]
    (kubectl,) = registry.read("".join(f"ucx-client-0 {line}\n" for line in f"{HEAD}{rows}".splitlines()))
    assert rates(kubectl) == [pytest.approx(46743.62 * 2**20)]


def test_a_latency_is_none_of_a_rate() -> None:
    (file,) = registry.read(BOX + OLD)
    assert (file.test, type(file.workload)) == ("tag_lat", Message)
    assert [one.quantity for one in file.results] == ["latency_s"]
    assert file.results[0].parameters["size_bytes"] == 8


def test_of_a_run_without_its_end_the_fastest_second_is_a_row_of_its_own() -> None:
    file = pasted("098-ucx_perftest-tag_bw-cuda-rc-phases")
    assert rates(file) == [pytest.approx(5540.74 * 2**20), pytest.approx(21526.05 * 2**20)]
    assert [one.parameters["size_bytes"] for one in file.results] == [2**30] * 3
    assert any("alternates between 2325 and 21526 MB/s" in note for note in file.notes)
    assert any(note.startswith("the text ends inside line") for note in file.notes)


def test_a_message_rate_that_is_not_the_inverse_of_the_time_is_refused() -> None:
    row = "Final:                    10      0.353  2202.916  2202.916    45394.37   45394.37         454         %s\n"
    assert registry.read(HEAD + row % 454)
    with pytest.raises(UsageError, match=r"700 messages/s is not 1 / 2202.916 us"):
        registry.read(HEAD + row % 700)


def test_a_text_that_ends_inside_its_only_row_says_so() -> None:
    with pytest.raises(UsageError, match="ends inside its only line"):
        pasted("125-ucx_perftest-am_bw-tcp-loopback")


def test_the_csv_of_v_is_read() -> None:
    text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
    row = "10,0.353,2202.916,2202.916,45394.37,45394.37,454,454\n"
    (file,) = registry.read(f"ucx_perftest -t ucp_put_bw -v node1\n{text}{row}")
    assert (file.test, rates(file)) == ("ucp_put_bw", [pytest.approx(45394.37 * 2**20)])
