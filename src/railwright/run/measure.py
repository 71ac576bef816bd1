"""Plans and runs a list of benchmarks, one launch after the other, each in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as changed

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob, Plan, Program
from railwright.benchmarks.job import Job, Launch, Machine, node_of
from railwright.benchmarks.options import Options
from railwright.errors import RailwrightError
from railwright.launch.hosts import Hosts
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.mpi_hosts import HostsLauncher
from railwright.launch.program import results_of as program_results
from railwright.launch.session import Launcher, Planned, Session
from railwright.launch.slurm.srun import launcher_over
from railwright.results.records import Result
from railwright.topology.devices import Topology

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
    each: tuple[Hosts, ...] = ()
    """Each of the `hosts` by itself, where none is to be measured together with others."""
    alone: bool = False
    """Whether hosts are first measured by themselves, so that one that is gone costs itself alone."""
    silence_s: float = DEFAULT_SILENCE_S
    on_step: Callable[[str], None] = field(default=lambda _text: None)
    lost: tuple[str, ...] = field(default=(), init=False)
    """The hosts at fault in the last launch, where it failed and not all of them are."""
    _mpi: MpiLauncher | str | None = None

    def plan(self, chosen: list[tuple[AnyBenchmark, Options]], rounds: int) -> list[Planned]:
        """Every launch in order: all benchmarks once, then again, so that drift touches all of them alike."""
        return [
            one
            for number in range(rounds)
            for hosts in self.each or (self.hosts,)
            for one in self.plan_on(hosts, chosen, number)
        ]

    def plan_on(self, hosts: Hosts | None, chosen: list[tuple[AnyBenchmark, Options]], number: int) -> list[Planned]:
        """The launches on some hosts in one round."""
        # CPUs of one NUMA node first: many machines number them in turn over the sockets.
        cpus = tuple(sorted(os.sched_getaffinity(0), key=lambda cpu: (node_of(self.topology, cpu), cpu)))
        here = Machine(topology=self.topology, cpus=cpus)
        return [
            Planned(benchmark, *self._job(benchmark, options, launch, here, number, hosts), hosts)
            for benchmark, options in chosen
            for launch in benchmark.launches(options, _spread(here, hosts) if benchmark.spans_hosts else here)
        ]

    def _job(
        self,
        benchmark: AnyBenchmark,
        options: Options,
        launch: Launch[Any],
        here: Machine,
        number: int,
        hosts: Hosts | None,
    ) -> tuple[AnyJob, Plan]:
        """The job with its hosts, and its plan; waived where it cannot be spread over them."""
        job: AnyJob = Job(benchmark=benchmark.name, options=options, launch=launch, machine=here, round=number)
        if hosts is None:
            return job, benchmark.plan(job)
        if not benchmark.spans_hosts:
            return job, replace(benchmark.plan(job), waived="it measures inside one host: leave out --hosts")
        if job.ranks != hosts.ranks:
            given = f"{len(hosts.names)} hosts with {hosts.ranks_per_host} ranks each were given"
            return job, replace(benchmark.plan(job), waived=f"it is between {job.ranks} ranks, and {given}")
        job = changed(job, machine=_spread(here, hosts))
        plan, rate = benchmark.plan(job), hosts.reach.rate_bytes_per_s if len(hosts.names) > 1 else None
        if job.machine.fabric is not None:
            rate = job.machine.fabric.flow_bytes_per_s
        if rate:  # as if all went one way, by one connection where links are known, so on the slow side
            crossing_s = plan.moved_bytes / rate
            patience_s = plan.seconds + _SLOWER_NETWORK * crossing_s
            plan = replace(plan, seconds=plan.seconds + crossing_s, longest_step_s=patience_s)
        return job, plan

    def refuse_unreachable_hosts(self) -> None:
        """Raises CannotJudge, naming host and cause, before anything was measured."""
        if self.hosts is not None and not self.alone:
            self.hosts.reach.check()

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

    def _launcher(self, one: Planned) -> Launcher | str:
        """The launcher for a launch, or why there is none; a single rank needs no MPI."""
        if one.job.ranks == 1 and not one.job.hosts:
            return LocalLauncher()
        try:
            if self._mpi is None:
                self._mpi = MpiLauncher(self.mpirun)
            if isinstance(self._mpi, str) or one.hosts is None:
                return self._mpi
            return launcher_over(self._mpi, one.hosts)
        except RailwrightError as error:
            self._mpi = error.message  # there is no mpirun: one that is there but broken fails its launches
            return self._mpi


def _hosts_of(job: AnyJob, ranks: set[int]) -> tuple[str, ...]:
    """The hosts of some ranks; none where those are on all hosts, since then nothing tells which is at fault."""
    hosts = tuple(dict.fromkeys(job.hosts[rank * len(job.hosts) // job.ranks] for rank in sorted(ranks) if job.hosts))
    return hosts if len(hosts) < len(job.hosts) else ()


def _spread(here: Machine, hosts: Hosts | None) -> Machine:
    """The machine with the hosts that were asked for, if any."""
    if hosts is None:
        return here
    return changed(
        here,
        hosts=hosts.names,
        ranks_per_host=hosts.ranks_per_host,
        hosts_share_cpus=hosts.reach.shares_cpus,
        host_cpus=hosts.reach.host_cpus,
        reached_by=hosts.reach.name,
        first_hosts=hosts.first,
        grows_to=hosts.grows_to,
        fabric=hosts.fabric,
    )
