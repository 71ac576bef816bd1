"""A plug-in of pytest for the tests on the emulated aarch64: skips what qemu-user cannot do, by its reason."""

from __future__ import annotations

import pytest

NO_IO_URING = "qemu-user has no io_uring: file reads and writes by io_uring are not shown on aarch64"
NO_POLICIES = "qemu-user has no mbind and no move_pages: the node of memory is not shown on aarch64"
NO_LIMITS = "qemu-user reserves memory itself: the end of threads is not shown on aarch64"
NO_MOUNTS = "the root has no programs to mount disks, and no compiler"
LACKS = {
    "io_uring": NO_IO_URING,
    "test_what_one_engine_writes_the_other_reads": NO_IO_URING,
    "test_a_block_that_was_not_written_again_is_found": NO_IO_URING,
    "test_no_sector_of_a_file_is_like_another": NO_IO_URING,
    "test_the_fsync_has_a_clock_of_its_own": NO_IO_URING,
    "test_pages_lie_on_the_node": NO_POLICIES,
    "test_pages_that_a_process_gave_back": NO_POLICIES,
    "test_a_node_that_does_not_exist": NO_POLICIES,
    "test_more_threads_than_the_system_gives": NO_LIMITS,
}
"""The reason for each part of a test's name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reasons = [why for part, why in LACKS.items() if part in item.name]
        if item.get_closest_marker("machine") and "aarch64" not in item.path.parts:
            reasons.append(NO_MOUNTS)
        for why in reasons[:1]:
            item.add_marker(pytest.mark.skip(reason=why))
