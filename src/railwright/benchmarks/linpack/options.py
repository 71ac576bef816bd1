"""Options of `hpl`, and the launches, memory and time that follow from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.linpack import hpl_dat, layout, named, problem
from railwright.benchmarks.linpack.problem import Grid, Team
from railwright.benchmarks.options import Options, option, whole_number, whole_numbers, word_or
from railwright.errors import UsageError
from railwright.limits.limit import Constant
from railwright.native.vendor_libraries import NO_MKL
from railwright.reading import read_at_most
from railwright.results.host_list import format_hosts
from railwright.topology.sources.available_memory import available_memory_bytes

FLAT = "flat"
AUTO = "auto"
_MOST_THREADS = 1024
_MOST_LAUNCHES = 64

# For the plan, on the slow side: the rate of a core with AVX2 that shares its memory, and a library's load time.
_ESTIMATE_FLOP_PER_S = 10e9
_ESTIMATE_START_S = 5.0
_ESTIMATE_GENERATED_PER_S = 0.2e9
_ESTIMATE_PRODUCTS_S = 20.0
_LEAST_PRODUCT, _MOST_PRODUCT = 2048, 8192


def _parse_grids(text: str) -> tuple[Grid, ...]:
    """Parse `2x4,1x8`, or `flat`. Raises UsageError."""
    found = []
    for part in text.split(",")[: hpl_dat.MOST_VALUES + 1]:
        rows, cross, columns = part.strip().lower().partition("x")
        if rows == FLAT:
            found.append(layout.FLAT)
            continue
        if not cross:
            raise UsageError(f"invalid grid: {part[:40]!r}", hint=f"write rows x columns of ranks, like 2x4, or {FLAT}")
        number = whole_number(hpl_dat.MOST_RANKS)
        found.append(Grid(number(rows.strip()), number(columns.strip())))
    if len(found) > hpl_dat.MOST_VALUES:
        raise UsageError(f"more than {hpl_dat.MOST_VALUES} grids")
    return tuple(dict.fromkeys(found))


def order_option(fills: str) -> Any:  # noqa: ANN401 - see option
    """Return the option for N; `auto` fills the memory that `fills` describes."""
    several = word_or(AUTO, (), whole_numbers(problem.MOST_ROWS, 20))
    return option(AUTO, f"{AUTO} (fills {fills}), or rows of the matrix", several)


def block_option(usual: Constant) -> Any:  # noqa: ANN401 - see option
    """Return the option for NB, whose default is `usual`."""
    several = word_or(AUTO, (), whole_numbers(hpl_dat.MOST_BLOCK, 20))
    return option(AUTO, f"{AUTO} ({usual.value:g}), or rows of a block", several)


def grid_option(members: str) -> Any:  # noqa: ANN401 - see option
    """Return the option for the grid, P x Q ranks or GPUs."""
    text = f"{AUTO} (near a square), {FLAT} (one row), or rows x columns of {members}, like 2x4"
    return option(AUTO, text, word_or(AUTO, (), _parse_grids))


def can_grow(grids: tuple[Grid, ...]) -> bool:
    """Report whether the grid option works for groups of any size."""
    return grids in ((), (layout.FLAT,))


def grown_grid(grids: tuple[Grid, ...], ranks: int) -> Grid:
    """Return the grid of a group of this many ranks."""
    return layout.choose_grid(grids[0], ranks) if grids else layout.best_grid(ranks)


def _read_dat(text: str) -> hpl_dat.HplDat:
    """Read the HPL.dat at a path. Raises UsageError."""
    try:
        raw = read_at_most(text, hpl_dat.MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{text[:200]!r} cannot be read: {error.strerror}") from error
    return hpl_dat.read(raw.decode("utf-8", "replace"))


def _parse_library(text: str) -> str:
    """Parse the path of a library. Raises UsageError for a bare name, which is ambiguous."""
    if "/" not in text:
        raise UsageError(f"must be a path, got {text[:80]!r}", hint="give the path of a ScaLAPACK, or auto")
    return text


def parse_percent(text: str) -> float:
    """Parse a percentage of memory, 1 to 95, into a fraction. Raises UsageError."""
    return whole_number(95)(text) / 100


_dat_or_none = word_or("", None, _read_dat)
_number = word_or(AUTO, 0, whole_number(_MOST_THREADS))


class HplOptions(Options, frozen=True):
    """Options of Linpack."""

    n: tuple[int, ...] = order_option("the memory")
    nb: tuple[int, ...] = block_option(layout.BLOCK)
    grid: tuple[Grid, ...] = grid_option("ranks")
    ranks: int = option(AUTO, f"{AUTO} (one for each NUMA node), or processes on this host", _number)
    threads: int = option(AUTO, f"{AUTO} (all cores), or threads of each process", _number)
    fill: float = option(
        f"{100 * layout.FILL.value:.0f}", "percent of the free memory that N = auto fills", parse_percent
    )
    library: str = option(
        AUTO, f"{AUTO} (MKL), or the path of a ScaLAPACK for this MPI", word_or(AUTO, "", _parse_library)
    )
    """The library's path; empty for MKL."""
    program: str = option("", "the path of an xhpl to run instead, on every host", word_or("", "", named.parse_program))
    arguments: str = option(named.AUTO_ARGUMENTS, named.ARGUMENTS_HELP, named.parse_arguments)
    dat: hpl_dat.HplDat | None = option(
        "", "the path of an HPL.dat, whose N, NB, P, Q and threshold override the options", _dat_or_none
    )

    @property
    def threshold(self) -> float:
        """The scaled residual at and above which a solution is rejected."""
        return self.dat.threshold if self.dat else problem.THRESHOLD.value

    @property
    def has_block_size(self) -> bool:
        """Whether NB was given: a single process without it leaves blocks to LAPACK."""
        return bool(self.nb or self.dat)

    def points(self, ranks: int, sharing: Team) -> Iterator[tuple[int, int, Grid]]:
        """Yield each requested (N, NB, grid). Raises UsageError for problems that do not fit."""
        orders, blocks, grids = (
            (self.dat.orders, self.dat.blocks, self.dat.grids) if self.dat else (self.n, self.nb, self.grid)
        )
        free = available_memory_bytes()
        grids = tuple(layout.choose_grid(grid, ranks) for grid in grids) or (layout.best_grid(ranks),)
        for block, grid in itertools.product(blocks or (int(layout.BLOCK.value),), grids):
            layout.refuse_other_grid(grid, ranks)
            for order in orders or (layout.order_that_fits(free, self.fill, block, grid, sharing),):
                layout.refuse_too_large(order, free, block, grid, sharing)
                yield order, block, grid

    def grown(self, machine: Machine, team: Team) -> tuple[int, int, Grid]:
        """Return (N, NB, grid) of a growing group, with as much work per host as on one host. Raises UsageError."""
        if self.dat or max(len(self.n), len(self.nb)) > 1 or not can_grow(self.grid):
            raise UsageError("growing groups need one N and one NB, and choose their own grid",
                             hint=f"give one -o n= of one host and one -o nb=; no grid but {FLAT}, no dat")  # fmt: skip
        block, free = self.nb[0] if self.nb else int(layout.BLOCK.value), available_memory_bytes()
        hosts, all_ranks = len(machine.hosts), Team(team.ranks * machine.grows_to, team.threads)
        sharing = all_ranks if machine.hosts_share_cpus else team
        if self.n:
            alone = self.n[0]
        else:
            grid = layout.best_grid(sharing.ranks)
            alone = layout.order_that_fits(free, self.fill, block, grid, sharing)
            alone = int(alone / math.sqrt(sharing.ranks / team.ranks)) // block * block
        order, grid = layout.grown_order(alone, hosts, block), grown_grid(self.grid, team.ranks * hosts)
        layout.refuse_too_large(order, free, block, grid, _team_sharing_memory(machine, team))
        return order, block, grid


