"""High-Performance Linpack on GPUs: HPL's problem and residual, solved by cuSOLVERMp over NCCL, one process per GPU.

Times are taken as in `hpl`. The host generates A in parts, and generates it again for the residual, which takes longer
than the solve. The precision is fixed: cuSOLVERMp documents that it computes in FP64, and cuBLAS must not emulate it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.job import Case
from railwright.benchmarks.linpack import gpu_options, problem
from railwright.benchmarks.linpack.gpu_options import PRODUCT_ORDER, GpuHplOptions, GpuHplRank
from railwright.benchmarks.linpack.options import Point
from railwright.benchmarks.linpack.records import ProductTimes, product_case, product_record, solve_record
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.together import open_on_all_ranks, waive_unavailable
from railwright.errors import CannotJudge
from railwright.native import cuda, cusolvermp, linpack, nccl
from railwright.native.memory import Buffer
from railwright.native.train_load import Cublas
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Linpack, Unlimited
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs
from railwright.units import format_size

_METHOD = (
    "HPL 2.3: its matrix, residual and count of operations; cusolverMpGetrf and cusolverMpGetrs timed together, the "
    "slowest rank, without generation and check"
)
_WARM_UP, _SAMPLES = 1, 5
_STAGING_BYTES = 256 * 2**20


def _run(rank: GpuHplRank) -> Iterator[Result]:
    return waive_unavailable(rank, _blank(rank, rank.job.case), _measure(rank))


def _measure(rank: GpuHplRank) -> Iterator[Result]:
    """Run dgemm and one solve. Yields results on rank 0 only."""
    job = rank.job
    cpus = gpus.bind_near_gpu(job, rank.index)
    device, library = gpus.open_gpu_and_nccl(rank)
    rank.step("load cuSOLVERMp")
    solver = open_on_all_ranks(rank, lambda: cusolvermp.Library(job.options.solver))
    stream = cuda.Stream(device)
    rank.step("load cuBLAS")
    cublas = open_on_all_ranks(rank, lambda: _open_cublas(device, stream))
    kept: dict[str, Scalar] = {
        "gpus": format_runs(gpu.id for gpu in job.gpus), "gpu": device.name, "nccl": library.version,
        "cublas": cublas.version, "cpus": cpus, **gpus.nvls_settings(),
    }  # fmt: skip
    if job.launch.gpu_clock_hz:
        kept["gpu_clock_locked_hz"] = job.launch.gpu_clock_hz
    yield from _multiply(rank, device, stream, cublas, kept)
    yield from _solve(rank, device, library, solver, kept)


def _open_cublas(device: cuda.Device, stream: cuda.Stream) -> Cublas:
    cublas = Cublas(device, stream)
    cublas.use_default_math()
    return cublas


def _multiply(
    rank: GpuHplRank, device: cuda.Device, stream: cuda.Stream, cublas: Cublas, kept: dict[str, Scalar]
) -> Iterator[Result]:
    """Run dgemm on all GPUs at once and record it on rank 0. Collective."""
    comm = rank.comm
    order = min(PRODUCT_ORDER, rank.job.case.n)
    rank.step(f"gpu_hpl dgemm {order}")
    size, seconds = problem.DOUBLE_BYTES * order**2, []
    with (
        Buffer(size) as a, Buffer(size) as b, Buffer(size) as made,
        cuda.DeviceBuffer(device, size) as left, cuda.DeviceBuffer(device, size) as right,
        cuda.DeviceBuffer(device, size) as into,
    ):  # fmt: skip
        linpack.write_integers(a, order**2, 2 * comm.rank)
        linpack.write_integers(b, order**2, 2 * comm.rank + 1)
        left.copy_from(a.address, size)
        right.copy_from(b.address, size)
        for _ in range(_WARM_UP + _SAMPLES):
            device.synchronize()
            comm.Barrier()
            start = time.perf_counter()
            cublas.multiply_doubles(order, left, right, into)
            stream.synchronize()
            seconds.append(time.perf_counter() - start)
        into.copy_to(made.address, size)
        wrong = linpack.wrong_rows(order, a, b, made)
    everyone = comm.gather(ProductTimes(seconds[_WARM_UP:], wrong, host_name()))
    if everyone is None:
        return
    settings = kept | {"warm_up": _WARM_UP}
    record = product_record(_blank(rank, product_case(rank.job.case)), order, settings, everyone)
    slowest = record.settings.get("slowest_rank")
    if isinstance(slowest, int):
        record = replace(record, settings=record.settings | {"slowest_gpu": rank.job.find_gpu(slowest).id})
    yield record


def _solve(
    rank: GpuHplRank, device: cuda.Device, library: nccl.Library, solver: cusolvermp.Library, kept: dict[str, Scalar]
) -> Iterator[Result]:
    """Solve once, check the residual and record it on rank 0. Collective. Raises Unavailable."""
    comm, case = rank.comm, rank.job.case
    rows, columns = (count(comm.rank, case.n, case.nb) for count in (case.grid.count_rows, case.grid.count_columns))
    lead = max(1, rows)
    part = linpack.Problem(case.n, case.nb, case.grid, case.grid.place(comm.rank), problem.SEED)
    team = gpus.connect_ranks(rank, device, library)
    matrix_bytes = problem.DOUBLE_BYTES * lead * max(1, columns)
    open_on_all_ranks(rank, lambda: _refuse_full_gpu(device, matrix_bytes, case))
    with (
        cuda.DeviceBuffer(device, matrix_bytes) as matrix,
        cuda.DeviceBuffer(device, problem.DOUBLE_BYTES * lead) as right_side,
        Buffer(problem.DOUBLE_BYTES * lead) as held,
        open_on_all_ranks(rank, lambda: cusolvermp.Solver(solver, device, team.streams[0])) as grid,
    ):
        rank.step("cusolverMpCreateDeviceGrid")
        grid.join(team.members[0].comm, case.grid)
        work_bytes = open_on_all_ranks(rank, lambda: grid.prepare(case.n, case.nb, lead, matrix, right_side))
        rank.step(f"gpu_hpl N {case.n}: generate")
        _generate(part, matrix, lead, columns)
        part.generate_right_side(held)
        right_side.copy_from(held.address, held.size_bytes)
        rank.step(f"gpu_hpl N {case.n}: solve on {case.grid} GPUs in blocks of {case.nb}")
        solved = grid.solve(comm)
        right_side.copy_to(held.address, held.size_bytes)
        rank.step(f"gpu_hpl N {case.n}: residual")
        norms = None if solved.singular_at else problem.Norms(*part.norms(comm, held))
        kept = kept | {"cusolvermp": grid.version, "math_mode": grid.math_mode}
    everyone = comm.gather((solved.seconds, matrix_bytes, work_bytes))
    team.close()
    if everyone is None:
        return
    seconds, matrices, works = zip(*everyone, strict=True)
    kept |= {"gpu_matrix_bytes": sum(matrices), "gpu_work_bytes": sum(works)}
    blank = replace(_blank(rank, case), settings=kept)
    yield solve_record(blank, case.n, max(seconds), solved.singular_at, norms, rank.job.options.threshold)


def _refuse_full_gpu(device: cuda.Device, matrix_bytes: int, case: Point) -> bool:
    """Check that the matrix fits, or raise CannotJudge. The solver's own work space is checked later."""
    free = device.free_bytes()
    if matrix_bytes > free:
        fits = int(case.n * (0.8 * free / matrix_bytes) ** 0.5) // case.nb * case.nb
        lack = (
            f"{format_size(free)} of GPU memory is free, but N = {case.n} needs {format_size(matrix_bytes)} on each GPU"
        )
        raise CannotJudge(f"{lack}: N = {fits} would fit")
    return True


