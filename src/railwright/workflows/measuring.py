"""The common part of the measuring verbs `prove` and `run`: plan, checks and progress."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.options import Options, list_options
from railwright.benchmarks.registry import DECLARATIONS, EVERY, find
from railwright.errors import UsageError, unknown_name
from railwright.launch.gpus.business import refuse_busy_gpus
from railwright.launch.hosts import Hosts, PlannedHosts
from railwright.launch.session import PlannedLaunch
from railwright.options.arguments import Arguments
from railwright.options.machine import load_planned_cluster
from railwright.results.declarations import list_ceilings, must_share_options
from railwright.results.records import ResultFile
from railwright.run.discovered import discover
from railwright.run.plan import PlannedProof, SortKey
from railwright.run.proof import Proof
from railwright.topology.changes import add_gpu_addresses, add_rdma_names
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Topology
from railwright.topology.gpus import usable_gpus
from railwright.topology.sources.load import load
from railwright.units import format_count, format_duration, format_size
from railwright.workflows.acceptance import load_spec, plan_sheet
from railwright.workflows.hosts import assume_ports, describe_unasked
from railwright.workflows.judged import note, report
from railwright.workflows.requirements import load_requirements
from railwright.workflows.time_left import TimeLeft


def add_ceilings(names: tuple[str, ...], *, between_hosts: bool) -> tuple[str, ...]:
    """Return the benchmarks, with their ceilings before them. Between hosts, add only ceilings that span hosts.

    Raises UsageError for an unknown name.
    """
    chosen = [find(name).name for name in dict.fromkeys(names)]
    wanted = {benchmark for name in chosen for benchmark in list_ceilings(name, DECLARATIONS)} - set(chosen)
    found = [
        benchmark.name
        for benchmark in EVERY
        if benchmark.name in wanted and (benchmark.spans_hosts or not between_hosts)
    ]
    return (*found, *chosen)


def parse_benchmarks(
    names: tuple[str, ...], given: tuple[str, ...], ceilings: frozenset[str] = frozenset()
) -> list[tuple[AnyBenchmark, Options]]:
    """Parse the options of the named benchmarks. Raises UsageError for an unknown name or an invalid value.

    An option without a benchmark's name applies to a ceiling only if the two must share their options.
    """
    benchmarks = [find(name) for name in dict.fromkeys(names)]
    chosen = [benchmark.name for benchmark in benchmarks if benchmark.name not in ceilings]
    apart = {
        benchmark
        for benchmark in ceilings
        if not any(must_share_options(name, benchmark, DECLARATIONS) for name in chosen)
    }
    known = {benchmark.name: list_options(benchmark.options) for benchmark in benchmarks}
    settings: dict[str, dict[str, str]] = {name: {} for name in known}
    for text in given:
        key, separator, value = text.partition("=")
        owner, dot, name = key.rpartition(".")
        if not separator or not name:
            raise UsageError(
                f"-o must be NAME=VALUE, got {text[:60]!r}", hint="write NAME=VALUE or BENCHMARK.NAME=VALUE"
            )
        if dot and owner not in settings:
            raise unknown_name("benchmark in this run", owner, settings)
        takers = [
            taker for taker in known if taker == owner or (not dot and name in known[taker] and taker not in apart)
        ]
        if not takers:
            raise unknown_name(
                "option of these benchmarks", name, {option for options in known.values() for option in options}
            )
        for taker in takers:
            settings[taker][name] = value
    # Ceilings come last, so that an error names the benchmark.
    benchmarks_first = sorted(benchmarks, key=lambda benchmark: benchmark.name in ceilings)
    parsed = {benchmark.name: benchmark.parse(settings[benchmark.name]) for benchmark in benchmarks_first}
    return [(benchmark, parsed[benchmark.name]) for benchmark in benchmarks]


class PendingJob(NamedTuple):
    """A job that is not submitted yet."""

    hosts: PlannedHosts
    submit: Callable[[float], int]
    """Submits the job for a plan of the given duration in seconds. Returns the exit status."""


def option_words(arguments: Arguments, options: Sequence[str], launches: int) -> list[str]:
    """Return the options as arguments for a railwright process that measures one host or one side."""
    words = ["--launches", str(launches), "--silence", f"{arguments.silence:g}"]
    words += [word for text in options for word in ("-o", text)]
    return [*words, *(["--mpirun", arguments.mpirun] if arguments.mpirun else []), *["--force"] * bool(arguments.force)]


def measure(
    names: tuple[str, ...],
    arguments: Arguments,
    *,
    hosts: Hosts | PendingJob | None = None,
    screens: bool = False,
    place: SortKey | None = None,
    ceilings: frozenset[str] = frozenset(),
) -> int:
    """Show the plan, run it or submit its job, report, and return the exit status."""
    required, spec = (
        load_requirements(arguments.require),
        load_spec(getattr(arguments, "accept", None), arguments.require),
    )
    chosen = parse_benchmarks(names, arguments.options, ceilings)
    cluster = load_planned_cluster(arguments.cluster) if getattr(arguments, "cluster", None) else None
    if cluster is not None and isinstance(hosts, Hosts):
        hosts = assume_ports(hosts, cluster.host)
    topology = find_machine(cluster, hosts, [benchmark for benchmark, _ in chosen])
    way_out = " (--alone leaves it out)" if hasattr(arguments, "alone") else ""
    if isinstance(hosts, PendingJob):
        plan = PlannedProof(topology, chosen, arguments.launches, hosts.hosts, screens, place)
        show_plan(plan, ceilings, way_out)
        if any(benchmark.rank_for_each_gpu for benchmark, _ in chosen) and not usable_gpus(topology):
            note("  the GPUs of the job's hosts are not known here, and decide there: --cluster FILE plans with them")
        return hosts.submit(plan.seconds)
    command = ("railwright", *sys.argv[1:])
    proof = Proof(topology, chosen, arguments.launches, hosts=hosts, screens=screens, place=place, command=command,
                  switches=cluster.fabric if cluster is not None else None, mpirun=arguments.mpirun,
                  silence_s=arguments.silence, force=arguments.force)  # fmt: skip
    show_plan(proof, ceilings, way_out)
    like = "the cluster file's" if cluster is not None else "this one"
    if hosts is not None and (assumed := describe_unasked(hosts, like)):
        note(f"  {assumed}")
    for line in plan_sheet(spec, proof.plan) if spec is not None else ():
        note(line)
    proof.refuse_impossible()
    if arguments.dry_run:
        return 0
    output = Path(arguments.output)
    file = run_proof(proof, output)
    try:
        return report(file, output, as_json=arguments.as_json, required=required, spec=spec, verbose=arguments.verbose)
    finally:
        if proof.trouble is not None:  # an incomplete results file matters more than a failed report
            raise proof.trouble


def find_machine(
    cluster: Cluster | None, hosts: Hosts | PendingJob | None, benchmarks: Sequence[AnyBenchmark]
) -> Topology:
    """Return the machine of the launches: the cluster file's, this one, or if it has no GPU for them, the first host.

    Hosts that share this machine have its GPUs.
    """
    if cluster is not None and hosts is not None:
        is_planned = isinstance(hosts, PendingJob) or describe_unasked(hosts)
        return add_rdma_names(add_gpu_addresses(cluster.host)) if is_planned else cluster.host
    here = load(None)
    needs_gpus = any(benchmark.rank_for_each_gpu for benchmark in benchmarks)
    if not isinstance(hosts, Hosts) or not needs_gpus or usable_gpus(here) or hosts.reach.shares_files:
        return here
    if describe_unasked(hosts):
        return here
    there = discover(hosts.part(hosts.names[:1]))[hosts.names[0]]
    return here if isinstance(there, str) else there


def run_proof(proof: Proof, output: Path) -> ResultFile:
    """Run the plan and show progress. Raises CannotJudge for an unreachable host, UsageError for a busy GPU or host."""
    proof.refuse_unreachable_hosts()
    _refuse_busy_gpus(proof)
    with _Display(proof):
        return proof.run(output)


def _refuse_busy_gpus(proof: Proof) -> None:
    """Raise UsageError if other processes use the GPUs that would be measured, unless `proof.force` is set."""
    gpus = {
        gpu.id: gpu
        for launch in proof.plan
        if launch.job.launch.gpus and not launch.plan.waived
        for gpu in launch.job.gpus
    }
    if not gpus:
        return
    trouble = refuse_busy_gpus(gpus.values(), force=proof.force)
    if trouble:
        note(trouble)


def show_plan(proof: PlannedProof, ceilings: frozenset[str] = frozenset(), way_out: str = "") -> None:
    """Print the plan on standard error: launches, duration, data moved and files written.

    `way_out` is the way to leave the ceilings out.
    """
    note(f"plan: {count_launches(proof)}")
    for launch in proof.plan:
        if launch.job.round:
            continue
        name = f"  {launch.title}".ljust(26)
        if launch.plan.waived:
            note(f"{name} not run: {launch.plan.waived}")
            continue
        cost = f"about {format_duration(launch.plan.seconds)}, moves {format_size(launch.plan.moved_bytes)}"
        cost += f", a limit (measured) for the others{way_out}" * (launch.benchmark.name in ceilings)
        where = f" on {format_count(len(launch.job.hosts), 'host')}" if launch.job.hosts else ""
        note(f"{name} {launch.job.ranks} rank{'s' * (launch.job.ranks > 1)}{where}, {cost}")
        for file in launch.plan.files:
            note(f"{'':26} writes {file}")
    note(f"  about {format_duration(proof.seconds)} in total")


def count_launches(proof: PlannedProof) -> str:
    """Count the launches of each round that run, and those that do not."""
    planned = [launch.plan.waived for launch in proof.plan]
    run, not_run = (len([one for one in planned if bool(one) is waived]) // proof.launches for waived in (False, True))
    return f"{proof.launches} x {format_count(run, 'launch', 'launches')}" + f", {not_run} not run" * bool(not_run)


class _TimeLeftColumn(ProgressColumn):
    """The time left of a run."""

    def __init__(self, left: TimeLeft) -> None:
        super().__init__()
        self._time = left

    def render(self, task: Task) -> Text:  # noqa: ARG002 - rich passes it
        """Render the estimate."""
        return Text(str(self._time))


class _Display:
    """Progress on standard error, with the time left: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._progress: Progress | None = None
        self._left = Counter(one.benchmark.name for one in proof.plan)
        self._rounds = Counter(one.job.round for one in proof.plan)
        self._to_run = sum(not one.plan.waived for one in proof.plan)
        self._time = TimeLeft(proof.seconds)

    def __enter__(self) -> None:
        proof = self._proof
        if not sys.stderr.isatty():
            proof.on_done = self._count
            return
        columns = (TextColumn("{task.fields[step]}", markup=False), BarColumn(), TimeElapsedColumn(),
                   _TimeLeftColumn(self._time))  # fmt: skip
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        task = progress.add_task("", total=max(proof.seconds, 0.1), step="reading the machine")
        proof.on_step = lambda one, step: progress.update(task, step=f"{one.job.round + 1}/{proof.launches} {step}")
        proof.on_done = lambda one: progress.advance(task, self._advance(one))
        progress.start()
        self._progress = progress

    def _advance(self, launch: PlannedLaunch) -> float:
        """Count the planned seconds of a finished launch, and return them."""
        seconds = 0.0 if launch.plan.waived else launch.plan.seconds
        self._time.advance(seconds)
        return seconds

    def _count(self, launch: PlannedLaunch) -> None:
        """Count a finished launch. After the last launch of a round or a benchmark, print a line."""
        self._advance(launch)
        name, number = launch.benchmark.name, launch.job.round
        self._left[name] -= 1
        self._rounds[number] -= 1
        self._to_run -= not launch.plan.waived
        if not self._rounds[number] and number + 1 < self._proof.launches:
            note(f"done: round {number + 1} of {self._proof.launches}, {self._time}")
        if not self._left[name]:
            launches = [each for each in self._proof.plan if each.benchmark.name == name]
            waived = all(each.plan.waived for each in launches)
            left = f", {self._time}" if self._to_run else ""
            counted = format_count(len(launches), "launch", "launches")
            note(f"not run: {name}" if waived else f"done: {name} ({counted}){left}")

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
