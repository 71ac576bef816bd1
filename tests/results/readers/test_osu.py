"""OSU Micro-Benchmarks: recorded outputs of 5.3 to 7.5."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import of, sizes, text, value

from railwright.errors import UsageError
from railwright.results.readers import osu


@pytest.mark.parametrize(
    ("name", "test", "version", "rows", "first", "last"),
    [
        ("5.3-bw-tagged", "osu_bw", "5.3", 23, 8.28e6, 9511.13e6),
        ("5.4.1-bw-cuda-host-tcp", "osu_bw", "5.4.1", 23, 0.41e6, 4199.28e6),
        ("7.5-bibw-cuda-validated", "osu_bibw", "7.5", 23, 1.05e6, 46437.18e6),
        ("7.5-bw-cuda-no-cxi-slow", "osu_bw", "7.5", 23, 0.04e6, 2271.56e6),
    ],
)
def test_every_bandwidth_is_read_in_units_of_a_million_bytes(
    name: str, test: str, version: str, rows: int, first: float, last: float
) -> None:
    (file,) = osu.read(text(f"osu/{name}.txt"))
    assert (file.tool, file.test, file.version, file.ranks) == ("OSU", test, version, 2)
    assert len(file.results) == rows
    assert value(file.results[0]) == pytest.approx(first)
    assert value(file.results[-1]) == pytest.approx(last)
    assert sizes(file.results) == [2**power for power in range(23)]
    assert {result.quantity for result in file.results} == {"bandwidth_bytes_per_s"}


def test_latency_is_one_way_in_microseconds_and_begins_at_0_bytes() -> None:
    (file,) = osu.read(text("osu/5.3-latency-tagged.txt"))
    assert (file.test, len(file.results)) == ("osu_latency", 24)
    assert file.results[0].parameters["size_bytes"] == 0
    assert value(file.results[0]) == pytest.approx(0.29e-6)
    assert value(file.results[-1]) == pytest.approx(407.21e-6)
    assert file.results[-1].settings["shown"] == "407.21 us"


def test_multiple_bandwidth_has_a_rate_and_twice_as_many_ranks_as_pairs() -> None:
    (file,) = osu.read(text("osu/5.3-mbw_mr-tagged.txt"))
    assert (file.test, file.ranks, len(file.results)) == ("osu_mbw_mr", 2, 46)
    assert value(of(file)[-1]) == pytest.approx(10561.44e6)
    assert value(of(file, "messages_per_s")[-1]) == pytest.approx(2518.04)
    assert file.results[0].settings["window"] == 64


@pytest.mark.parametrize(
    ("name", "test", "rows", "last_us", "least_us", "most_us"),
    [
        ("5.3-allreduce-full", "osu_allreduce", 19, 331.63, 331.21, 332.05),
        ("6.2-reduce-full-slow", "osu_reduce", 6, 276274.93, 1630.58, 281278.16),
    ],
)
def test_a_collective_keeps_the_extremes_over_its_ranks(
    name: str, test: str, rows: int, last_us: float, least_us: float, most_us: float
) -> None:
    (file,) = osu.read(text(f"osu/{name}.txt"))
    assert (file.test, file.ranks, len(file.results)) == (test, None, rows)
    last = file.results[-1]
    assert value(last) == pytest.approx(last_us * 1e-6)
    assert last.settings["min_rank_s"] == pytest.approx(least_us * 1e-6)
    assert last.settings["max_rank_s"] == pytest.approx(most_us * 1e-6)
    assert last.settings["iterations"] == 100
    assert any("does not print the number of ranks" in note for note in file.notes)


def test_only_what_osu_validated_is_verified() -> None:
    (validated,) = osu.read(text("osu/7.5-bibw-cuda-validated.txt"))
    check = validated.results[-1].verification
    assert check is not None
    assert (check.bytes_checked, check.bytes_wrong) == (4194304, 0)
    (plain,) = osu.read(text("osu/5.3-bw-tagged.txt"))
    assert all(result.verification is None for result in plain.results)
    assert "the data was not checked" in plain.notes


def test_a_failed_validation_is_wrong_bytes() -> None:
    broken = text("osu/7.5-bibw-cuda-validated.txt").replace("46437.18              Pass", "46437.18              Fail")
    check = osu.read(broken)[0].results[-1].verification
    assert check is not None
    assert check.bytes_wrong > 0


def test_buffers_on_host_or_device_are_varied_parameters() -> None:
    (file,) = osu.read(text("osu/5.4.1-bw-cuda-host-tcp.txt"))
    assert file.results[0].parameters["send_buffer"] == "host"
    assert file.results[0].settings["accelerator"] == "cuda"


def test_percentiles_of_z_stand_beside_the_mean() -> None:
    (file,) = osu.read(
        "# OSU MPI Latency Test v7.4\n# Datatype: MPI_CHAR.\n"
        "# Size       Avg Lat(us)  P50 Tail Lat(us)  P90 Tail Lat(us)  P99 Tail Lat(us)\n"
        "8   2.05   0.27   0.31   4.90\n"
    )
    assert value(file.results[0]) == pytest.approx(2.05e-6)
    assert file.results[0].settings["p50_s"] == pytest.approx(0.27e-6)
    assert file.results[0].settings["p99_s"] == pytest.approx(4.90e-6)


def test_several_tests_of_one_text_are_several_files_in_order() -> None:
    both = text("osu/7.5-bibw-cuda-validated.txt") + text("osu/5.3-latency-tagged.txt").replace("[1,0]<stdout>: ", "")
    assert [file.test for file in osu.read(both)] == ["osu_bibw", "osu_latency"]


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("5.3-mbw_mr-tagged", "10561.44", "20561.44", "is not 2518.04 messages/s"),
        ("5.3-allreduce-full", "331.63", "931.63", "must be between"),
        ("5.3-bw-tagged", "9511.13", "nan", "Bandwidth (MB/s) must be a number of zero or more, got 'nan'"),
        ("5.3-bw-tagged", "9511.13", "inf", "'inf'"),
        ("5.3-bw-tagged", ": 4194304 ", ": 1048576 ", "size 1048576 follows size 2097152"),
        ("5.3-bw-tagged", "Bandwidth (MB/s)", "Bandwidth (GB/s)", "columns"),
        (
            "7.5-bibw-cuda-validated",
            "46437.18              Pass",
            "46437.18              Maybe",
            "must be Pass or Fail",
        ),
    ],
)
def test_a_table_that_is_not_what_it_claims_is_refused(name: str, old: str, new: str, reason: str) -> None:
    assert old in text(f"osu/{name}.txt")
    with pytest.raises(UsageError) as refused:
        osu.read(text(f"osu/{name}.txt").replace(old, new))
    assert reason in refused.value.message
    assert refused.value.message.startswith("line ")


def test_a_table_cut_inside_its_last_row_is_read_up_to_there() -> None:
    whole = text("osu/7.5-bibw-cuda-validated.txt")
    (file,) = osu.read(whole[: whole.rindex("Pass")])
    assert len(file.results) == 22
    assert any("ends inside line 26" in note for note in file.notes)


NON_BLOCKING = """
# OSU MPI Non-blocking {title} Latency Test v5.7.1
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

