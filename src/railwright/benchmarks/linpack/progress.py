"""How far a factorisation is, and how long it will still take."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from railwright.benchmarks.linpack.options import HplRank
from railwright.native import linpack
from railwright.units import format_duration

_TELL_EVERY_S = 2.0


def share_done(columns: int, order: int) -> float:
    """The share of the operations that are behind so many columns: what is left is a matrix of the other ones."""
    return 1 - (1 - min(max(columns, 0), order) / order) ** 3


def words(columns: int, order: int, spent_s: float) -> str:
    """`40 %, 2.3 s left`; no time before anything is done."""
    done = share_done(columns, order)
    left = f", {format_duration(spent_s * (1 - done) / done)} left" if done else ""
    return f"{100 * done:.0f} %{left}"


@contextlib.contextmanager
def told(rank: HplRank, order: int) -> Iterator[None]:
    """Tell the launcher meanwhile how far it is, from rank 0.

    A thread that sleeps asks for the number that the library keeps. It says nothing while that does not grow, so that a
    factorisation that hangs is silent, and is noticed.
    """
    if rank.index:
        yield
        return
    ended = threading.Event()

    def tell() -> None:
        start, told_of = time.monotonic(), 0
        while not ended.wait(_TELL_EVERY_S):
            columns = linpack.columns_done()
            if columns > told_of:
                told_of = columns
                rank.step(f"hpl N {order}: {words(columns, order, time.monotonic() - start)}")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
