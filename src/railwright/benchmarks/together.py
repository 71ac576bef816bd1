"""What every rank of a launch must have, or none goes on: else the others would wait for one that gave up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from railwright.benchmarks.benchmark import AnyRank
from railwright.errors import CannotJudge

Opened = TypeVar("Opened")


class Unavailable(CannotJudge):
    """What at least one rank lacks; every rank raises it with the same words."""


def on_all(rank: AnyRank, opener: Callable[[], Opened]) -> Opened:
    """What it opens on this rank. Raises Unavailable, on all ranks alike, where one rank cannot. Collective."""
    opened, reason = None, ""
    try:
        opened = opener()
    except CannotJudge as error:
        reason = error.message
    reasons = [(index, one) for index, one in enumerate(rank.comm.allgather(reason)) if one]
    if opened is None or reasons:
        index, first = reasons[0]
        raise Unavailable(first if len(reasons) == rank.size else f"{first} (rank {index})")
    return opened