def _generate(part: linpack.Problem, matrix: cuda.DeviceBuffer, lead: int, columns: int) -> None:
    """Generate this process's part of A through a host buffer."""
    column = problem.DOUBLE_BYTES * lead
    at_once = max(1, min(columns, _STAGING_BYTES // column))
    with Buffer(column * at_once) as staging:
        for first in range(0, columns, at_once):
            end = min(columns, first + at_once)
            part.generate_columns(staging, lead, first, end)
            matrix.copy_from(staging.address, column * (end - first), column * first)


def _blank(rank: GpuHplRank, case: Case) -> Result:
    job = rank.job
    return BENCHMARK.blank(gpu_options.path(job), case, ranks=job.ranks, hosts=max(1, len(job.hosts)), launch=job.round)


BENCHMARK = Benchmark(
    name="gpu_hpl",
    summary="High-Performance Linpack on GPUs by cuSOLVERMp over NCCL, and dgemm by the same GPUs",
    method=_METHOD,
    results=(
        Declaration(
            "flop_per_s",
            Unlimited(why="it is the baseline of Linpack"),
            when={"part": ("dgemm",)},
            supplies="dgemm",
            is_reference=True,
        ),
        Declaration("flop_per_s", Linpack(on_gpus=True)),
    ),
    options=GpuHplOptions,
    case=Point,
    launches=gpu_options.launches,
    plan=gpu_options.plan,
    run=_run,
    spans_hosts=True,
    alone_on_a_host=True,
)