class Point(Case, frozen=True, kw_only=True):
    """A solve of N rows in blocks of NB, on P x Q ranks with threads."""

    n: int
    nb: int
    p: int
    q: int
    threads: int = 0
    """Threads of each process; 0 if it works with a GPU."""
    host: str = ""
    """The single host that is measured."""
    hosts: str = ""
    """The hosts of a merged group."""
    first: int = 0
    """The number of these hosts in the first of the two groups."""

    @property
    def grid(self) -> Grid:
        """The ranks' rows and columns."""
        return Grid(self.p, self.q)


HplJob = Job[HplOptions, Point]
HplRank = Rank[HplOptions, Point]


def launches(options: HplOptions, machine: Machine) -> tuple[Launch[Point], ...]:
    """Return a launch for each N, NB and grid, so that each starts with empty memory.

    Raises UsageError for problems that do not fit, and for options that contradict each other.
    """
    ranks = options.ranks
    if not ranks and not machine.hosts and (grids := options.dat.grids if options.dat else options.grid):
        ranks = grids[0].ranks
    team = layout.choose_team(machine, ranks, options.threads)
    total = team.ranks * max(1, len(machine.hosts))
    if machine.hosts and options.ranks and options.ranks != team.ranks:
        raise UsageError(f"ranks is {options.ranks} per host, but {team.ranks} are started on each",
                         hint=f"give --ranks-per-host {options.ranks}")  # fmt: skip
    named.refuse_missing(options.program, machine)
    grown = machine.grows_to
    points = (
        iter([options.grown(machine, team)]) if grown else options.points(total, _team_sharing_memory(machine, team))
    )
    environment = _environment(team.threads)
    return tuple(
        Launch(case=case, environment=environment, ranks=total) for case in cases(points, machine, team.threads)
    )


