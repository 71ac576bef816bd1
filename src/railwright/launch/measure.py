"""Plans and runs a list of benchmarks, one launch after the other, each in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from railwright.benchmarks.base import Benchmark, Job, Plan, Variant, node_of
from railwright.errors import RailwrightError, UsageError
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.launch.session import Launcher, Planned, Session
from railwright.results.model import Result
from railwright.topology.model import Topology

DEFAULT_SILENCE_S = 60.0
_SLOWER_NETWORK = 5
"""So many times slower than planned a network may be before a silent launch counts as hung."""


@dataclass
class Measurement:
    """All launches of a run. `mpirun` None means the one beside this Python, or on the PATH."""

    topology: Topology
    mpirun: str | None = None
    hosts: Hosts | None = None
    """None: this host alone."""
    silence_s: float = DEFAULT_SILENCE_S
    on_step: Callable[[str], None] = field(default=lambda _text: None)
    _mpi: Launcher | str | None = None

    def plan(self, chosen: list[tuple[Benchmark, dict[str, str]]], launches: int) -> list[Planned]:
        """Every launch in order: all benchmarks once, then again, so that drift touches all of them alike."""
        # CPUs of one NUMA node first: many machines number them in turn over the sockets.
        cpus = tuple(sorted(os.sched_getaffinity(0), key=lambda cpu: (node_of(self.topology, cpu), cpu)))
        planned = []
        for launch in range(launches):
            for benchmark, options in chosen:
                ranks = self._count_ranks(benchmark, options, cpus)
                for variant in self._variants(benchmark, options):
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
                    planned.append(Planned(benchmark, *self._on_hosts(benchmark, job)))
        return planned

    def _count_ranks(self, benchmark: Benchmark, options: dict[str, str], cpus: tuple[int, ...]) -> int:
        if self.hosts is None or benchmark.between_hosts is None:
            return benchmark.count_ranks(options, cpus)
        # An option that says one rank for each core then means one for each that the hosts were given.
        ranks = benchmark.count_ranks(options, tuple(range(self.hosts.ranks)))
        if benchmark.ranks_of is not None and ranks != self.hosts.ranks:
            places = f"{len(self.hosts.names)} hosts with {self.hosts.ranks_per_host} each have {self.hosts.ranks}"
            raise UsageError(f"{benchmark.name} is to have {ranks} ranks, and {places}",
                             hint=f"give -o ranks={self.hosts.ranks}, or another --ranks-per-host")  # fmt: skip
        return ranks

    def _variants(self, benchmark: Benchmark, options: dict[str, str]) -> tuple[Variant, ...]:
        if self.hosts is None or benchmark.between_hosts is None:
            return benchmark.launches(options, self.topology)
        return benchmark.between_hosts(options)

    def _on_hosts(self, benchmark: Benchmark, job: Job) -> tuple[Job, Plan]:
        """The job with its hosts, and its plan; waived where it cannot be spread over them."""
        if self.hosts is None:
            return job, benchmark.plan(job)
        if benchmark.between_hosts is None:
            return job, replace(benchmark.plan(job), waived="it measures inside one host: leave out --hosts")
        reach = self.hosts.reach
        job = msgspec.structs.replace(
            job, hosts=self.hosts.names, hosts_share_cpus=reach.shares_cpus, reached_by=reach.name
        )
        if job.ranks != self.hosts.ranks:
            given = f"{len(self.hosts.names)} hosts with {self.hosts.ranks_per_host} ranks each were given"
            waived = f"it is between {job.ranks} ranks, and {given}"
            return msgspec.structs.replace(job, hosts=()), replace(benchmark.plan(job), waived=waived)
        plan = benchmark.plan(job)
        if reach.rate_bytes_per_s:  # as if all went one way through one host's ports, so on the slow side
            crossing_s = plan.moved_bytes / reach.rate_bytes_per_s
            patience_s = plan.seconds + _SLOWER_NETWORK * crossing_s
            plan = replace(plan, seconds=plan.seconds + crossing_s, longest_step_s=patience_s)
        return job, plan

    def refuse_unreachable_hosts(self) -> None:
        """Raises CannotJudge, naming host and cause, before anything was measured."""
        if self.hosts is not None:
            self.hosts.reach.check()

    def refuse_wrong_mpirun(self, planned: list[Planned]) -> None:
        """Raises UsageError or CannotJudge for an --mpirun that cannot be used, before anything was measured."""
        if self.mpirun is not None and any(one.benchmark.needs_mpi for one in planned):
            self._mpi = self._over_mpi()

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
        given: list[Result] = []
        for result in session.results():
            given.append(result)
            yield result
        rest = one.benchmark.after_crash(one.job, given) if session.crashed else None
        if rest is not None:
            yield from self.results(replace(one, job=rest))

    def _launcher(self, one: Planned) -> Launcher | str:
        """The launcher for a launch, or why there is none; a single rank that may be alone needs no MPI."""
        if not one.benchmark.needs_mpi or (one.benchmark.ranks_for is not None and one.job.ranks == 1):
            return LocalLauncher()
        if self._mpi is None:
            try:
                self._mpi = self._over_mpi()
            except RailwrightError as error:
                self._mpi = error.message  # there is no mpirun: one that is there but broken fails its launches
        return self._mpi

    def _over_mpi(self) -> Launcher:
        mpi = MpiLauncher(self.mpirun)
        return mpi if self.hosts is None else HostsLauncher(mpi, self.hosts)
