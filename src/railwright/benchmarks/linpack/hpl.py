"""High-Performance Linpack on CPUs: HPL's problem and residual, solved by ScaLAPACK, and dgemm by the same ranks.

The timing is HPL's (HPL_pdtest.c): factorisation and both substitutions, the slowest rank, without generation and
check. dgemm runs first on all ranks at once, so that it has the same cores, clocks and library.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Program
from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.job import Case
from railwright.benchmarks.linpack import layout, named, options, problem
from railwright.benchmarks.linpack.options import HplJob, HplOptions, HplRank, Point
from railwright.benchmarks.linpack.records import ProductTimes, product_case, product_record, solve_record
from railwright.benchmarks.together import open_on_all_ranks, waive_unavailable
from railwright.errors import CannotJudge
from railwright.native import linpack, mpi
from railwright.native.memory import Buffer
from railwright.native.scalapack import DistributedGrid, Scalapack, Solved
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.workload import Linpack, Unlimited
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import Scalar
from railwright.topology.sources.available_memory import available_memory_bytes, resident_bytes
from railwright.units import format_duration, format_size

_METHOD = (
    "HPL 2.3: its matrix, residual and count of operations; factorisation and substitution timed together, the slowest "
    "rank, without generation and check"
)
_WARM_UP, _SAMPLES = 1, 5
_REPORT_EVERY_S = 2.0


def share_done(columns: int, order: int) -> float:
    """Return the share of the operations that `columns` of `order` columns take: 1 - (1 - columns / order)^3."""
    return 1 - (1 - min(max(columns, 0), order) / order) ** 3


def progress(columns: int, order: int, spent_s: float) -> str:
    """Format progress as `40 %, 2.3 s left`, without a time before anything is done."""
    done = share_done(columns, order)
    left = f", {format_duration(spent_s * (1 - done) / done)} left" if done else ""
    return f"{100 * done:.0f} %{left}"


@contextlib.contextmanager
def report_progress(rank: HplRank, order: int) -> Iterator[None]:
    """Report progress to the launcher from rank 0 while the context is open.

    A sleeping thread reads the library's count of columns. It stays silent while the count does not grow, so that a
    factorisation that hangs is noticed.
    """
    if rank.index:
        yield
        return
    ended = threading.Event()

    def report() -> None:
        start, reported = time.monotonic(), 0
        while not ended.wait(_REPORT_EVERY_S):
            columns = linpack.columns_done()
            if columns > reported:
                reported = columns
                rank.step(f"hpl N {order}: {progress(columns, order, time.monotonic() - start)}")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()


def _run(rank: HplRank) -> Iterator[Result]:
    return waive_unavailable(rank, _blank(rank, rank.job.case), _measure(rank))


def _measure(rank: HplRank) -> Iterator[Result]:
    """Run dgemm and one solve. Yields results on rank 0 only."""
    job, comm = rank.job, rank.comm
    os.environ |= (
        job.launch.environment
    )  # a launcher does not pass these variables on to other hosts; libraries read them later
    cpus = _bind_to_own_cpus(job, comm.rank)
    rank.step("load ScaLAPACK")
    mpich_abi = mpi.has_mpich_abi()
    library = open_on_all_ranks(rank, lambda: Scalapack(job.options.library, job.case.threads, mpich_abi=mpich_abi))
    open_on_all_ranks(rank, lambda: _refuse_full_host(rank))
    kept: dict[str, Scalar] = {
        "library": library.version,
        "mpi": mpi.library_version(),
        "thread_level": mpi.thread_level(),
        "cpus": format_cpu_list(cpus),
        "functional": options.is_functional(job),
    }
    yield from _multiply(rank, library, kept)
    yield from _solve(rank, library, kept)


def _bind_to_own_cpus(job: HplJob, rank: int) -> tuple[int, ...]:
    """Bind this process to its share of the CPUs, which a library's threads inherit."""
    ranks = job.ranks_on_cpus
    cpus = layout.list_cpus(job.machine, rank % ranks, ranks)
    os.sched_setaffinity(0, cpus)
    return cpus


def _refuse_full_host(rank: HplRank) -> bool:
    """Check this rank's host for the memory that the plan assumes, or raise CannotJudge."""
    job, free = rank.job, available_memory_bytes()
    case, team = job.case, problem.Team(job.ranks_on_cpus, job.case.threads)
    need = problem.count_memory(case.n, case.nb, case.grid, rank.index, case.threads).total * team.ranks
    if free is not None and need > free + team.ranks * problem.RANK_BYTES:  # memory that these processes already use
        fits = problem.largest_order(layout.FILL.value * free, case.nb, case.grid, team)
        lack = f"{host_name()} has {format_size(free)} of free memory, but N = {case.n} needs {format_size(need)}"
        raise CannotJudge(f"{lack}: N = {fits} would fit")
    return True


