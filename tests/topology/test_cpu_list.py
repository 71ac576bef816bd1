"""Lists of CPUs as the kernel writes them: parsed and formatted."""

import pytest

from railwright.topology.cpu_list import format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0, 1, 2, 5, 7, 8), "0-2,5,7-8"),
        ((8, 7, 5, 2, 1, 0), "0-2,5,7-8"),
        ((3,), "3"),
        ((), ""),
        (range(16), "0-15"),
    ],
)
def test_a_list_is_written_in_ranges_and_read_back(numbers, text):
    assert format_cpu_list(numbers) == text
    assert parse_cpu_list(text) == set(numbers)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-1,x,4", {0, 1, 4}),
        ("-3", set()),
        ("5-", {5}),
        ("3-1", set()),
        ("1.5,2", {2}),
        (" 1", set()),
    ],
)
def test_invalid_parts_of_a_list_are_left_out(text, found):
    assert parse_cpu_list(text) == found


def test_a_huge_range_is_cut_off():
    assert len(parse_cpu_list("0-99999999999")) < 10_000
