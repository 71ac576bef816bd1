"""Copies over a path whose links have no documented rate, beside those of the same table over alike paths."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.explain.table import Explained
from railwright.options.machine import resolve_cluster

NEAR, FAR = [55.3] * 4, [55.3, 55.4, 55.2]
"""GB/s from the memory of socket 0 to gpu0 to gpu3, and to gpu4 to gpu6 on the other socket of hgx-h100."""


def explained(rates: Sequence[float]) -> Explained:
    heads, cells = (" ".join(f"{cell:>9}" for cell in row) for row in (range(len(rates)), rates))
    text = (
        "nvbandwidth Version: v0.8\nRunning host_to_device_memcpy_ce.\n"
        f"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n  {heads}\n 0{cells}\n\n"
        f"SUM host_to_device_memcpy_ce {sum(rates):.2f}\n"
    )
    return read_paste(text, Machine(cluster=resolve_cluster("hgx-h100", 1, None))).tables[0]


@pytest.mark.parametrize(("rate", "share"), [(3.1, "0.06"), (27.66, "0.50")])
def test_a_copy_far_below_alike_copies_is_slow(rate, share):
    found = explained([*NEAR, *FAR, rate])
    assert (found.verdict.state, found.status) == ("slow", EXIT_SLOW)
    words = f"memory0>gpu7: {rate:#.3g} GB/s is {share} of the 55.3 GB/s that 3 copies over alike paths reach"
    assert found.verdict.why == f"1 of 8 rows, for example {words}"


def test_copies_that_are_all_far_below_half_of_the_limit_leave_the_table_unknown():
    """The rate between the sockets may be the cause, and no document gives it."""
    found = explained([*NEAR, 3.0, 3.1, 3.2, 3.3])
    assert (found.verdict.state, found.status) == ("unknown", EXIT_UNJUDGED)
    assert found.verdict.why.startswith("4 of 8 rows, for example memory0>gpu4: 3.00 GB/s is below the expected 28.7")


def test_one_healthy_copy_is_too_few_to_compare_with():
    assert explained([*NEAR, 55.3, 3.0, 3.1, 3.2]).verdict.state == "unknown"


@pytest.mark.parametrize("rate", [55.3, 45.0, 30.0])
def test_a_copy_within_its_band_is_ok(rate):
    found = explained([*NEAR, *FAR, rate])
    assert (found.verdict.state, found.status) == ("ok", EXIT_OK)
