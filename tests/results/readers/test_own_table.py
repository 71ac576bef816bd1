"""A script's own tables, and DeepEP's lines: units, sizes, and the ratio of busbw to algbw."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.results.readers import registry
from railwright.results.readers.pasted.documents import extract_text


def read(text: str):
    (file,) = registry.read(extract_text(text))
    return file


def rates(text: str) -> list[float]:
    return [result.summary.median for result in read(text).results]


@pytest.mark.parametrize(
    ("unit", "bytes_per_s"),
    [("GB/s", 4e9), ("GBps", 4e9), ("Gbps", 0.5e9), ("Gb/s", 0.5e9), ("GiB/s", 4 * 2**30), ("MB/s", 4e6)],
)
def test_the_unit_stands_in_the_header_or_in_the_cell(unit, bytes_per_s):
    assert rates(f"| size | bandwidth ({unit}) |\n|---|---|\n| 1MiB | 4.00 |\n") == [bytes_per_s]
    assert rates(f"size      bandwidth\n1048576   4.00 {unit}\n") == [bytes_per_s]


def test_a_table_without_a_unit_is_refused():
    with pytest.raises(UsageError):
        registry.read("size  bandwidth\n1048576  4.00\n")


@pytest.mark.parametrize(
    ("bus", "alg", "ranks", "test"),
    [("183.75", "98.00", 16, "all_reduce"), ("10.00", "10.00", None, "algbw"), ("87.50", "100.00", 8, "algbw")],
)
def test_the_ratio_tells_collective_and_ranks(bus, alg, ranks, test):
    file = read(f"size(B)  algbw(GB/s)  busbw(GB/s)\n1073741824  {alg}  {bus}\n")
    assert (file.ranks, file.test) == (ranks, test)


def test_columns_with_units_are_not_those_of_nccl_tests():
    file = read(
        "size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
        "33554432        33554432    uint8         768          40.69          40.69\n"
    )
    assert (file.tool, file.results[0].parameters["size_bytes"]) == ("a script's own table", 2**25)


def test_rows_with_names_are_read_between_bars():
    assert rates("| Test | Bandwidth |\n|---|---|\n| **raw** | **284.98 GB/s** |\n| mine | 0.32 GB/s |\n") == [
        284.98e9,
        0.32e9,
    ]


def test_deepep_shows_the_best_configurations_and_those_of_low_latency():
    text = (
        "[tuning] SMs 24, NVL chunk 4: 153.10 GB/s (NVL), 400.1 us\n"
        "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 28, RDMA chunk 8: 58.10 GB/s (RDMA), 189.10 GB/s (NVL)\n"
        "[rank 3] Dispatch bandwidth: 43.41 GB/s, avg_t=173.07 us | Combine bandwidth: 44.88 GB/s, avg_t=324.00 us\n"
    )
    file = read(text)
    assert [result.parameters["figure"] for result in file.results] == [
        "best dispatch (FP8), RDMA",
        "best dispatch (FP8), NVL",
        "dispatch",
        "combine",
    ]
    assert rates("[tuning] SMs 24, NVL chunk 4: 153.10 GB/s (NVL), 400.1 us\n") == [153.1e9]


def test_lines_that_name_a_rate_each_are_read_and_rates_of_links_are_not() -> None:
    (file,) = registry.read("Time elapsed: 3 s\nBandwidth   : 171.420 MiB/s\nPOSIX effective BW: 2.21 [GB/s]\n")
    assert [one.samples[0] for one in file.results] == pytest.approx([171.42 * 2**20, 2.21e9])
    with pytest.raises(UsageError):
        registry.read("Speed: 25000 Mb/s\nMax port bandwidth: 400 Gb/s\n")


def test_a_rate_among_properties_of_a_device_is_nominal() -> None:
    device = "Memory clock rate:   1215 MHz\nMemory bus width:    5120 bits\n"
    with pytest.raises(UsageError):
        registry.read(f"{device}Memory bandwidth:    1555.20 GB/sec\n")
    assert rates("Memory bandwidth:    1400.20 GB/sec\n") == [1400.2e9]


def test_a_name_and_a_rate_need_no_closing_bar() -> None:
    assert rates("n_bytes     | 1000.00 MB\nAverage     | 45.5 GB/s\n----\n000         | 44.0 GB/s\n") == [
        45.5e9,
        44.0e9,
    ]


def test_a_size_that_is_whole_in_powers_of_ten_only_is_of_powers_of_ten() -> None:
    (file,) = registry.read("size (GB), time, bandwidth (GB/s)\n0.004194304, 2.7e-05, 307.5\n2, 0.1, 20\n")
    assert [result.parameters["size_bytes"] for result in file.results] == [2**22, 2**31]


def test_the_time_of_a_line_tells_the_power_of_its_unit() -> None:
    assert rates("Size (B): 8, Time (s): 0.000008000, Bandwidth (GB/s): 0.000931323\n") == [
        pytest.approx(1e6, rel=1e-5)
    ]


def test_times_prove_the_unit_of_rates_that_name_none() -> None:
    (file,) = registry.read("size,time_us,algbw,busbw\n1048576,50.00,20.97,36.70\n16777216,200.00,83.89,146.80\n")
    assert [row.summary.median for row in file.results if row.summary] == [20.97e9, 83.89e9]
    assert any("GB/s follows from the sizes and times" in note for note in file.notes)


def test_rates_that_no_unit_explains_are_refused() -> None:
    with pytest.raises(UsageError):
        registry.read("size,time_us,algbw,busbw\n1048576,50.00,2.22,36.70\n16777216,200.00,83.89,146.80\n")