{size} Overall(us) Compute(us) Coll. Init(us) MPI_Test(us) MPI_Wait(us) Pure Comm.(us) Min Comm.(us) Overlap(%)
{row} 155.13 148.36 1.20 0.00 5.46 139.22 5.50 95.14
"""


def test_a_collective_that_does_not_block_has_the_time_of_its_communication() -> None:
    (file,) = osu.read(NON_BLOCKING.format(title="Allreduce", size="# Size", row="4"))
    assert (file.test, file.results[0].parameters["size_bytes"]) == ("osu_iallreduce", 4)
    assert [result.summary.median for result in file.results if result.summary] == [pytest.approx(139.22e-6)]


def test_a_barrier_that_does_not_block_is_read() -> None:
    (file,) = osu.read(NON_BLOCKING.format(title="Barrier", size="      ", row="    "))
    assert file.test == "osu_ibarrier"
    assert [result.summary.median for result in file.results if result.summary] == [pytest.approx(139.22e-6)]


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("_Fetch_and_op latency", "osu_fop_latency"),
        ("_Compare_and_swap latency", "osu_cas_latency"),
        ("-CUDA All-to-Allw Personalized Exchange Latency", "osu_alltoallw"),
        (" Teleport", "osu teleport"),
    ],
)
def test_every_test_with_a_table_is_read(title: str, name: str) -> None:
    (file,) = osu.read(f"# OSU MPI{title} Test v7.1\n# Size          Latency (us)\n8                      45.23\n")
    assert file.test == name
    assert [result.summary.median for result in file.results if result.summary] == [pytest.approx(45.23e-6)]


def test_a_test_without_a_table_is_named() -> None:
    with pytest.raises(UsageError, match="'Hello World' is not supported"):
        osu.read("# OSU MPI Hello World Test v5.7\nThis is a test with 1 processes\n")


def test_a_second_run_without_a_row_is_mentioned() -> None:
    (file,) = osu.read(
        "# OSU MPI Bandwidth Test v5.1\n# Size  Bandwidth (MB/s)\n8  20.5\n# OSU MPI Bandwidth Test v5.1\n"
    )
    assert "another osu_bw began, and no row of it is in the text" in file.notes