def _multiply(rank: HplRank, library: Scalapack, kept: dict[str, Scalar]) -> Iterator[Result]:
    """Run dgemm on all ranks at once and record it on rank 0. Collective."""
    comm = rank.comm
    order = options.product_order(rank.job.case)
    rank.step(f"hpl dgemm {order}")
    size, seconds = problem.DOUBLE_BYTES * order**2, []
    with Buffer(size) as a, Buffer(size) as b, Buffer(size) as product:
        linpack.write_integers(a, order**2, 2 * comm.rank)
        linpack.write_integers(b, order**2, 2 * comm.rank + 1)
        start, start_cpu = time.perf_counter(), time.process_time()
        for _ in range(_WARM_UP + _SAMPLES):
            comm.Barrier()
            seconds.append(library.multiply(order, a, b, product))
        cpu_share = (time.process_time() - start_cpu) / (
            (time.perf_counter() - start) * options.count_rank_cpus(rank.job)
        )
        wrong = linpack.wrong_rows(order, a, b, product)
    multiplied = ProductTimes(seconds[_WARM_UP:], wrong, host_name())
    ranks, shares = comm.gather(multiplied), comm.gather(cpu_share)
    if ranks is None or shares is None:
        return
    settings = kept | {"warm_up": _WARM_UP, "cpu_share": round(min(shares), 3)}
    yield product_record(_blank(rank, product_case(rank.job.case)), order, settings, ranks)


class _Measurements(NamedTuple):
    """A rank's measurements of a solve."""

    solved: Solved
    peak_bytes: int
    process_bytes: int
    """The process's memory before the matrix."""
    named_bytes: int
    """The memory of the matrix and the work space, as `problem.Memory` counts it."""


def _solve(rank: HplRank, library: Scalapack, kept: dict[str, Scalar]) -> Iterator[Result]:
    """Solve once, check the residual and record it on rank 0. Collective."""
    comm, case = rank.comm, rank.job.case
    alone = rank.job.ranks == 1 and not rank.job.options.has_block_size and library.has_lapack
    if alone:
        needs = problem.memory_alone(case.n, case.threads)
    else:
        needs = problem.count_memory(case.n, case.nb, case.grid, comm.rank, case.threads)
    process = resident_bytes()
    part = linpack.Problem(case.n, case.nb, case.grid, case.grid.place(comm.rank), problem.SEED)
    lead = needs.right_side // problem.DOUBLE_BYTES
    with (
        Buffer(max(needs.matrix, problem.DOUBLE_BYTES)) as matrix,
        Buffer(needs.right_side) as right_side,
        Buffer(needs.pivots) as pivots,
    ):
        rank.step(f"hpl N {case.n}: generate")
        part.generate_columns(matrix, lead, 0, case.grid.count_columns(comm.rank, case.n, case.nb))
        part.generate_right_side(right_side)
        rank.step(f"hpl N {case.n}: solve on {case.grid} ranks in blocks of {case.nb}")
        with report_progress(rank, case.n):
            if alone:
                solved = library.solve(case.n, matrix, right_side, pivots)
            else:
                with DistributedGrid(library, case.p, case.q) as grid:
                    solved = grid.solve(comm, case.n, case.nb, lead, matrix, right_side, pivots)
        rank.step(f"hpl N {case.n}: residual")
        is_checked = rank.job.options.threshold > 0 and not solved.singular_at
        norms = problem.Norms(*part.norms(comm, right_side)) if is_checked else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    everyone = comm.gather(_Measurements(solved, peak, process, needs.named))
    if everyone is not None:
        yield _result(rank, kept | {"solver": "dgetrf" if alone else "pdgetrf"}, everyone, norms)


def _result(rank: HplRank, kept: dict[str, Scalar], seen: list[_Measurements], norms: problem.Norms | None) -> Result:
    case = rank.job.case
    rank_cpus = options.count_rank_cpus(rank.job)
    settings = kept | {
        "peak_bytes": sum(one.peak_bytes for one in seen),
        "process_bytes": sum(one.process_bytes for one in seen),
        "named_bytes": sum(one.named_bytes for one in seen),
        "cpu_share": round(min(one.solved.cpu_s / (one.solved.seconds * rank_cpus) for one in seen), 3),
    }
    blank = replace(_blank(rank, case), settings=settings)
    seconds = max(one.solved.seconds for one in seen)
    return solve_record(blank, case.n, seconds, seen[0].solved.singular_at, norms, rank.job.options.threshold)


def _blank(rank: HplRank, case: Case) -> Result:
    job = rank.job
    return BENCHMARK.blank(options.path(job), case, ranks=job.ranks, hosts=max(1, len(job.hosts)), launch=job.round)


def _program(job: HplJob) -> Program | None:
    """Return the user's xhpl, or None if the option `program` is not given."""
    asked = job.options
    if not asked.program:
        return None
    blank = BENCHMARK.blank(options.path(job), job.case, ranks=job.ranks, hosts=max(1, len(job.hosts)))
    return named.program(asked.program, asked.arguments, job.case, asked.threshold, blank)


BENCHMARK = Benchmark(
    name="hpl",
    summary="High-Performance Linpack on CPUs by ScaLAPACK, and dgemm by the same ranks",
    method=_METHOD,
    results=(
        Declaration(
            "flop_per_s",
            Unlimited(why="no document gives the clock of these cores under dgemm"),
            when={"part": ("dgemm",)},
            supplies="dgemm",
            is_reference=True,
        ),
        Declaration("flop_per_s", Linpack()),
    ),
    options=HplOptions,
    case=Point,
    launches=options.launches,
    plan=options.plan,
    run=_run,
    program=_program,
    spans_hosts=True,
    alone_on_a_host=True,
)
