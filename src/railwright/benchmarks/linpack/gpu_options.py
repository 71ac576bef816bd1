"""Options of `gpu_hpl`, and the launches, memory and time that follow from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.linpack import layout, named
from railwright.benchmarks.linpack import options as hpl_options
from railwright.benchmarks.linpack.options import AUTO, Point
from railwright.benchmarks.linpack.problem import DOUBLE_BYTES, THRESHOLD, Grid, operations
from railwright.benchmarks.nccl.gpus import GPUS_HELP, LIBRARY_HELP, Gpus, parse_gpus, parse_library
from railwright.benchmarks.options import Options, is_whole, option, whole_number, word_or
from railwright.errors import UsageError
from railwright.limits.limit import Constant, Source
from railwright.units import format_size

BLOCK = Constant(1024, "rows of a block on a GPU, unless nb is given", Source("NVIDIA HPL", "HPL.dat of H100"))
_CLOCKS_MHZ = (100, 5000)
_MOST_PANEL_SMS, _MOST_SUSTAINED_S = 64, 600
OWN, VENDOR = "own", "cusolvermp"

# For the plan, on the slow side: a GPU with a tenth of an H100's rates.
_ESTIMATE_FLOP_PER_S = 5e12
_ESTIMATE_GENERATED_PER_S = 20e9
_ESTIMATE_START_S = 20.0
_HOST_BYTES = 3 * 2**30
"""The memory of a process with CUDA, NCCL and the solver loaded, and of its staging buffer."""
PRODUCT_ORDER, SUSTAINED_ORDER = 8192, 16384


def _parse_clock(text: str) -> float:
    """Parse the locked GPU clock, in Hz. Raises UsageError."""
    minimum, maximum = _CLOCKS_MHZ
    if not is_whole(text, maximum, minimum):
        raise UsageError(
            f"must be a frequency in MHz, got {text[:40]!r}", hint=f"give {AUTO}, or MHz from {minimum} to {maximum}"
        )
    return int(text) * 1e6


def _parse_solver(text: str) -> str:
    """Parse `own`, `cusolvermp` or the path of a library. Raises UsageError."""
    return text if text in (OWN, VENDOR) else parse_library(text)


_panel_sms = word_or(AUTO, -1, whole_number(_MOST_PANEL_SMS, 0))
_sustained = whole_number(_MOST_SUSTAINED_S, 0)
_clock = word_or(AUTO, 0.0, _parse_clock)


class GpuHplOptions(Options, frozen=True):
    """Options of Linpack on GPUs."""

    n: tuple[int, ...] = hpl_options.order_option("the GPUs")
    nb: tuple[int, ...] = hpl_options.block_option(BLOCK)
    grid: tuple[Grid, ...] = hpl_options.grid_option("GPUs")
    gpus: Gpus = option("all", GPUS_HELP, parse_gpus(1))
    fill: float = option("80", "percent of the GPUs' memory that N = auto fills", hpl_options.parse_percent)
    library: str = option(AUTO, LIBRARY_HELP, parse_library)
    solver: str = option(OWN, f"{OWN} (our LU), {VENDOR}, or the path of a libcusolverMp.so.0", _parse_solver)
    program: str = option(
        "", "the path of an HPL for GPUs to run instead, like NVIDIA's hpl.sh", word_or("", "", named.parse_program)
    )
    arguments: str = option(named.AUTO_ARGUMENTS, named.ARGUMENTS_HELP, named.parse_arguments)
    panel_sms: int = option(AUTO, f"{AUTO}, or the multiprocessors of a GPU that only panels use", _panel_sms)
    sustain: int = option("10", "seconds that the sustained dgemm lasts", _sustained)
    clock: float = option(AUTO, f"{AUTO}, or the frequency in MHz that the GPU clocks are locked to", _clock)

    @property
    def threshold(self) -> float:
        """The scaled residual at and above which a solution is rejected."""
        return THRESHOLD.value


GpuHplJob = Job[GpuHplOptions, Point]
GpuHplRank = Rank[GpuHplOptions, Point]


def launches(options: GpuHplOptions, machine: Machine) -> tuple[Launch[Point], ...]:
    """Return a launch for each N, NB and grid, with a process per GPU.

    Raises UsageError for problems that do not fit, and for options that contradict each other.
    """
    gpus = options.gpus.of(machine)
    hosts = max(1, len(machine.hosts))
    if machine.hosts and gpus and machine.ranks_per_host != len(gpus):
        raise UsageError(f"a host has {len(gpus)} GPUs, and {machine.ranks_per_host} ranks are started on each",
                         hint=f"give --ranks-per-host {len(gpus)}")  # fmt: skip
    if machine.hosts and options.clock:
        raise UsageError(
            "clock locks only this host's GPUs, so it excludes --hosts",
            hint="leave out clock, and lock the clocks on every host",
        )
    named.refuse_missing(options.program, machine)
    ranks = max(1, len(gpus)) * hosts
    return tuple(
        Launch(
            case=case,
            environment={"CUBLAS_EMULATE_DOUBLE_PRECISION": "0"},
            ranks=ranks,
            gpus=gpus,
            gpu_clock_hz=options.clock,
        )
        for case in hpl_options.cases(_points(options, machine, ranks, hosts), machine)
    )


def _points(options: GpuHplOptions, machine: Machine, ranks: int, hosts: int) -> Iterator[tuple[int, int, Grid]]:
    """Yield each (N, NB, grid). Raises UsageError for problems that do not fit."""
    if machine.grows_to and (max(len(options.n), len(options.nb)) > 1 or not hpl_options.can_grow(options.grid)):
        hint = f"give one -o n= of a single host and one -o nb=; no grid but {hpl_options.FLAT}"
        raise UsageError("growing groups need one N and one NB, and choose their own grid", hint=hint)
    memory = _memory_bytes(machine, options)
    grids = [layout.choose_grid(grid, ranks) for grid in options.grid] or [layout.best_grid(ranks)]
    for block, grid in itertools.product(options.nb or (int(BLOCK.value),), grids):
        layout.refuse_other_grid(grid, ranks)
        for asked in options.n or (_order_that_fills(options.fill * memory * ranks // hosts, block),):
            order = layout.grown_order(asked, hosts, block) if machine.grows_to else asked
            if not options.n and not machine.grows_to:
                order = _order_that_fills(options.fill * memory * ranks, block)
            _refuse_too_large(order, memory, ranks, block)
            yield order, block, grid


def _memory_bytes(machine: Machine, options: GpuHplOptions) -> int:
    """Return the smallest participating GPU's memory, or 0 if a GPU's is unknown."""
    names = options.gpus.of(machine)
    sizes = [gpu.facts.get("memory_bytes") for gpu in machine.topology.of_kind("gpu") if gpu.id in names]
    known = [size for size in sizes if isinstance(size, int)]
    return min(known) if len(known) == len(sizes) and known else 0


def _order_that_fills(memory_bytes: float, block: int) -> int:
    return max(1, math.isqrt(int(memory_bytes) // DOUBLE_BYTES) // block) * block


def _refuse_too_large(order: int, memory_bytes: int, ranks: int, block: int) -> None:
    """Raise UsageError for a matrix beyond the GPUs' memory, and suggest one that fits."""
    need = DOUBLE_BYTES * order**2 // ranks
    if memory_bytes and need > memory_bytes:
        fits = _order_that_fills(0.8 * memory_bytes * ranks, block)
        raise UsageError(f"N = {order} needs {format_size(need)} on each GPU, which has {format_size(memory_bytes)}",
                         hint=f"N = {fits} would fit")  # fmt: skip


def path(job: GpuHplJob) -> str:
    """Return the path from the first rank's GPU to the last one's."""
    gpus = job.gpus
    return f"{gpus[0].id}>{gpus[-1].id}" if gpus else "gpu0>gpu0"


def plan(job: GpuHplJob) -> Plan:
    """Estimate the time of one solve and its dgemm, or give the reason why it cannot run."""
    case, reason = job.case, gpu_job.waiver_reason(job, job.options.gpus.first or 1)
    if not reason and not _memory_bytes(job.machine, job.options) and not job.options.n:
        reason = "the GPUs' memory size is unknown: give -o n="
    generate_s = 2 * case.n**2 / (_ESTIMATE_GENERATED_PER_S * job.ranks)
    solve_s = operations(case.n) / (_ESTIMATE_FLOP_PER_S * job.ranks)
    return Plan(
        path=path(job),
        waived=reason,
        seconds=_ESTIMATE_START_S + job.options.sustain + generate_s + solve_s,
        memory_bytes=_HOST_BYTES * job.ranks // max(1, len(job.hosts)),
        moved_bytes=hpl_options.panels_bytes(case),
    )
