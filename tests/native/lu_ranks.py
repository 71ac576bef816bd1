"""The program of test_lu.py's ranks: solves each case of the command line and prints its pivots and residual.

A case is order:block:rows:columns:leaf. The first rows x columns ranks take part in it. With a sixth number, that
column of the matrix is made zero.
"""

from __future__ import annotations

import json
import os
import sys

from mpi4py import MPI

from railwright.benchmarks.linpack import problem
from railwright.native import cuda, lu
from railwright.native.gpu_matrix import Matrix, Part
from railwright.native.nccl_library import Library


def solve(comm, device, library, case):
    order, block, rows, columns, leaf, *zero = map(int, case.split(":"))
    grid = problem.Grid(rows, columns)
    counts = grid.count_rows(comm.rank, order, block), grid.count_columns(comm.rank, order + 1, block)
    part = Part(order, block, grid, grid.place(comm.rank), *counts)
    with (
        Matrix(device, part, problem.SEED) as matrix,
        lu.Solver(matrix, library, lu.Tuning(leaf=leaf, multiprocessors=0, blocks_each=2)) as solver,
    ):
        solver.connect(comm)
        matrix.generate()
        for column in zero:
            matrix.buffer.write(bytes(8 * part.lead), 8 * part.lead * column)
        solver.solve()
        singular_at, x = solver.singular_at(), solver.solution()
        norms = problem.Norms(*matrix.norms(comm, x))
        pivots = comm.gather(solver.pivots)
    residual = problem.scaled_residual(norms, order)
    if pivots is None:
        return
    found = {
        "case": case,
        "pivots": pivots[0],
        "agree": all(one == pivots[0] for one in pivots),
        "singular": singular_at,
    }
    if not singular_at:
        found |= {"x": list(x), "residual": residual}
    sys.stdout.write(json.dumps(found) + "\n")


world = MPI.COMM_WORLD
device = cuda.Device(os.environ["STANDIN_GPU_ADDRESSES"].split(",")[world.rank])
library = Library()
for case in sys.argv[1:]:
    rows, columns = map(int, case.split(":")[2:4])
    takes_part = world.rank < rows * columns
    comm = world.Split(0 if takes_part else 1, world.rank)
    if takes_part:
        solve(comm, device, library, case)
    world.Barrier()
sys.stdout.flush()
MPI.Finalize()
os._exit(0)  # the stand-in's streams are threads that wait for ever
