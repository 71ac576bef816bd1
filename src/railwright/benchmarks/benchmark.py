"""What a benchmark is: how it is planned in the parent, and run by the ranks of a launch.

A benchmark emits results and path ids, and declares as data which kind of bound each result is held against; it knows
no limit. The parent never loads MPI, NIXL or CUDA: `launches` and `plan` run there, `run` in the ranks alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

import msgspec

from railwright.benchmarks.job import C, Case, Job, Launch, Machine
from railwright.benchmarks.options import O, Options, parse_options
from railwright.limits.limit import Quantity
from railwright.results.declarations import Declaration
from railwright.results.records import Result

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


AnyJob = Job[Any, Any]


@dataclass(frozen=True)
class Plan:
    """What one launch will do to the machine, shown before it starts; `waived` says why it cannot run here."""

    path: str
    seconds: float = 0.0
    memory_bytes: int = 0
    moved_bytes: int = 0
    files: tuple[str, ...] = ()
    """Each file that will be written, with its size, in words."""
    waived: str = ""
    longest_step_s: float | None = None
    """How long at most a rank says nothing, on a machine that is slow but not broken; None: as long as all takes."""

    @property
    def silent_s(self) -> float:
        """`longest_step_s`, or the whole launch."""
        return self.seconds if self.longest_step_s is None else self.longest_step_s


@dataclass(frozen=True)
class Program:
    """Another program that takes the place of a launch's ranks, on this host."""

    argv: tuple[str, ...]
    files: Mapping[str, str]
    """What it finds in the folder that it is started in, by name."""
    outputs: tuple[str, ...]
    """Files there into which it may write what it would otherwise print."""
    threads: int
    """Of each process; a single one is bound to its core."""
    read: Callable[[str], Sequence[Result]]
    """The records of all that it printed. Raises UsageError for text that is none of its."""


class Rank(Protocol[O, C]):
    """What a rank's launcher offers to the benchmark that runs in it."""

    @property
    def index(self) -> int:
        """Its number, counted from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def job(self) -> Job[O, C]:
        """What it has to do."""

    @property
    def scratch(self) -> Path:
        """A folder that the launcher removes after the launch."""

    @property
    def comm(self) -> Intracomm:
        """The MPI communicator of all ranks; initialises MPI. Raises CannotJudge without MPI."""

    def step(self, text: str) -> None:
        """Tell the parent what comes next, so that a hang or a crash can be named."""

    def meet(self) -> None:
        """Wait, asleep, until all ranks are here; without MPI."""


def one_launch(_options: Options, _machine: Machine) -> tuple[Launch[Case], ...]:
    """The launches of a benchmark that has one, of a single process that needs no GPU."""
    return (Launch(case=Case()),)


def two_ranks(_options: Options, _machine: Machine) -> tuple[Launch[Case], ...]:
    """The launch of a benchmark between two processes."""
    return (Launch(case=Case(), ranks=2),)


@dataclass(frozen=True)
class Benchmark(Generic[O, C]):
    """One data path's benchmark. `run` yields results from rank 0 and nothing from the others."""

    name: str
    summary: str
    method: str
    results: tuple[Declaration, ...]
    """What each of its results is held against. The quantity of the first stands for a launch without results."""
    plan: Callable[[Job[O, C]], Plan]
    """What a launch costs, and why it cannot run here. It runs in the parent and may load nothing that can hang."""
    run: Callable[[Rank[O, C]], Iterator[Result]]
    options: type[O]
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Defaults of options by their names, where they are not those of the struct."""
    case: type[C] = Case  # type: ignore[assignment]
    """What its launches vary."""
    launches: Callable[[O, Machine], tuple[Launch[C], ...]] = one_launch  # type: ignore[assignment]
    """Its launches on a machine. Raises UsageError for options that this machine rules out."""
    spans_hosts: bool = False
    """Whether its ranks may be on several hosts; `launches` then gets a machine with hosts."""
    alone_on_a_host: bool = False
    """Whether it may also run on one host that is not this one, and its records name that host then."""
    after_crash: Callable[[Job[O, C], Sequence[Result]], Job[Any, Any] | None] = field(
        default=lambda _job, _results: None
    )
    """What is left to do after a launch that gave these results and ended in a crash; None: nothing."""

    clean_up: Callable[[Job[O, C]], None] = field(default=lambda _job: None)
    """Removes what ranks left that did not reach their end; it runs in the parent when they are gone."""

    program: Callable[[Job[O, C]], Program | None] = field(default=lambda _job: None)
    """What is started instead of ranks of ours, where the user names it."""

    @property
    def quantity(self) -> Quantity:
        """The quantity of its first result."""
        return self.results[0].quantity

    def parse(self, given: Mapping[str, str]) -> O:
        """Its options with defaults filled in. Raises UsageError."""
        return parse_options(self.options, given, self.defaults, self.name)

    def read_job(self, raw: bytes) -> Job[O, C]:
        """A job of this benchmark from JSON."""
        return msgspec.json.decode(raw, type=Job[self.options, self.case])  # type: ignore[name-defined]

    def blank(self, path: str, case: Case | None = None, **more: Any) -> Result:  # noqa: ANN401 - fields of Result
        """A record without samples, for `record.measured` and `record.waived` to finish."""
        parameters = {} if case is None else case.parameters()
        return Result(
            benchmark=self.name, quantity=self.quantity, path=path, method=self.method, parameters=parameters, **more
        )


AnyBenchmark = Benchmark[Any, Any]
AnyRank = Rank[Any, Any]


def cases_behind(job: AnyJob, results: Sequence[Result], steps: Sequence[str], keys: Sequence[str]) -> AnyJob | None:
    """The cases behind the one that crashed; None where it was none of them, or the last one.

    `steps` are what the rank calls its cases, in their order, and `keys` the parameters that tell one from another.
    """
    ended = {tuple(one.parameters.get(key) for key in keys) for one in results if keys[0] in one.parameters}
    crashed = job.first_case + len(ended)
    was_in_it = crashed < len(steps) and any(repr(steps[crashed]) in one.reason for one in results)
    return msgspec.structs.replace(job, first_case=crashed + 1) if was_in_it and crashed + 1 < len(steps) else None


def name_in(raw: bytes) -> str:
    """The name of the benchmark that a job in JSON is of."""
    return msgspec.json.decode(raw, type=_Named).benchmark


class _Named(msgspec.Struct):
    benchmark: str
