"""The solvers of `gpu_hpl`: our own factorization, and cuSOLVERMp's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from railwright.benchmarks.linpack import problem
from railwright.benchmarks.linpack.gpu_options import OWN, VENDOR, GpuHplRank
from railwright.benchmarks.linpack.options import Point
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge
from railwright.native import cuda, cusolvermp, linpack, lu, nccl
from railwright.native.gpu_matrix import Matrix, Part
from railwright.native.memory import Buffer
from railwright.topology.devices import Scalar
from railwright.units import format_size


class Solved(NamedTuple):
    """A solve by all ranks."""

    seconds: float
    """The slowest rank's."""
    singular_at: int
    """The first column without a pivot, counted from 1; 0 if there is none."""
    norms: problem.Norms | None
    """None for a singular matrix."""
    settings: dict[str, Scalar]


Solve = Callable[[GpuHplRank, cuda.Device, nccl.Library], Solved | None]
"""Solves once. Returns the outcome on rank 0, None elsewhere. Collective. Raises Unavailable."""


def choose(rank: GpuHplRank) -> Solve:
    """Return the solver that the options name. Raises Unavailable. Collective."""
    named = rank.job.options.solver
    if named == OWN:
        return _solve_by_own
    rank.step("load cuSOLVERMp")
    library = open_on_all_ranks(rank, lambda: cusolvermp.Library("" if named == VENDOR else named))
    return lambda ranks, device, nccl_library: _solve_by_vendor(ranks, device, nccl_library, library)


def _solve_by_own(rank: GpuHplRank, device: cuda.Device, library: nccl.Library) -> Solved | None:
    comm, case = rank.comm, rank.job.case
    part = _part(case, comm.rank, has_right_side=True)
    with (
        open_on_all_ranks(rank, lambda: _open_matrix(device, part)) as matrix,
        open_on_all_ranks(rank, lambda: lu.Solver(matrix, library, _tuning(rank))) as solver,
    ):
        rank.step("ncclCommInitRank")
        solver.connect(comm)
        generated_s = _generate(rank, matrix)
        rank.step(f"gpu_hpl N {case.n}: solve on {case.grid} GPUs in blocks of {case.nb}")
        seconds = solver.solve()
        singular_at = solver.singular_at()
        rank.step(f"gpu_hpl N {case.n}: residual")
        start = time.perf_counter()
        norms = None if singular_at else problem.Norms(*matrix.norms(comm, solver.solution()))
        checked_s = time.perf_counter() - start
        kept: dict[str, Scalar] = {"solver": OWN, "panel_multiprocessors": solver.streams.multiprocessors}
        everyone = comm.gather((seconds, part.size_bytes, solver.work_bytes, generated_s, checked_s))
    return None if everyone is None else _summarize(everyone, singular_at, norms, kept)


def _tuning(rank: GpuHplRank) -> lu.Tuning:
    asked = rank.job.options.panel_sms
    return lu.Tuning() if asked < 0 else lu.Tuning(multiprocessors=asked)


def _solve_by_vendor(
    rank: GpuHplRank, device: cuda.Device, library: nccl.Library, solver: cusolvermp.Library
) -> Solved | None:
    comm, case = rank.comm, rank.job.case
    part = _part(case, comm.rank, has_right_side=False)
    host = linpack.Problem(case.n, case.nb, case.grid, case.grid.place(comm.rank), problem.SEED)
    team = gpus.connect_ranks(rank, device, library)
    vector_bytes = problem.DOUBLE_BYTES * part.lead
    with (
        open_on_all_ranks(rank, lambda: _open_matrix(device, part)) as matrix,
        cuda.DeviceBuffer(device, vector_bytes) as right_side,
        Buffer(vector_bytes) as held,
        open_on_all_ranks(rank, lambda: cusolvermp.Solver(solver, device, team.streams[0])) as grid,
    ):
        rank.step("cusolverMpCreateDeviceGrid")
        grid.join(team.members[0].comm, case.grid)
        work_bytes = open_on_all_ranks(
            rank, lambda: grid.prepare(case.n, case.nb, part.lead, matrix.buffer, right_side)
        )
        generated_s = _generate(rank, matrix)
        host.generate_right_side(held)
        right_side.copy_from(held.address, held.size_bytes)
        rank.step(f"gpu_hpl N {case.n}: solve on {case.grid} GPUs in blocks of {case.nb}")
        solved = grid.solve(comm)
        right_side.copy_to(held.address, held.size_bytes)
        rank.step(f"gpu_hpl N {case.n}: residual")
        start = time.perf_counter()
        norms = None if solved.singular_at else problem.Norms(*matrix.norms(comm, host.gather(comm, held)))
        checked_s = time.perf_counter() - start
        kept: dict[str, Scalar] = {"solver": VENDOR, "cusolvermp": grid.version, "math_mode": grid.math_mode}
        everyone = comm.gather((solved.seconds, part.size_bytes, work_bytes, generated_s, checked_s))
    team.close()
    return None if everyone is None else _summarize(everyone, solved.singular_at, norms, kept)


def _part(case: Point, rank: int, *, has_right_side: bool) -> Part:
    place = case.grid.place(rank)
    rows = case.grid.count_rows(rank, case.n, case.nb)
    columns = case.grid.count_columns(rank, case.n + has_right_side, case.nb)
    return Part(case.n, case.nb, case.grid, place, rows, columns)


def _open_matrix(device: cuda.Device, part: Part) -> Matrix:
    """Allocate the matrix. Raises CannotJudge with the largest order that fits if it does not."""
    free = device.free_bytes()
    if part.size_bytes > free:
        fits = int(part.order * (0.8 * free / part.size_bytes) ** 0.5) // part.block * part.block
        lack = f"{format_size(free)} of GPU memory is free"
        raise CannotJudge(
            f"{lack}, but N = {part.order} needs {format_size(part.size_bytes)} on each GPU: N = {fits} would fit"
        )
    return Matrix(device, part, problem.SEED)


def _generate(rank: GpuHplRank, matrix: Matrix) -> float:
    """Generate A and return the seconds."""
    rank.step(f"gpu_hpl N {matrix.part.order}: generate")
    start = time.perf_counter()
    matrix.generate()
    return time.perf_counter() - start


def _summarize(
    everyone: list[tuple[float, int, int, float, float]],
    singular_at: int,
    norms: problem.Norms | None,
    kept: dict[str, Scalar],
) -> Solved:
    seconds, matrices, works, generated, checked = zip(*everyone, strict=True)
    kept |= {
        "gpu_matrix_bytes": sum(matrices), "gpu_work_bytes": sum(works),
        "generation_s": max(generated), "check_s": max(checked),
    }  # fmt: skip
    return Solved(max(seconds), singular_at, norms, kept)
