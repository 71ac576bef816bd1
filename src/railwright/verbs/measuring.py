"""What the two measuring verbs, `prove` and `run`, share: the plan, the refusals and progress."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.options import Options, options_of
from railwright.benchmarks.registry import find
from railwright.errors import UsageError, unknown_name
from railwright.launch.gpu_business import refuse_busy_gpus
from railwright.launch.hosts import Hosts
from railwright.launch.proof import Proof
from railwright.launch.session import Planned
from railwright.topology.sources.load import load
from railwright.units import format_duration, format_size
from railwright.verbs.judged import note, report


def parse(names: tuple[str, ...], given: tuple[str, ...]) -> list[tuple[AnyBenchmark, Options]]:
    """The benchmarks of those names with their options. Raises UsageError."""
    benchmarks = [find(name) for name in dict.fromkeys(names)]
    known = {benchmark.name: options_of(benchmark.options) for benchmark in benchmarks}
    settings: dict[str, dict[str, str]] = {name: {} for name in known}
    for text in given:
        key, separator, value = text.partition("=")
        owner, dot, name = key.rpartition(".")
        if not separator or not name:
            raise UsageError(f"not an option: {text[:60]!r}", hint="write NAME=VALUE or BENCHMARK.NAME=VALUE")
        if dot and owner not in settings:
            raise unknown_name("benchmark in this run", owner, settings)
        takers = [each for each in known if each == owner or (not dot and name in known[each])]
        if not takers:
            raise unknown_name("option of these benchmarks", name, {one for each in known.values() for one in each})
        for taker in takers:
            settings[taker][name] = value
    return [(benchmark, benchmark.parse(settings[benchmark.name])) for benchmark in benchmarks]


def measure(
    names: tuple[str, ...],
    *,
    output: str,
    options: tuple[str, ...],
    mpirun: str | None,
    silence: float,
    dry_run: bool,
    force: bool,
    as_json: bool,
    launches: int,
    hosts: Hosts | None = None,
) -> int:
    """Show the plan of those benchmarks, run it, and report; the exit status."""
    proof = Proof(
        topology=load(None),
        chosen=parse(names, options),
        launches=launches,
        command=("railwright", *sys.argv[1:]),
        mpirun=mpirun,
        hosts=hosts,
        silence_s=silence,
        force=force,
    )
    show_plan(proof)
    proof.refuse_impossible()
    if dry_run:
        return 0
    proof.refuse_unreachable_hosts()
    _refuse_busy_gpus(proof)
    with _Display(proof):
        file = proof.run(Path(output))
    try:
        return report(file, Path(output), as_json=as_json)
    finally:
        if proof.trouble is not None:  # that the results are not whole matters more than a report that is not written
            raise proof.trouble


def _refuse_busy_gpus(proof: Proof) -> None:
    """Raises UsageError where somebody else uses the GPUs that would be measured."""
    gpus = {gpu.id: gpu for one in proof.plan if one.job.launch.gpus and not one.plan.waived for gpu in one.job.gpus}
    if not gpus:
        return
    trouble = refuse_busy_gpus(gpus.values(), force=proof.force)
    if trouble:
        note(trouble)


def show_plan(proof: Proof) -> None:
    """What will be done, how long it takes, how much it moves and which files it writes; on standard error."""
    note(f"plan: {proof.launches} x {len(proof.plan) // proof.launches} launches")
    for one in proof.plan:
        if one.job.round:
            continue
        name = f"  {one.title}".ljust(26)
        if one.plan.waived:
            note(f"{name} waived: {one.plan.waived}")
            continue
        cost = f"about {format_duration(one.plan.seconds)}, moves {format_size(one.plan.moved_bytes)}"
        where = f" on {len(one.job.hosts)} hosts" if one.job.hosts else ""
        note(f"{name} {one.job.ranks} rank{'s' * (one.job.ranks > 1)}{where}, {cost}")
        for file in one.plan.files:
            note(f"{'':26} writes {file}")
    note(f"  all together about {format_duration(proof.seconds)}")


class _Display:
    """Progress on standard error: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._progress: Progress | None = None

    def __enter__(self) -> None:
        proof = self._proof
        if not sys.stderr.isatty():
            proof.on_done = lambda one: note(f"done: {_title(one)}")
            return
        columns = (TextColumn("{task.fields[step]}", markup=False), BarColumn(), TimeElapsedColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        task = progress.add_task("", total=max(proof.seconds, 0.1), step="looking at the machine")
        proof.on_step = lambda one, step: progress.update(task, step=f"{one.job.round + 1}/{proof.launches} {step}")
        proof.on_done = lambda one: progress.advance(task, 0 if one.plan.waived else one.plan.seconds)
        progress.start()
        self._progress = progress

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _title(one: Planned) -> str:
    return f"launch {one.job.round + 1}: {one.title}{' (waived)' if one.plan.waived else ''}"
