"""Formatting of lists of GPU names."""

import pytest

from railwright.topology.gpus import format_runs


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", ""),
        ("gpu0", "gpu0"),
        ("gpu0 gpu1", "gpu0, gpu1"),
        ("gpu0 gpu1 gpu2 gpu4 gpu5 gpu6 gpu7", "gpu0-2, gpu4-7"),
        ("gpu0 gpu7", "gpu0, gpu7"),
        ("gpu8 gpu9 gpu10 gpu12", "gpu8-10, gpu12"),
        ("gpu2 gpu1 gpu0", "gpu2, gpu1, gpu0"),
        ("gpu0 nic1 gpu2", "gpu0, nic1, gpu2"),
        ("nic07 nic08 nic09", "nic07, nic08, nic09"),
        ("x1234567 x1234568 x1234569", "x1234567, x1234568, x1234569"),
        ("vda vdb vdc", "vda, vdb, vdc"),
        ("0 1 2", "0-2"),
    ],
)
def test_names_that_follow_each_other_are_a_run(names, expected):
    assert format_runs(names.split()) == expected
