"""Execution of planned launches, one after the other, each in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from railwright.benchmarks.benchmark import AnyJob
from railwright.errors import RailwrightError
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.launch.program import run_program as program_results
from railwright.launch.session import PlannedLaunch, Session
from railwright.launch.slurm.srun import choose_launcher
from railwright.results.records import Result

DEFAULT_SILENCE_S = 60.0


@dataclass
class Measurement:
    """Runs launches. If `mpirun` is None, the one next to this Python or on the PATH is used."""

    hosts: Hosts | None = None
    """All hosts that launches may use. None means this host alone."""
    mpirun: str | None = None
    silence_s: float = DEFAULT_SILENCE_S
    on_step: Callable[[str], None] = field(default=lambda _text: None)
    lost: tuple[str, ...] = field(default=(), init=False)
    """The hosts that caused the failure of the last launch. Empty if it did not fail or if all hosts are suspect."""
    _mpi: MpiLauncher | str | None = field(default=None, init=False)

    def refuse_wrong_mpirun(self, planned: list[PlannedLaunch]) -> None:
        """Raise UsageError or CannotJudge for an unusable --mpirun, before anything is measured."""
        if self.mpirun is not None and any(launch.job.ranks > 1 for launch in planned):
            self._mpi = MpiLauncher(self.mpirun)
            if self.hosts is not None:
                HostsLauncher(self._mpi, self.hosts)

    def results(self, planned: PlannedLaunch) -> Iterator[Result]:
        """Run a planned launch. Yields a waived or failed result if it cannot run. Sets `lost`."""
        self.lost = ()
        launcher = self._choose_launcher(planned)
        waived = planned.plan.waived or (launcher if isinstance(launcher, str) else "")
        if waived or isinstance(launcher, str):
            yield planned.make_unmeasured("waived", waived)
            return
        program = planned.benchmark.program(planned.job)
        if program is not None:
            silence_s = self.silence_s + planned.plan.silent_s
            if type(launcher) is LocalLauncher:  # a program of MPI needs its mpirun also for a single rank
                launcher = MpiLauncher(self.mpirun)
            yield from program_results(planned, program, launcher, dict(os.environ), silence_s, self.on_step)
            return
        session = Session(
            planned=planned,
            launcher=launcher,
            base_environment=dict(os.environ),
            silence_s=self.silence_s + planned.plan.silent_s,
            on_step=self.on_step,
        )
        given: list[Result] = []
        for result in session.results():
            given.append(result)
            yield result
        self.lost = _list_hosts(planned.job, session.blamed)
        rest = planned.benchmark.after_crash(planned.job, given) if session.crashed else None
        if rest is not None:
            yield from self.results(replace(planned, job=rest))

    def _choose_launcher(self, planned: PlannedLaunch) -> LocalLauncher | str:
        """Return the launcher for a launch, or the reason why there is none. A single rank does not need MPI."""
        if planned.job.ranks == 1 and not planned.job.hosts:
            return LocalLauncher()
        try:
            if self._mpi is None:
                self._mpi = MpiLauncher(self.mpirun)
            if isinstance(self._mpi, str) or self.hosts is None or not planned.job.hosts:
                return self._mpi
            hosts = replace(self.hosts.part(planned.job.hosts), ranks_per_host=planned.job.machine.ranks_per_host)
            return choose_launcher(self._mpi, hosts)
        except RailwrightError as error:
            self._mpi = error.message  # no mpirun is installed; a broken one fails its launches instead
            return self._mpi


def _list_hosts(job: AnyJob, ranks: set[int]) -> tuple[str, ...]:
    """Return the hosts of the ranks. Empty if these are all hosts of the job, since the culprit is then unknown."""
    hosts = tuple(dict.fromkeys(job.hosts[rank * len(job.hosts) // job.ranks] for rank in sorted(ranks) if job.hosts))
    return hosts if len(hosts) < len(job.hosts) else ()