def cases(points: Iterator[tuple[int, int, Grid]], machine: Machine, threads: int = 0) -> list[Point]:
    """Return a case for each (N, NB, grid). Raises UsageError for too many."""
    found = list(itertools.islice(points, _MOST_LAUNCHES + 1))
    if len(found) > _MOST_LAUNCHES:
        raise UsageError(f"more than {_MOST_LAUNCHES} combinations of N, NB and grid", hint="give fewer of each")
    host = machine.hosts[0] if len(machine.hosts) == 1 else ""
    group, first = format_hosts(machine.hosts) if machine.first_hosts else "", machine.first_hosts
    return [
        Point(n=order, nb=nb, p=grid.rows, q=grid.columns, threads=threads, host=host, hosts=group, first=first)
        for order, nb, grid in found
    ]


def _team_sharing_memory(machine: Machine, team: Team) -> Team:
    """Return the ranks that share a host's memory: all of them if the hosts are namespaces of one machine."""
    sharing = machine.hosts and machine.hosts_share_cpus
    return Team(team.ranks * len(machine.hosts), team.threads) if sharing else team


def _environment(threads: int) -> dict[str, str]:
    """Return the variables that set the planned number of threads, which records state; they override the user's."""
    return {name: str(threads) for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS")} | {"MKL_DYNAMIC": "FALSE"}


def is_functional(job: HplJob) -> bool:
    """Report whether threads share cores, so that the run proves function but not speed."""
    host_cpus = job.machine.host_cpus
    if host_cpus is not None and host_cpus * len(job.hosts) <= len(job.cpus):
        return False  # each host has its own part of the cores
    return job.ranks_on_cpus * job.case.threads > len(job.cpus)


def count_rank_cpus(job: HplJob) -> float:
    """Return the maximum CPU time per second that a rank can get."""
    host_cpus = job.machine.host_cpus
    return job.case.threads if host_cpus is None else min(job.case.threads, host_cpus * len(job.hosts) / job.ranks)


def product_order(case: Point) -> int:
    """Return the order of dgemm's matrices, at most N: a product takes equally long with any number of threads."""
    grown = int(_LEAST_PRODUCT * math.pow(case.threads, 1 / 3)) // 64 * 64
    return min(grown, _MOST_PRODUCT, case.n)


def path(job: HplJob) -> str:
    """Return the path from rank 0's memory to the last rank's."""
    return f"{job.find_memory(0)}>{job.find_memory(job.ranks - 1)}"


def plan(job: HplJob) -> Plan:
    """Estimate the time of one solve and its dgemm, and a host's memory."""
    case = job.case
    threads = case.threads * job.ranks
    solve_s = problem.operations(case.n) / (_ESTIMATE_FLOP_PER_S * threads)
    generate_s = 2 * case.n**2 / (_ESTIMATE_GENERATED_PER_S * job.ranks)
    sharing = _team_sharing_memory(job.machine, Team(job.ranks // max(1, len(job.hosts)), case.threads))
    return Plan(
        path=path(job),
        seconds=_ESTIMATE_START_S + _ESTIMATE_PRODUCTS_S + generate_s + solve_s,
        memory_bytes=max(
            problem.memory_on_host(case.n, case.nb, case.grid, sharing),
            sharing.ranks * (problem.RANK_BYTES + 3 * problem.DOUBLE_BYTES * product_order(case) ** 2),
        ),
        moved_bytes=panels_bytes(case),
        waived=_find_missing(job),
    )


def _find_missing(job: HplJob) -> str:
    """Return the reason if no library exists for this processor, or an empty string."""
    named = job.options.library or job.options.program
    is_arm = any(cpu.facts.get("architecture") == "arm64" for cpu in job.topology.of_kind("cpu"))
    return NO_MKL if is_arm and not named else ""


def panels_bytes(case: Point) -> int:
    """Return the minimum bytes sent: each panel to the other columns, each row block to the other rows."""
    return problem.DOUBLE_BYTES * case.n**2 // 2 * (case.p - 1 + case.q - 1)
