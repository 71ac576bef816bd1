"""The program that every rank is: `python -m railwright.launch.rank`, started by a launcher, never by a user.

It dies with its launcher, binds itself to its CPU, runs one benchmark and streams what it measures. On another host
than the parent's it gets its job over the stream, has a scratch folder of its own, and also ends when the stream does.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob, name_in
from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.probes import probe_named
from railwright.errors import CannotJudge, RailwrightError
from railwright.launch.scratch import scratch_folder
from railwright.launch.stream import Bye, Emitted, Failure, Hello, Sender, Step
from railwright.native import memory
from railwright.process import die_with_parent
from railwright.results.statistics import rounded

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

STREAM_VARIABLE = "RAILWRIGHT_STREAM"
SCRATCH_VARIABLE = "RAILWRIGHT_SCRATCH"
JOB_FILE = "job.json"

RANK_OF_EACH = "RAILWRIGHT_RANK"
# How each launcher tells a process its rank before MPI_Init.
RANK_VARIABLES = (RANK_OF_EACH, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Ours first: where each rank is a step of its own, Slurm calls every one of them 0."""
FROM_INPUT = "--environment-from-input"
"""With this word a rank reads its environment as JSON from standard input: a command line shows it to everybody."""
_MOST_INPUT_BYTES = 2**20


class LaunchedRank:
    """This process as one rank; what benchmarks see of it is `benchmarks.benchmark.Rank`."""

    def __init__(self, job: AnyJob, sender: Sender, scratch: Path) -> None:
        self.index = next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)
        self.size = 1
        self.job = job
        self.scratch = scratch
        self._sender = sender
        self._comm: Intracomm | None = None

    @property
    def comm(self) -> Intracomm:
        """The world communicator; initialises MPI at the first use."""
        if self._comm is None:
            from railwright.native import mpi

            self.step("MPI_Init")
            self._comm = mpi.initialise()
            self.index, self.size = self._comm.rank, self._comm.size
            wanted = self.job.ranks
            if self.size != wanted:
                reason = f"MPI has {self.size} ranks where {wanted} were started"
                raise CannotJudge(reason, hint="mpirun and the MPI library do not belong together; see --mpirun")
            self.meet()  # not by MPI: see `first_use`
            mpi.first_use(self._comm)
        return self._comm

    def step(self, text: str) -> None:
        """Tell the parent what comes next."""
        self._sender.send(Step(text))

    def meet(self) -> None:
        """Wait, asleep, until all ranks are here. It needs no network but the one to the parent."""
        self._sender.meet()


def main() -> None:
    """Run the job of the environment; exit status 0 only when all of it was done."""
    die_with_parent()
    faulthandler.enable()
    if FROM_INPUT in sys.argv:
        os.environ |= msgspec.json.decode(sys.stdin.buffer.read(_MOST_INPUT_BYTES), type=dict[str, str])
    # Before anything loads CUDA: its own order is "fastest first", and libraries that count devices must agree with us.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        sender = Sender(os.environ[STREAM_VARIABLE])
    except CannotJudge as error:  # its launcher passes this line on, since nobody else hears us
        sys.stderr.write(f"{error.message}\n")
        _leave(1)
    if sender.job is None:
        scratch = Path(os.environ[SCRATCH_VARIABLE])
        _leave(_work((scratch / JOB_FILE).read_bytes(), sender, scratch))
    with scratch_folder() as scratch:
        sender.end_with_parent(scratch)
        # Where MPI keeps its files: what the parent's variables say is on another host.
        os.environ |= {"TMPDIR": str(scratch), "OMPI_MCA_btl_sm_backing_directory": str(scratch)}
        status = _work(sender.job, sender, scratch)
    _leave(status)


def _work(given: bytes, sender: Sender, scratch: Path) -> int:
    """Do the job; the exit status."""
    benchmark = _find(name_in(given))
    job = benchmark.read_job(given)
    rank = LaunchedRank(job, sender, scratch)
    sender.send(Hello(rank.index, host_name(), os.getpid()))
    try:
        memory.pin(job.cpu_of(rank.index))
        for result in benchmark.run(rank):
            sender.send(Emitted(msgspec.structs.replace(result, samples=rounded(result.samples))))
    except RailwrightError as error:
        sender.send(Failure(error.message))
        return 1
    except Exception as error:  # a rank's own mistake must be named in the parent, whatever it is
        sender.send(Failure(f"{type(error).__name__}: {error}"))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    sender.send(Bye())
    if rank.size > 1:
        from mpi4py import MPI

        # MPI_Finalize need not wait for the others, and Hydra kills those that are still at work when one has ended.
        rank.comm.Barrier()
        MPI.Finalize()
    return 0


def _find(name: str) -> AnyBenchmark:
    probe = probe_named(name)
    if probe is not None:
        return probe
    from railwright.benchmarks.registry import find  # which loads every benchmark

    return find(name)


def _leave(status: int) -> NoReturn:
    """End without the exit handlers of vendor libraries, some of which crash (NIXL with libefa)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
