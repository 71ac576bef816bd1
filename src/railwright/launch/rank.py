"""The program of a rank: `python -m railwright.launch.rank`, started by a launcher, never by a user.

It dies with its launcher, binds itself to its CPU, runs one benchmark and streams the results. On a host other than the
parent's it receives its job over the stream, has its own scratch folder, and also ends when the stream does.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob, decode_name
from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.probes import find_probe
from railwright.errors import CannotJudge, RailwrightError
from railwright.launch.scratch import scratch_folder
from railwright.launch.stream import Bye, Emitted, Failure, Hello, Sender, Step
from railwright.native import memory
from railwright.process import die_with_parent
from railwright.results.statistics import round_samples

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

STREAM_VARIABLE = "RAILWRIGHT_STREAM"
SCRATCH_VARIABLE = "RAILWRIGHT_SCRATCH"
JOB_FILE = "job.json"

RANK_OF_EACH = "RAILWRIGHT_RANK"
# The variables in which launchers pass the rank to a process before MPI_Init.
RANK_VARIABLES = (RANK_OF_EACH, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Ours comes first: if each rank is a separate Slurm step, Slurm numbers every one of them 0."""
FROM_INPUT = "--environment-from-input"
"""With this option a rank reads its environment as JSON from standard input, since all users can read command lines."""
_MAX_INPUT_BYTES = 2**20
_CAUSE_FIRST_S = 3.0
"""The time in which the parent learns of the end of the rank that caused an error of this rank."""


class LaunchedRank:
    """This process as a rank. Benchmarks see it as `benchmarks.benchmark.Rank`."""

    def __init__(self, job: AnyJob, sender: Sender, scratch: Path) -> None:
        self.index = next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)
        self.size = 1
        self.job = job
        self.scratch = scratch
        self._sender = sender
        self._comm: Intracomm | None = None

    @property
    def comm(self) -> Intracomm:
        """The world communicator. The first access initialises MPI. Raises CannotJudge if MPI has other ranks."""
        if self._comm is None:
            from railwright.native import mpi

            self.step("MPI_Init")
            self._comm = mpi.initialise()
            self.index, self.size = self._comm.rank, self._comm.size
            wanted = self.job.ranks
            if self.size != wanted:
                reason = f"MPI must have {wanted} ranks, got {self.size}"
                raise CannotJudge(reason, hint="use the mpirun that belongs to the MPI library; see --mpirun")
            self.meet()  # not through MPI: see `first_use`
            mpi.first_use(self._comm)
        return self._comm

    def step(self, text: str) -> None:
        """Report the next step to the parent."""
        self._sender.send(Step(text))

    def meet(self) -> None:
        """Sleep until all ranks have called this. Uses only the connection to the parent, not MPI."""
        self._sender.meet()


def main() -> None:
    """Run the job that the environment or the stream provides. Exits with 0 only if the whole job is done."""
    die_with_parent()
    faulthandler.enable()
    if FROM_INPUT in sys.argv:
        os.environ |= msgspec.json.decode(sys.stdin.buffer.read(_MAX_INPUT_BYTES), type=dict[str, str])
    # Must be set before CUDA is loaded: its default order is "fastest first", but device numbers must match ours.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        sender = Sender(os.environ[STREAM_VARIABLE])
    except CannotJudge as error:  # there is no stream, so the launcher's output carries the message
        sys.stderr.write(f"{error.message}\n")
        _exit_now(1)
    if sender.job is None:
        scratch = Path(os.environ[SCRATCH_VARIABLE])
        _exit_now(_run_job((scratch / JOB_FILE).read_bytes(), sender, scratch))
    with scratch_folder() as scratch:
        sender.end_with_parent(scratch)
        # The folders for MPI's files: those in the parent's variables exist only on the parent's host.
        os.environ |= {"TMPDIR": str(scratch), "OMPI_MCA_btl_sm_backing_directory": str(scratch)}
        status = _run_job(sender.job, sender, scratch)
    _exit_now(status)


def _run_job(given: bytes, sender: Sender, scratch: Path) -> int:
    """Run the job and return the exit status."""
    benchmark = _find_benchmark(decode_name(given))
    job = benchmark.read_job(given)
    rank = LaunchedRank(job, sender, scratch)
    sender.send(Hello(rank.index, host_name(), os.getpid()))
    try:
        memory.pin(job.find_cpu(rank.index))
        for result in benchmark.run(rank):
            sender.send(Emitted(msgspec.structs.replace(result, samples=round_samples(result.samples))))
    except RailwrightError as error:
        if error.is_consequence:
            time.sleep(_CAUSE_FIRST_S)
        sender.send(Failure(error.message))
        return 1
    except Exception as error:  # any error of a rank must be reported by the parent
        sender.send(Failure(f"{type(error).__name__}: {error}"))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    sender.send(Bye())
    if rank.size > 1:
        from mpi4py import MPI

        # MPI_Finalize need not wait for the others, and Hydra kills ranks that still run when the first one exits.
        rank.comm.Barrier()
        MPI.Finalize()
    return 0


def _find_benchmark(name: str) -> AnyBenchmark:
    probe = find_probe(name)
    if probe is not None:
        return probe
    from railwright.benchmarks.registry import find  # imports every benchmark

    return find(name)


def _exit_now(status: int) -> NoReturn:
    """Exit without running the exit handlers of vendor libraries, some of which crash (NIXL with libefa)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
