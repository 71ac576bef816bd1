"""The plan of a run: its launches, with the cost of each or the reason why it cannot run. Nothing is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from railwright.benchmarks.benchmark import AnyBenchmark, AnyJob, Plan
from railwright.benchmarks.job import Job, Launch, Machine, find_node
from railwright.benchmarks.options import Options
from railwright.diagnosis.localise.doubling import Doubling, Group
from railwright.launch.hosts import PlannedHosts
from railwright.launch.session import PlannedLaunch
from railwright.topology.devices import Topology
from railwright.units import format_count

SortKey = Callable[[str], tuple[int, ...]]
"""A sort key that keeps nearby hosts adjacent."""
_PAIR = 2
_SLOWER_NETWORK = 5
"""The factor by which a network may be slower than planned before a silent launch counts as hung."""


@dataclass
class PlannedProof:
    """Benchmarks with their options, and the number of launches of each."""

    topology: Topology
    chosen: list[tuple[AnyBenchmark, Options]]
    launches: int
    hosts: PlannedHosts | None = None
    """The hosts. None means this host alone."""
    screens: bool = False
    """Whether each host is measured separately."""
    place: SortKey | None = None
    """The sort key of hosts whose groups grow. None if groups do not grow. The plan assumes that every merge gains."""

    def __post_init__(self) -> None:
        self.plan = list(self.plan_rounds() if self.place is None else self.plan_growth(lambda _group: True))

    @property
    def seconds(self) -> float:
        """The estimated duration of the whole run."""
        return sum(launch.plan.seconds for launch in self.plan if not launch.plan.waived)

    def plan_rounds(self) -> Iterator[PlannedLaunch]:
        """Yield all launches in rounds over all benchmarks, so that drift affects all benchmarks equally."""
        hosts = self.hosts
        sides = [hosts.part((name,)) for name in hosts.names] if self.screens and hosts is not None else [hosts]
        for number in range(self.launches):
            for side in sides:
                yield from plan_launches(self.topology, self.chosen, number, side)

    def plan_growth(self, gains: Callable[[Group], bool]) -> Iterator[PlannedLaunch]:
        """Yield the launches on groups of hosts, which are merged by doubling as long as merging gains.

        `gains` is called for each group after all launches of its level. Its answers determine the next level.
        """
        assert self.hosts is not None
        assert self.place is not None
        search = Doubling(self.hosts.names, self.place)
        while level := search.level():
            for group in level:
                first = len(group.first) if group.second else 0
                hosts = replace(self.hosts.part(group.members), first=first, grows_to=len(self.hosts.names))
                for number in range(self.launches):
                    yield from plan_launches(self.topology, self.chosen, number, hosts)
            search.record_results({group: gains(group) for group in level})


def plan_launches(
    topology: Topology, chosen: list[tuple[AnyBenchmark, Options]], number: int = 0, hosts: PlannedHosts | None = None
) -> list[PlannedLaunch]:
    """List the launches of round `number` on the hosts. Without hosts, on this host."""
    # Sort CPUs by NUMA node, because many machines number them alternately over the sockets.
    cpus = tuple(sorted(os.sched_getaffinity(0), key=lambda cpu: (find_node(topology, cpu), cpu)))
    here = Machine(topology=topology, cpus=cpus)
    return [
        PlannedLaunch(benchmark, *_make_job(benchmark, options, launch, here, number, side))
        for benchmark, options in chosen
        for side in _list_sides(benchmark, hosts)
        for launch in benchmark.launches(options, _add_hosts(here, side) if benchmark.spans_hosts else here)
    ]


def _list_sides(benchmark: AnyBenchmark, hosts: PlannedHosts | None) -> list[PlannedHosts | None]:
    """Return the hosts of each launch: all, or disjoint pairs. The last of an odd number is paired with the first."""
    if hosts is None or not benchmark.in_pairs or len(hosts.names) <= _PAIR:
        return [hosts]
    names = hosts.names + hosts.names[:1] * (len(hosts.names) % _PAIR)
    pairs = zip(names[::_PAIR], names[1::_PAIR], strict=True)
    return [replace(hosts.part(pair), paired=True) for pair in pairs]


def _make_job(
    benchmark: AnyBenchmark,
    options: Options,
    launch: Launch[Any],
    here: Machine,
    number: int,
    hosts: PlannedHosts | None,
) -> tuple[AnyJob, Plan]:
    """Return a job with its hosts, and its plan, which is waived if the job cannot be spread over them."""
    job: AnyJob = Job(benchmark=benchmark.name, options=options, launch=launch, machine=here, round=number)
    if hosts is None:
        return job, benchmark.plan(job)
    if not benchmark.spans_hosts:
        return job, replace(benchmark.plan(job), waived="it measures within one host: leave out --hosts")
    if benchmark.rank_for_each_gpu:
        hosts = replace(hosts, ranks_per_host=job.ranks // len(hosts.names))
    if job.ranks != hosts.ranks:
        given = f"{format_count(len(hosts.names), 'host')} with {format_count(hosts.ranks_per_host, 'rank')} each"
        return job, replace(benchmark.plan(job), waived=f"it needs {job.ranks} ranks, got {given}")
    job = changed(job, machine=_add_hosts(here, hosts))
    plan, rate = benchmark.plan(job), hosts.reach.rate_bytes_per_s if len(hosts.names) > 1 else None
    if job.machine.fabric is not None:
        rate = job.machine.fabric.flow_bytes_per_s
    if rate:  # a high estimate of the time: half of the hosts send, each over one connection if the links are known
        crossing_s = plan.moved_bytes / rate
        patience_s = plan.seconds + _SLOWER_NETWORK * crossing_s
        senders = max(1, len(hosts.names) // 2)
        plan = replace(plan, seconds=plan.seconds + crossing_s / senders, longest_step_s=patience_s)
    return job, plan


def _add_hosts(here: Machine, hosts: PlannedHosts | None) -> Machine:
    """Return the machine with the requested hosts, or unchanged if there are none."""
    if hosts is None:
        return here
    return changed(
        here,
        hosts=hosts.names,
        ranks_per_host=hosts.ranks_per_host,
        hosts_share_cpus=hosts.reach.shares_cpus,
        hosts_share_gpus=hosts.reach.shares_files,
        host_cpus=hosts.reach.host_cpus,
        reached_by=hosts.reach.name,
        paired=hosts.paired,
        first_hosts=hosts.first,
        grows_to=hosts.grows_to,
        fabric=hosts.fabric,
    )
