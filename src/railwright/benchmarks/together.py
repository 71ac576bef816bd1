"""Agreement of all ranks on a required resource, so that none waits for a rank that gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.record import waived
from railwright.errors import CannotJudge
from railwright.results.records import Result

Opened = TypeVar("Opened")


class Unavailable(CannotJudge):
    """A resource that at least one rank lacks. Every rank raises it with the same message."""


def open_on_all_ranks(rank: AnyRank, opener: Callable[[], Opened]) -> Opened:
    """Run `opener` on every rank and return its result. Raises Unavailable on all ranks if any fails. Collective."""
    comm = rank.comm  # MPI starts first, because an opener may ask its library
    opened, reason = None, ""
    try:
        opened = opener()
    except CannotJudge as error:
        reason = error.message
    reasons = [(index, text) for index, text in enumerate(comm.allgather(reason)) if text]
    if opened is None or reasons:
        index, first = reasons[0]
        raise Unavailable(first if len(reasons) == rank.size else f"{first} (rank {index})")
    return opened


def waive_unavailable(rank: AnyRank, blank: Result, results: Iterator[Result]) -> Iterator[Result]:
    """Yield the results, or from rank 0 `blank` as waived if a rank lacks a resource. Collective."""
    try:
        yield from results
    except Unavailable as error:
        if rank.index == 0:
            yield waived(blank, error.message)
