"""perftest: three units and three generations of its header."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import of, sizes, text, value

from railwright.errors import UsageError
from railwright.results.readers.perftest import text as perftest

MIB = 2**20


@pytest.mark.parametrize(
    ("name", "test", "rows", "first", "last"),
    [
        ("ib_write_bw-mib-connectx", "ib_write_bw", 1, 11030.45 * MIB, 11030.45 * MIB),
        ("ib_send_bw-cpu-warning", "ib_send_bw", 1, 46557.03 * MIB, 46557.03 * MIB),
        ("ib_write_bw-gbit-4qp", "ib_write_bw", 1, 111.71e9 / 8, 111.71e9 / 8),
        ("ib_read_bw-mb-connectx3", "ib_read_bw", 23, 8.68 * MIB, 3666.44 * MIB),
    ],
)
def test_every_row_is_read_in_bytes_per_second(name: str, test: str, rows: int, first: float, last: float) -> None:
    (file,) = perftest.read(text(f"perftest/{name}.txt"))
    assert (file.tool, file.test, file.ranks) == ("perftest", test, 2)
    bandwidths = of(file)
    assert len(bandwidths) == rows
    assert value(bandwidths[0]) == pytest.approx(first)
    assert value(bandwidths[-1]) == pytest.approx(last)
    assert all(result.verification is None for result in file.results)


def test_the_message_rate_is_a_result_of_its_own() -> None:
    (file,) = perftest.read(text("perftest/ib_read_bw-mb-connectx3.txt"))
    rates = of(file, "messages_per_s")
    assert len(rates) == 23
    assert value(rates[0]) == pytest.approx(4552953)
    assert rates[0].settings["shown"] == "4.552953 Mpps"


def test_the_settings_above_the_table_are_kept() -> None:
    (file,) = perftest.read(text("perftest/ib_write_bw-gbit-4qp.txt"))
    settings = file.results[0].settings
    assert settings["queue_pairs"] == 4
    assert settings["mtu_bytes"] == 1024
    assert settings["link_type"] == "IB"
    assert settings["connection"] == "RC"
    assert settings["device"] == "rocep1s0f1"
    assert settings["tx_depth"] == 128
    assert settings["pcie_relaxed_order"] == "ON"
    assert settings["peak_bytes_per_s"] == pytest.approx(111.72e9 / 8)
    assert settings["shown"] == "111.71 Gb/sec"


def test_bandwidth_and_latency_of_one_text_are_two_files() -> None:
    sent, late = perftest.read(text("perftest/ib_send_bw-srd-sweep.txt"))
    assert (sent.test, late.test) == ("ib_send_bw", "ib_send_lat")
    assert sizes(of(sent)) == [2**power for power in range(1, 14)]
    assert len(late.results) == 4


def test_latency_is_the_median_with_its_order_statistics() -> None:
    _, late = perftest.read(text("perftest/ib_send_bw-srd-sweep.txt"))
    summary = late.results[0].summary
    assert summary is not None
    assert (summary.count, summary.minimum, summary.median) == (1000, pytest.approx(14.11e-6), pytest.approx(15.78e-6))
    assert (summary.p99, summary.maximum) == (pytest.approx(22.37e-6), pytest.approx(1210.34e-6))
    assert late.results[0].settings["mean_s"] == pytest.approx(22.98e-6)
    (old,) = perftest.read(text("perftest/ib_write_lat-connectx3.txt"))
    assert (old.test, len(old.results)) == ("ib_write_lat", 8)
    assert value(old.results[-1]) == pytest.approx(2302.01e-6)


def test_mb_of_older_versions_is_mebibytes_and_said_so() -> None:
    (file,) = perftest.read(text("perftest/ib_read_bw-mb-connectx3.txt"))
    assert any("2^20" in note for note in file.notes)


def test_a_peak_of_zero_means_that_it_was_not_measured() -> None:
    timed = text("perftest/ib_write_bw-gbit-4qp.txt").replace("111.72 ", "0.00   ")
    assert "peak_bytes_per_s" not in perftest.read(timed)[0].results[0].settings


def test_bidirectional_runs_say_so() -> None:
    both = text("perftest/ib_write_bw-gbit-4qp.txt").replace("RDMA_Write BW", "RDMA_Write Bidirectional BW")
    (file,) = perftest.read(both)
    assert file.results[0].parameters["direction"] == "both"


def test_a_table_below_its_command_is_named_by_it_else_by_its_columns() -> None:
    whole = text("perftest/ib_write_bw-gbit-4qp.txt")
    bare = "$ ib_read_bw node2\n" + whole[whole.index(" #bytes") :]
    assert perftest.read(bare)[0].test == "ib_read_bw"
    (nameless,) = perftest.read(whole[whole.index(" #bytes") :])
    assert nameless.test == "ib_bw"
    assert any("does not name the perftest program" in note for note in nameless.notes)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Gb/sec", "MiB/sec", "111.71 MiB/sec is not 0.213070 Mpps x 65536"),
        ("Gb/sec", "GB/s", "unit must be one of"),
        ("111.71 ", "211.71 ", "is above the peak"),
        ("0.213070", "nan", "MsgRate[Mpps] must be a number of zero or more, got 'nan'"),
        ("111.71 ", "-111.71 ", "'-111.71'"),
        ("0.213070", "0.213070 9 9", "7 columns where the header has 5"),
        ("#iterations ", "#attempts ", "columns"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    whole = text("perftest/ib_write_bw-gbit-4qp.txt")
    assert old in whole
    with pytest.raises(UsageError) as refused:
        perftest.read(whole.replace(old, new))
    assert reason in refused.value.message
    assert refused.value.message.startswith("line ")


def test_latencies_that_do_not_rise_are_refused() -> None:
    with pytest.raises(UsageError, match="must rise"):
        perftest.read(text("perftest/ib_write_lat-connectx3.txt").replace("2302.01", "9302.01"))


def test_a_row_that_was_cut_off_is_left_out_with_a_note() -> None:
    whole = text("perftest/ib_read_bw-mb-connectx3.txt")
    (file,) = perftest.read(whole[: whole.index("3666.44")])
    assert len(of(file)) == 22
    assert any("text ends inside" in note for note in file.notes)


@pytest.mark.parametrize("kind", ["RC", "UC", "UD", "DC", "XRC"])
def test_the_types_of_queue_pairs_are_told_apart(kind: str) -> None:
    pasted = text("perftest/ib_write_bw-gbit-4qp.txt").replace("Connection type : RC", f"Connection type : {kind}")
    assert f"Connection type : {kind}" in pasted
    (file,) = perftest.read(pasted)
    assert file.results[0].parameters.get("connection", "RC") == kind
    assert file.workload.connection == kind


def test_a_global_route_header_is_known_where_infiniband_has_a_gid_index() -> None:
    pasted = text("perftest/ib_write_bw-gbit-4qp.txt")
    (plain,) = perftest.read(pasted)
    (routed,) = perftest.read(pasted.replace(" Link type       : IB", " Link type       : IB\n GID index       : 0"))
    assert (plain.workload.has_grh, routed.workload.has_grh) == (False, True)
