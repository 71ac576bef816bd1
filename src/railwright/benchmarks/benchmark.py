"""The interface of a benchmark: planned in the parent, run by the ranks of a launch.

A benchmark emits results and path ids, and declares as data the kind of limit for each result; it computes no limit
itself. The parent never loads MPI, NIXL or CUDA: `launches` and `plan` run there, `run` only in the ranks.
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
    """The cost of a launch, shown before it starts. `waived` is the reason why it cannot run here."""

    path: str
    seconds: float = 0.0
    memory_bytes: int = 0
    moved_bytes: int = 0
    files: tuple[str, ...] = ()
    """Descriptions of the files to be written, with their sizes."""
    waived: str = ""
    longest_step_s: float | None = None
    """The longest time a rank reports no progress on a slow but working machine; None means the whole launch."""

    @property
    def silent_s(self) -> float:
        """`longest_step_s`, or the whole launch."""
        return self.seconds if self.longest_step_s is None else self.longest_step_s


@dataclass(frozen=True)
class Program:
    """A program that runs instead of the launch's ranks, one process for each."""

    argv: tuple[str, ...]
    files: Mapping[str, str]
    """Input files in its working directory, by name."""
    outputs: tuple[str, ...]
    """Files in its working directory that may receive output instead of stdout."""
    threads: int
    """Threads of each process. A single thread is bound to its core."""
    read: Callable[[str], Sequence[Result]]
    """Parses the program's complete output into records. Raises UsageError for other text."""
    progress: Callable[[str], str] = lambda _line: ""
    """Returns the progress that a line of output shows, or an empty string."""


class Rank(Protocol[O, C]):
    """The services that a launcher provides to the benchmark in a rank."""

    @property
    def index(self) -> int:
        """The rank's number, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def job(self) -> Job[O, C]:
        """The job to run."""

    @property
    def scratch(self) -> Path:
        """A folder that the launcher removes after the launch."""

    @property
    def comm(self) -> Intracomm:
        """The MPI communicator of all ranks; initialises MPI. Raises CannotJudge without MPI."""

    def step(self, text: str) -> None:
        """Report the next step to the parent, which names it after a hang or a crash."""

    def meet(self) -> None:
        """Wait, without busy-polling and without MPI, until all ranks arrive."""


def launch_alone(_options: Options, _machine: Machine) -> tuple[Launch[Case], ...]:
    """Return a single launch of one process without a GPU."""
    return (Launch(case=Case()),)


def launch_pair(_options: Options, _machine: Machine) -> tuple[Launch[Case], ...]:
    """Return a single launch of two processes."""
    return (Launch(case=Case(), ranks=2),)


@dataclass(frozen=True)
class Benchmark(Generic[O, C]):
    """The benchmark of a data path. `run` yields results from rank 0 and nothing from the other ranks."""

    name: str
    summary: str
    method: str
    results: tuple[Declaration, ...]
    """The limits of its results. The first quantity also stands for a launch without results."""
    plan: Callable[[Job[O, C]], Plan]
    """Estimates a launch's cost, or returns the reason why it cannot run.

    Runs in the parent and must not load anything that can hang.
    """
    run: Callable[[Rank[O, C]], Iterator[Result]]
    options: type[O]
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Defaults by option name, where they differ from those of the struct."""
    case: type[C] = Case  # type: ignore[assignment]
    """The type of the parameters that its launches vary."""
    launches: Callable[[O, Machine], tuple[Launch[C], ...]] = launch_alone  # type: ignore[assignment]
    """Lists its launches on a machine. Raises UsageError for options that the machine rules out."""
    spans_hosts: bool = False
    """Whether its ranks may run on several hosts. If so, `launches` gets a machine with hosts."""
    in_pairs: bool = False
    """Whether it measures between two hosts. More hosts are measured in disjoint pairs, one pair after the other."""
    rank_for_each_gpu: bool = False
    """Whether a host gets as many ranks as `launches` has GPUs for, unless the user gives another number."""
    alone_on_a_host: bool = False
    """Whether it may also run on a single remote host, which its records then name."""
    after_crash: Callable[[Job[O, C], Sequence[Result]], Job[Any, Any] | None] = field(
        default=lambda _job, _results: None
    )
    """Returns the job that remains after a launch gave these results and crashed, or None."""

    clean_up: Callable[[Job[O, C]], None] = field(default=lambda _job: None)
    """Removes files of ranks that did not finish. Runs in the parent after they exit."""

    program: Callable[[Job[O, C]], Program | None] = field(default=lambda _job: None)
    """Returns the program to run instead of ranks, if the user named one."""

    @property
    def quantity(self) -> Quantity:
        """The quantity of the first result."""
        return self.results[0].quantity

    def parse(self, given: Mapping[str, str]) -> O:
        """Parse options and fill in defaults. Raises UsageError."""
        return parse_options(self.options, given, self.defaults, self.name)

    def read_job(self, raw: bytes) -> Job[O, C]:
        """Decode a job of this benchmark from JSON."""
        return msgspec.json.decode(raw, type=Job[self.options, self.case])  # type: ignore[name-defined]

    def blank(self, path: str, case: Case | None = None, **more: Any) -> Result:  # noqa: ANN401 - fields of Result
        """Return a record without samples, for `record.complete` or `record.waived` to complete."""
        parameters = {} if case is None else case.parameters()
        return Result(
            benchmark=self.name, quantity=self.quantity, path=path, method=self.method, parameters=parameters, **more
        )


AnyBenchmark = Benchmark[Any, Any]
AnyRank = Rank[Any, Any]


def skip_crashed(job: AnyJob, results: Sequence[Result], steps: Sequence[str], keys: Sequence[str]) -> AnyJob | None:
    """Return a job with the cases after the one that crashed, or None if no case crashed or none is left.

    `steps` are the rank's step names of the cases, in order; `keys` are the parameters that identify a case.
    """
    ended = {tuple(result.parameters.get(key) for key in keys) for result in results if keys[0] in result.parameters}
    crashed = job.first_case + len(ended)
    is_crash = crashed < len(steps) and any(repr(steps[crashed]) in result.reason for result in results)
    return msgspec.structs.replace(job, first_case=crashed + 1) if is_crash and crashed + 1 < len(steps) else None


def decode_name(raw: bytes) -> str:
    """Decode the benchmark's name from a job in JSON."""
    return msgspec.json.decode(raw, type=_Named).benchmark


class _Named(msgspec.Struct):
    benchmark: str
