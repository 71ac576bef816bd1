"""nixlbench: the table of NIXL 0.2, and the later one with prep, post and transfer."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import text, value

from railwright.errors import UsageError
from railwright.results.readers import nixlbench

SLOW = "nixlbench/ucx-vram-h200-slow.txt"


@pytest.mark.parametrize(
    ("name", "rows", "first", "last"),
    [
        ("first-table-two-gpus-part", 7, 1.31554e9, 84.4766e9),
        ("posix-dram", 15, 0.291436e9, 4.926833e9),
        ("uccl-ci-time-stamps", 1, 4.524677e9, 4.524677e9),
    ],
)
def test_every_row_is_read_in_units_of_a_thousand_million_bytes(
    name: str, rows: int, first: float, last: float
) -> None:
    (file,) = nixlbench.read(text(f"nixlbench/{name}.txt"))
    assert (file.tool, len(file.results)) == ("nixlbench", rows)
    assert value(file.results[0]) == pytest.approx(first)
    assert value(file.results[-1]) == pytest.approx(last)


def test_each_configuration_belongs_to_its_own_table() -> None:
    written, read = nixlbench.read(text(SLOW))
    assert (len(written.results), len(read.results)) == (12, 12)
    assert written.results[0].parameters == {
        "size_bytes": 4096, "batch": 1, "backend": "UCX", "operation": "WRITE", "initiator": "VRAM", "target": "VRAM",
        "scheme": "pairwise", "mode": "SG", "threads": 1,
    }  # fmt: skip
    assert read.results[0].parameters["operation"] == "READ"
    assert (written.ranks, written.results[0].path) == (2, "vram>vram")
    assert value(read.results[-1]) == pytest.approx(1.0182e9)


def test_the_parts_of_a_request_are_kept_beside_the_bandwidth() -> None:
    (file,) = nixlbench.read(text("nixlbench/posix-dram.txt"))
    settings = file.results[-1].settings
    assert settings["mean_s_per_operation"] == pytest.approx(13621.1e-6)
    assert settings["post_p99_s"] == pytest.approx(12.0e-6)
    assert settings["transfer_p99_s"] == pytest.approx(20271.0e-6)
    assert settings["num_iter"] == 1008
    assert {result.quantity for result in file.results} == {"bandwidth_bytes_per_s"}


def test_only_a_consistency_check_is_a_verification() -> None:
    (checked,) = nixlbench.read(text("nixlbench/uccl-ci-time-stamps.txt"))
    check = checked.results[0].verification
    assert check is not None
    assert (check.bytes_checked, check.bytes_wrong) == (4 * 16384, 0)
    written, _ = nixlbench.read(text(SLOW))
    assert all(result.verification is None for result in written.results)


def test_a_failed_check_makes_every_row_of_its_table_wrong() -> None:
    failed = text("nixlbench/uccl-ci-time-stamps.txt") + "Consistency check failed\n"
    check = nixlbench.read(failed)[0].results[0].verification
    assert check is not None
    assert check.bytes_wrong == 1


def test_several_pairs_have_an_aggregate_and_no_known_number_of_ranks() -> None:
    (file,) = nixlbench.read(
        "Backend (--backend=[UCX]): UCX\nNum threads (--num_threads=N)  : 1\n"
        "Block Size (B)  Batch Size  B/W (GB/Sec)  Aggregate B/W (GB/Sec)  Network Util (%)  Avg Lat. (us)\n"
        "1048576         1           24.500000     98.000000               49.000000         42.8\n"
    )
    assert file.ranks is None
    assert file.results[0].settings["aggregate_bytes_per_s"] == pytest.approx(98e9)
    assert any("assumes 50 GB/s" in note for note in file.notes)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("0.975764", "9.757640", "B/W 9.757640 GB/s is not block size 8388608"),
        ("0.975764", "nan", "B/W (GB/Sec) must be a number of zero or more, got 'nan'"),
        ("8597.0  ", "85.97   ", "average latency 85.97 us"),
        ("8388608             1 ", "2097152             1 ", "block size 2097152 and batch 1 follow 4194304"),
        ("B/W (GB/Sec)", "B/W (GB/Day)", "columns"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    assert old in text(SLOW)
    with pytest.raises(UsageError) as refused:
        nixlbench.read(text(SLOW).replace(old, new, 1) if "Size" not in old else text(SLOW).replace(old, new))
    assert reason in refused.value.message


def test_the_three_rates_of_the_first_table_must_be_one() -> None:
    with pytest.raises(UsageError, match=r"B/W \(MiB/Sec\) 9999.1 is not"):
        nixlbench.read(text("nixlbench/first-table-two-gpus-part.txt").replace("80563.1", "9999.1"))
