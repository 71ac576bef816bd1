"""algbw and busbw as nccl-tests defines them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from railwright import busbw


@pytest.mark.parametrize(
    ("operation", "ranks", "expected"),
    [
        ("all_reduce", 8, Fraction(7, 4)),
        ("all_reduce", 2, Fraction(1)),
        ("all_reduce", 1, Fraction(0)),
        ("all_gather", 8, Fraction(7, 8)),
        ("reduce_scatter", 16, Fraction(15, 16)),
        ("all_to_all", 4, Fraction(3, 4)),
        ("gather", 4, Fraction(3, 4)),
        ("scatter", 4, Fraction(3, 4)),
        ("broadcast", 64, Fraction(1)),
        ("reduce", 64, Fraction(1)),
        ("send_recv", 2, Fraction(1)),
        ("hypercube", 8, Fraction(1)),
    ],
)
def test_the_factor_is_that_of_nccl_tests(operation: str, ranks: int, expected: Fraction) -> None:
    assert busbw.busbw_factor(operation, ranks) == expected


def test_an_unknown_operation_or_no_rank_has_no_factor() -> None:
    with pytest.raises(KeyError):
        busbw.busbw_factor("gossip", 4)
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        busbw.busbw_factor("all_reduce", 0)


@pytest.mark.parametrize("operation", sorted(busbw.OPERATIONS - {"broadcast", "reduce", "send_recv", "hypercube"}))
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8, 72, 1024])
def test_the_ranks_follow_from_their_factor(operation: str, ranks: int) -> None:
    exact = float(busbw.busbw_factor(operation, ranks))
    assert busbw.bound_ranks(operation, exact, exact) == (ranks, ranks)


def test_a_wide_ratio_leaves_several_ranks_and_an_impossible_one_none() -> None:
    assert busbw.bound_ranks("all_reduce", 1.74, 1.88) == (8, 16)
    least, most = busbw.bound_ranks("all_reduce", 2.1, 2.2) or (0, 0)
    assert least > most
    assert busbw.bound_ranks("broadcast", 1, 1) is None


def test_hypercube_does_not_count_a_ranks_own_part() -> None:
    assert busbw.counted_bytes("hypercube", 800, 8) == 700
    assert busbw.counted_bytes("all_gather", 800, 8) == 800
