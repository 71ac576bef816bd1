"""Tables that several processes printed into one another, told apart by their sizes.

nccl-tests built without MPI=1 runs whole in each process that mpirun starts, and all of them print the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright.results.readers.nccl_tests.table import Row

_MOST = 64
"""Processes whose tables are told apart."""


def lanes_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each table. None of them where they are not tables of the same sizes, which rise in each."""
    lanes: list[list[Row]] = []
    for row in (row for row in rows if row.sends):
        able = [lane for lane in lanes if lane[-1].size_bytes < row.size_bytes and lane[-1].series == row.series]
        if able:
            max(able, key=lambda lane: lane[-1].size_bytes).append(row)
        elif len(lanes) < _MOST:
            lanes.append([row])
        else:
            return []
    longest = max(([row.size_bytes for row in lane] for lane in lanes), key=len, default=[])
    alike = all(_ends_like([row.size_bytes for row in lane], longest) for lane in lanes)
    return lanes if len(lanes) > 1 and alike else []


def _ends_like(sizes: list[int], longest: list[int]) -> bool:
    """Whether the sizes are a stretch of the longest table: a text may begin or end within one of them."""
    if sizes[0] not in longest:
        return False
    start = longest.index(sizes[0])
    return sizes == longest[start : start + len(sizes)]
