"""Sizes, sweeps and rates: parsed in the printed form, and refused with the next step if invalid."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    format_bandwidth,
    format_duration,
    format_line_rate,
    format_messages,
    format_operations,
    format_size,
    parse_line_rate,
    parse_size,
    parse_sizes,
)


@pytest.mark.parametrize("power", range(46))
def test_every_power_of_two_is_printed_so_that_it_reads_back(power):
    assert parse_size(format_size(2**power)) == 2**power


@pytest.mark.parametrize(
    ("text", "size"),
    [("8", 8), ("8B", 8), ("4K", 4 * KIB), ("4k", 4 * KIB), ("4KB", 4 * KIB), ("4 KiB", 4 * KIB), ("1M", MIB),
     ("2GiB", 2 * GIB), ("64T", 64 * TIB), (" 16 ", 16), ("0", 0)],
)  # fmt: skip
def test_a_size_is_read_in_each_of_its_spellings(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "abc", "-1", "1.5K", "4X", "K", "1e6", "4K4", "9" * 40, "65T", "99999999999999999999"]
)
def test_what_is_no_size_is_refused_with_the_next_step(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert caught.value.hint
    assert len(caught.value.message) < 100


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", (8,)),
        ("8,4K,1M", (8, 4096, MIB)),
        ("8,8,4,8", (8, 4)),
        ("8:64", (8, 16, 32, 64)),
        ("8:100:x2", (8, 16, 32, 64)),
        ("4K:16K:+4K", (4096, 8192, 12288, 16384)),
        ("1:1000:x10", (1, 10, 100, 1000)),
        ("8:8:x2", (8,)),
    ],
)
def test_a_sweep_is_read(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text",
    [
        *("8:4", "8:64:x1", "8:64:x0", "8:64:+0", "0:64:x2", "0", "0:64:+8", "8:1T:+8", "1:2:3:4", "8:64:2"),
        *("8:64:", ":", ",", "8,,4", "8:64:x", ",".join(map(str, range(1, 70)))),
    ],
)
def test_a_sweep_that_is_empty_endless_or_too_long_is_refused_with_the_next_step(text):
    with pytest.raises(UsageError) as caught:
        parse_sizes(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "rate"), [("400Gb/s", 400e9), ("1.6Tb/s", 1.6e12), ("50GB/s", 400e9), ("100 Mb/s", 1e8)]
)
def test_a_line_rate_is_read_in_bits(text, rate):
    assert parse_line_rate(text) == pytest.approx(rate)
    assert parse_line_rate(format_line_rate(rate)) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "400", "Gb/s", "-1Gb/s", "1e3Gb/s"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(UsageError, match="not a rate"):
        parse_line_rate(text)


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [
        ("400G", 400e9), ("400g", 400e9), ("1.6T", 1.6e12), ("400Gbps", 400e9), ("400gbps", 400e9),
        ("400 Gbit/s", 400e9), ("400gbit", 400e9), ("400Gb", 400e9), ("1TB/s", 8e12), ("500MB/s", 4e9),
        ("50GBps", 400e9), ("50gB/s", 400e9), ("1GiB/s", 8 * GIB), ("9600Kb/s", 9.6e6),
    ],
)  # fmt: skip
def test_bits_and_bytes_are_told_apart_by_case_and_a_nic_s_number_is_of_bits(text, bits_per_s):
    assert parse_line_rate(text) == pytest.approx(bits_per_s)


@pytest.mark.parametrize("text", ["50GB/S", "50gb/s", "50GBPS", "50gb", "50GB"])
def test_a_rate_whose_case_tells_nothing_is_refused_with_both_readings(text):
    with pytest.raises(UsageError) as caught:
        parse_line_rate(text)
    assert caught.value.message == f"the rate {text!r} may mean bits or bytes"
    assert caught.value.hint == "write 50Gb/s, or 50GB/s for 400 Gb/s"


def test_transfers_are_no_rate():
    with pytest.raises(UsageError, match="not a rate: '32GT/s'") as caught:
        parse_line_rate("32GT/s")
    assert "GT/s counts transfers" in caught.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (264e-9, "264 ns"),
        (3.92e-6, "3.92 us"),
        (1.05e-3, "1.05 ms"),
        (2.3, "2.30 s"),
        (119, "119 s"),
        (180, "3.0 min"),
    ],
)
def test_a_duration_is_printed_in_the_unit_that_suits_it(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(12.34e9, "12.3 GB/s"), (123.4e9, "123 GB/s"), (1.234e9, "1.23 GB/s"), (5e6, "5.00 MB/s")]
)
def test_a_bandwidth_is_printed_in_powers_of_ten(rate, text):
    assert format_bandwidth(rate) == text


@pytest.mark.parametrize(("rate", "text"), [(999, "999 msg/s"), (65_100, "65.1 kmsg/s"), (2.5e6, "2.50 Mmsg/s")])
def test_rates_of_messages_say_so(rate, text):
    assert format_messages(rate) == text


@pytest.mark.parametrize(("rate", "text"), [(999, "999 op/s"), (65_100, "65.1 kop/s"), (2.5e6, "2.50 Mop/s")])
def test_operations_of_drives_are_printed_alike_for_reads_and_writes(rate, text):
    assert format_operations(rate) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1000, "1000 B"), (1536, "1.5 KiB"), (GIB - 1, "1024 MiB"), (205 * MIB, "205 MiB")]
)
def test_a_size_is_printed_in_powers_of_two(size, text):
    assert format_size(size) == text
