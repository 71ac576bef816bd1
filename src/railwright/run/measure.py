"""Runs planned launches, one after the other, each in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from railwright.benchmarks.benchmark import AnyJob, Program
from railwright.errors import RailwrightError
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.launch.program import run_program as program_results
from railwright.launch.session import Planned, Session
from railwright.launch.slurm.srun import choose_launcher
from railwright.results.records import Result

DEFAULT_SILENCE_S = 60.0


@dataclass
class Measurement:
    """What starts launches. `mpirun` None means the one beside this Python, or on the PATH."""

    hosts: Hosts | None = None
    """Among them are those of each launch; None: this host alone."""
    mpirun: str | None = None
    silence_s: float = DEFAULT_SILENCE_S
    on_step: Callable[[str], None] = field(default=lambda _text: None)
    lost: tuple[str, ...] = field(default=(), init=False)
    """The hosts at fault in the last launch, where it failed and not all of them are."""
    _mpi: MpiLauncher | str | None = field(default=None, init=False)

    def refuse_wrong_mpirun(self, planned: list[Planned]) -> None:
        """Raises UsageError or CannotJudge for an --mpirun that cannot be used, before anything was measured."""
        if self.mpirun is not None and any(one.job.ranks > 1 for one in planned):
            self._mpi = MpiLauncher(self.mpirun)
            if self.hosts is not None:
                HostsLauncher(self._mpi, self.hosts)

    def results(self, one: Planned) -> Iterator[Result]:
        """Run one planned launch; a waived or failed result where it cannot run. Sets `lost`."""
        self.lost = ()
        launcher = self._launcher(one)
        waived = one.plan.waived or (launcher if isinstance(launcher, str) else "")
        if waived or isinstance(launcher, str):
            yield one.without_measurement("waived", waived)
            return
        program = one.benchmark.program(one.job)
        if program is not None:
            yield from self._by_program(one, program)
            return
        session = Session(
            planned=one,
            launcher=launcher,
            base_environment=dict(os.environ),
            silence_s=self.silence_s + one.plan.silent_s,
            on_step=self.on_step,
        )
        given: list[Result] = []
        for result in session.results():
            given.append(result)
            yield result
        self.lost = _hosts_of(one.job, session.blamed)
        rest = one.benchmark.after_crash(one.job, given) if session.crashed else None
        if rest is not None:
            yield from self.results(replace(one, job=rest))

    def _by_program(self, one: Planned, program: Program) -> Iterator[Result]:
        launcher = self._mpi if isinstance(self._mpi, MpiLauncher) else MpiLauncher(self.mpirun)
        silence_s = self.silence_s + one.plan.silent_s
        yield from program_results(one, program, launcher, dict(os.environ), silence_s, self.on_step)

    def _launcher(self, one: Planned) -> LocalLauncher | str:
        """The launcher for a launch, or why there is none; a single rank needs no MPI."""
        if one.job.ranks == 1 and not one.job.hosts:
            return LocalLauncher()
        try:
            if self._mpi is None:
                self._mpi = MpiLauncher(self.mpirun)
            if isinstance(self._mpi, str) or self.hosts is None or not one.job.hosts:
                return self._mpi
            return choose_launcher(self._mpi, self.hosts.part(one.job.hosts))
        except RailwrightError as error:
            self._mpi = error.message  # there is no mpirun: one that is there but broken fails its launches
            return self._mpi


def _hosts_of(job: AnyJob, ranks: set[int]) -> tuple[str, ...]:
    """The hosts of some ranks; none where those are on all hosts, since then nothing tells which is at fault."""
    hosts = tuple(dict.fromkeys(job.hosts[rank * len(job.hosts) // job.ranks] for rank in sorted(ranks) if job.hosts))
    return hosts if len(hosts) < len(job.hosts) else ()
