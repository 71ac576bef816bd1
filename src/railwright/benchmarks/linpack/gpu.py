"""High-Performance Linpack on GPUs: HPL's problem and residual, one process per GPU.

Times are taken as in `hpl`. The GPUs generate A, and generate it again for the residual. The precision is fixed:
cuBLAS must not emulate FP64, and cuSOLVERMp documents that it computes in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Program
from railwright.benchmarks.job import Case
from railwright.benchmarks.linpack import gpu_options, gpu_products, gpu_solvers, named
from railwright.benchmarks.linpack.gpu_options import GpuHplJob, GpuHplOptions, GpuHplRank
from railwright.benchmarks.linpack.options import Point
from railwright.benchmarks.linpack.records import DGEMM, SUSTAINED, solve_record
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.together import open_on_all_ranks, waive_unavailable
from railwright.native import cuda
from railwright.native.train_load import Cublas
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Linpack, Unlimited
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs

_METHOD = (
    "HPL 2.3: its matrix, residual and count of operations; factorization and substitution timed together, the "
    "slowest rank, without generation and check"
)


def _run(rank: GpuHplRank) -> Iterator[Result]:
    return waive_unavailable(rank, _blank(rank, rank.job.case), _measure(rank))


def _measure(rank: GpuHplRank) -> Iterator[Result]:
    """Run dgemm and one solve. Yields results on rank 0 only."""
    job = rank.job
    cpus = gpus.bind_near_gpu(job, rank.index)
    device, library = gpus.open_gpu_and_nccl(rank)
    solve = gpu_solvers.choose(rank)
    stream = cuda.Stream(device)
    rank.step("load cuBLAS")
    cublas = open_on_all_ranks(rank, lambda: _open_cublas(device, stream))
    kept: dict[str, Scalar] = {
        "gpus": format_runs(gpu.id for gpu in job.gpus), "gpu": device.name, "nccl": library.version,
        "cublas": cublas.version, "cpus": cpus, **gpus.nvls_settings(),
    }  # fmt: skip
    if job.launch.gpu_clock_hz:
        kept["gpu_clock_locked_hz"] = job.launch.gpu_clock_hz
    for record in gpu_products.measure(rank, device, stream, cublas, lambda case: _blank(rank, case)):
        yield replace(record, settings=kept | record.settings)
    solved = solve(rank, device, library)
    if solved is not None:
        blank = replace(_blank(rank, job.case), settings=kept | solved.settings)
        yield solve_record(blank, job.case.n, solved.seconds, solved.singular_at, solved.norms, job.options.threshold)


def _open_cublas(device: cuda.Device, stream: cuda.Stream) -> Cublas:
    cublas = Cublas(device, stream)
    cublas.use_default_math()
    return cublas


def _blank(rank: GpuHplRank, case: Case) -> Result:
    job = rank.job
    return BENCHMARK.blank(gpu_options.path(job), case, ranks=job.ranks, hosts=max(1, len(job.hosts)), launch=job.round)


def _program(job: GpuHplJob) -> Program | None:
    """Return the user's HPL for GPUs, or None if the option `program` is not given."""
    asked = job.options
    if not asked.program:
        return None
    hosts = max(1, len(job.hosts))
    blank = BENCHMARK.blank(gpu_options.path(job), job.case, ranks=job.ranks, hosts=hosts)
    return named.program(asked.program, asked.arguments, job.case, asked.threshold, blank)


BENCHMARK = Benchmark(
    name="gpu_hpl",
    summary="High-Performance Linpack on GPUs over NCCL, and dgemm by the same GPUs",
    method=_METHOD,
    results=(
        Declaration(
            "flop_per_s",
            Unlimited(why="it is the baseline of Linpack"),
            when={"part": (DGEMM,)},
            is_reference=True,
        ),
        Declaration(
            "flop_per_s",
            Unlimited(why="it is the baseline of Linpack"),
            when={"part": (SUSTAINED,)},
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
    program=_program,
    spans_hosts=True,
    alone_on_a_host=True,
)
