"""What every rank of a launch must have, or none goes on: else the others would wait for one that gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.record import waived
from railwright.errors import CannotJudge
from railwright.results.records import Result

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


def or_waived(rank: AnyRank, blank: Result, results: Iterator[Result]) -> Iterator[Result]:
    """The results; from rank 0 `blank` as waived where a rank lacks what the rest of them need. Collective."""
    try:
        yield from results
    except Unavailable as error:
        if rank.index == 0:
            yield waived(blank, error.message)
