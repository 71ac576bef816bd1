"""Plans and runs a list of benchmarks, one launch after the other, each in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from railwright.benchmarks.base import Benchmark, Job, node_of
from railwright.errors import RailwrightError
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import Launcher, Planned, Session
from railwright.results.model import Result
from railwright.topology.model import Topology

DEFAULT_SILENCE_S = 60.0


@dataclass
class Measurement:
    """All launches of a run. `mpirun` None means the one beside this Python, or on the PATH."""

    topology: Topology
    mpirun: str | None = None
    silence_s: float = DEFAULT_SILENCE_S
    on_step: Callable[[str], None] = field(default=lambda _text: None)
    _mpi: MpiLauncher | str | None = None

    def plan(self, chosen: list[tuple[Benchmark, dict[str, str]]], launches: int) -> list[Planned]:
        """Every launch in order: all benchmarks once, then again, so that drift touches all of them alike."""
        # CPUs of one NUMA node first: many machines number them in turn over the sockets.
        cpus = tuple(sorted(os.sched_getaffinity(0), key=lambda cpu: (node_of(self.topology, cpu), cpu)))
        planned = []
        for launch in range(launches):
            for benchmark, options in chosen:
                ranks = benchmark.count_ranks(options, cpus)
                for variant in benchmark.variants(options):
                    job = Job(
                        benchmark=benchmark.name,
                        options=options,
                        variant=variant,
                        launch=launch,
                        cpus=cpus,
                        topology=self.topology,
                        ranks=ranks,
                        uses_gpus=benchmark.uses_gpus,
                    )
                    if benchmark.ranks_for is not None:
                        job = msgspec.structs.replace(job, ranks=benchmark.ranks_for(job))
                    planned.append(Planned(benchmark, job, benchmark.plan(job)))
        return planned

    def refuse_wrong_mpirun(self, planned: list[Planned]) -> None:
        """Raises UsageError or CannotJudge for an --mpirun that cannot be used, before anything was measured."""
        if self.mpirun is not None and any(one.benchmark.needs_mpi for one in planned):
            self._mpi = MpiLauncher(self.mpirun)

    def results(self, one: Planned) -> Iterator[Result]:
        """Run one planned launch; a waived or failed result where it cannot run."""
        launcher = self._launcher(one)
        waived = one.plan.waived or (launcher if isinstance(launcher, str) else "")
        if waived or isinstance(launcher, str):
            yield one.without_measurement("waived", waived)
            return
        session = Session(
            planned=one,
            launcher=launcher,
            base_environment=dict(os.environ),
            silence_s=self.silence_s + one.plan.silent_s,
            on_step=self.on_step,
        )
        yield from session.results()

    def _launcher(self, one: Planned) -> Launcher | str:
        """The launcher for a launch, or why there is none; a single rank that may be alone needs no MPI."""
        if not one.benchmark.needs_mpi or (one.benchmark.ranks_for is not None and one.job.ranks == 1):
            return LocalLauncher()
        if self._mpi is None:
            try:
                self._mpi = MpiLauncher(self.mpirun)
            except RailwrightError as error:
                self._mpi = error.message  # there is no mpirun: one that is there but broken fails its launches
        return self._mpi
