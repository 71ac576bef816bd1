"""The HPL problem: its operations, how it is spread over ranks, the memory that takes, and when a solution counts.

HPL 2.3 (netlib.org/benchmark/hpl) is what all of this follows, so that figures can be held side by side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.limits.limit import Constant, Source

HPL = Source("HPL 2.3", "testing/ptest/HPL_pdtest.c")
THRESHOLD = Constant(16.0, "the scaled residual below which a solution counts", Source("HPL 2.3", "HPL.dat, line 13"))
EPSILON = Constant(2.0**-53, "relative machine precision of FP64, as HPL_pdlamch finds it", HPL)
SEED = 100
"""HPL_ISEED, which every run of HPL takes."""
DOUBLE_BYTES = 8
PIVOT_BYTES = 4
MOST_ROWS = 2**31 - 1
"""ScaLAPACK's LP64 interface counts rows in an int."""
RANK_BYTES = 64 * 2**20
"""An interpreter with MPI and MKL loaded, before the matrix; a record has what it really was."""
_PACKED = Source("Railwright docs/benchmarks/hpl.md", "memory")
_MOST_INNER_ROWS = Constant(256, "rows of a block that MKL's pdgetrf takes at once: it halves one of 384", _PACKED)
_PACKED_BYTES = Constant(7 * 2**20, "bytes a thread, in which MKL's dgemm packs blocks", _PACKED)


class Grid(NamedTuple):
    """The ranks as rows and columns: rank r is in row r // columns."""

    rows: int
    columns: int

    @property
    def ranks(self) -> int:
        """How many it needs."""
        return self.rows * self.columns

    def place(self, rank: int) -> tuple[int, int]:
        """Row and column of a rank."""
        return divmod(rank, self.columns)

    def rows_on(self, rank: int, order: int, block: int) -> int:
        """How many of a matrix's rows lie there."""
        return share(order, block, self.place(rank)[0], self.rows)

    def columns_on(self, rank: int, order: int, block: int) -> int:
        """How many of its columns."""
        return share(order, block, self.place(rank)[1], self.columns)

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def operations(order: int) -> float:
    """Floating-point operations of one solution: 2/3 N^3 + 3/2 N^2 (HPL_pdtest.c), however many were really done."""
    return 2 / 3 * order**3 + 3 / 2 * order**2


def share(order: int, block: int, place: int, places: int) -> int:
    """How many of `order` rows or columns lie at a place, where blocks are dealt in turn (NUMROC, first place 0)."""
    whole, rest = divmod(order, block)
    rounds, over = divmod(whole, places)
    return rounds * block + (block if place < over else rest if place == over else 0)


class Team(NamedTuple):
    """The processes that share the memory of one host, and the threads of each."""

    ranks: int
    threads: int


class Memory(NamedTuple):
    """What one rank holds, in bytes, each part by its name."""

    matrix: int
    """Its share of 8 N^2."""
    right_side: int
    """Its share of b, which becomes x."""
    pivots: int
    check: int
    """Two vectors of N for the residual: A is generated again, so no second matrix is held."""
    panels: int
    """ScaLAPACK's own: a panel of columns and one of rows, each twice since the next is sent ahead."""
    packed: int
    """Of dgemm: the panel of rows once more, in the order in which it is multiplied, and a block for each thread."""
    process: int

    @property
    def named(self) -> int:
        """All of it but the process, which was there before the matrix."""
        return self.total - self.process

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def memory_of(order: int, block: int, grid: Grid, rank: int, threads: int) -> Memory:
    """What a rank of the grid needs."""
    rows, columns = grid.rows_on(rank, order, block), grid.columns_on(rank, order, block)
    lead = max(1, rows)
    inner = block // math.ceil(block / _MOST_INNER_ROWS.value)
    return Memory(
        matrix=DOUBLE_BYTES * lead * columns,
        right_side=DOUBLE_BYTES * lead,
        pivots=PIVOT_BYTES * (rows + block),
        check=2 * DOUBLE_BYTES * order,
        panels=2 * DOUBLE_BYTES * inner * (rows + columns),
        packed=DOUBLE_BYTES * inner * columns + threads * int(_PACKED_BYTES.value),
        process=RANK_BYTES,
    )


def memory_alone(order: int, threads: int) -> Memory:
    """What one process needs that solves by LAPACK: no panels, and twice as much packed."""
    return memory_of(order, order, Grid(1, 1), 0, threads)._replace(
        pivots=PIVOT_BYTES * order, panels=0, packed=2 * threads * int(_PACKED_BYTES.value)
    )


def memory_on_host(order: int, block: int, grid: Grid, team: Team) -> int:
    """The most that the ranks of one host need together: ranks 0, 1, ... of the first host have the larger shares."""
    hosts = range(0, grid.ranks, team.ranks)
    each = [memory_of(order, block, grid, rank, team.threads).total for rank in range(grid.ranks)]
    return max(sum(each[first : first + team.ranks]) for first in hosts)


def largest_order(memory_bytes: float, block: int, grid: Grid, team: Team) -> int:
    """The largest N, a multiple of the block, whose ranks fit in so much memory of each host; 0 where none does."""
    hosts = max(1, grid.ranks // team.ranks)
    low, high = 0, min(MOST_ROWS, math.isqrt(max(0, int(memory_bytes)) * hosts // DOUBLE_BYTES)) // block + 1
    while high - low > 1:
        middle = (low + high) // 2
        if memory_on_host(middle * block, block, grid, team) <= memory_bytes:
            low = middle
        else:
            high = middle
    return low * block


class Norms(NamedTuple):
    """What the residual is scaled by, all in the maximum norm (of a matrix: its largest row sum)."""

    residual: float
    """Of A x - b."""
    matrix: float
    solution: float
    right_side: float


def scaled_residual(norms: Norms, order: int) -> float:
    """||Ax-b|| / (eps (||A|| ||x|| + ||b||) N), as HPL_pdtest.c; infinite where that is no number."""
    scale = EPSILON.value * (norms.matrix * norms.solution + norms.right_side) * order
    value = norms.residual / scale if scale > 0 else math.inf
    return value if math.isfinite(value) else math.inf
