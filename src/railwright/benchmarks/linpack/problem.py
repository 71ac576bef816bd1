"""The HPL problem: its operations, distribution over ranks, memory, and the check of a solution.

All of this follows HPL 2.3 (netlib.org/benchmark/hpl), so that figures compare.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.limits.limit import Constant, Source

HPL = Source("HPL 2.3", "testing/ptest/HPL_pdtest.c")
THRESHOLD = Constant(
    16.0, "the scaled residual below which a solution is accepted", Source("HPL 2.3", "HPL.dat, line 13")
)
EPSILON = Constant(2.0**-53, "relative machine precision of FP64, as HPL_pdlamch finds it", HPL)
SEED = 100
"""HPL_ISEED, the seed of every HPL run."""
DOUBLE_BYTES = 8
PIVOT_BYTES = 4
MOST_ROWS = 2**31 - 1
"""The limit of ScaLAPACK's LP64 interface, which counts rows in an int."""
RANK_BYTES = 64 * 2**20
"""The memory of an interpreter with MPI and MKL, before the matrix; a record has the actual value."""
_PACKED = Source("Railwright docs/benchmarks/hpl.md", "memory")
_MOST_INNER_ROWS = Constant(256, "rows of a block that MKL's pdgetrf takes at once: it halves a block of 384", _PACKED)
_PACKED_BYTES = Constant(7 * 2**20, "bytes a thread, in which MKL's dgemm packs blocks", _PACKED)


class Grid(NamedTuple):
    """The ranks as rows and columns: rank r is in row r // columns."""

    rows: int
    columns: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.rows * self.columns

    def place(self, rank: int) -> tuple[int, int]:
        """Return a rank's row and column."""
        return divmod(rank, self.columns)

    def count_rows(self, rank: int, order: int, block: int) -> int:
        """Return the number of the matrix's rows on a rank."""
        return count_on_place(order, block, self.place(rank)[0], self.rows)

    def count_columns(self, rank: int, order: int, block: int) -> int:
        """Return the number of the matrix's columns on a rank."""
        return count_on_place(order, block, self.place(rank)[1], self.columns)

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def operations(order: int) -> float:
    """Return the nominal floating-point operations of a solve: 2/3 N^3 + 3/2 N^2 (HPL_pdtest.c)."""
    return 2 / 3 * order**3 + 3 / 2 * order**2


def count_on_place(order: int, block: int, place: int, places: int) -> int:
    """Count the rows or columns at a place, with blocks dealt in turn (ScaLAPACK's NUMROC, first place 0)."""
    whole, rest = divmod(order, block)
    rounds, over = divmod(whole, places)
    return rounds * block + (block if place < over else rest if place == over else 0)


class Team(NamedTuple):
    """The processes that share one host's memory, and the threads of each."""

    ranks: int
    threads: int


class Memory(NamedTuple):
    """A rank's memory by part, in bytes."""

    matrix: int
    """The rank's share of 8 N^2."""
    right_side: int
    """The rank's share of b, which becomes x."""
    pivots: int
    check: int
    """Two vectors of N for the residual. A is generated again, so no second matrix is needed."""
    panels: int
    """ScaLAPACK's panels: one of columns and one of rows, each twice because the next is sent ahead."""
    packed: int
    """dgemm's copy of the panel of rows in multiplication order, and a block for each thread."""
    process: int

    @property
    def named(self) -> int:
        """The sum without the process's memory, which is in use before the matrix."""
        return self.total - self.process

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def count_memory(order: int, block: int, grid: Grid, rank: int, threads: int) -> Memory:
    """Return the memory of a rank of the grid."""
    rows, columns = grid.count_rows(rank, order, block), grid.count_columns(rank, order, block)
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
    """Return the memory of a single process that solves by LAPACK: no panels, and twice as much packed."""
    return count_memory(order, order, Grid(1, 1), 0, threads)._replace(
        pivots=PIVOT_BYTES * order, panels=0, packed=2 * threads * int(_PACKED_BYTES.value)
    )


def memory_on_host(order: int, block: int, grid: Grid, team: Team) -> int:
    """Return the memory of the ranks of one host, for the host that needs most."""
    hosts = range(0, grid.ranks, team.ranks)
    each = [count_memory(order, block, grid, rank, team.threads).total for rank in range(grid.ranks)]
    return max(sum(each[first : first + team.ranks]) for first in hosts)


def largest_order(memory_bytes: float, block: int, grid: Grid, team: Team) -> int:
    """Return the largest N, a multiple of the block, whose ranks fit in each host's memory, or 0 if none does."""
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
    """The norms that scale the residual, all maximum norms (of a matrix: its largest row sum)."""

    residual: float
    """The norm of A x - b."""
    matrix: float
    solution: float
    right_side: float


def scaled_residual(norms: Norms, order: int) -> float:
    """Return ||Ax-b|| / (eps (||A|| ||x|| + ||b||) N), as HPL_pdtest.c does; infinite if it is not a number."""
    scale = EPSILON.value * (norms.matrix * norms.solution + norms.right_side) * order
    value = norms.residual / scale if scale > 0 else math.inf
    return value if math.isfinite(value) else math.inf
