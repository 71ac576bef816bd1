"""What the two measuring verbs, `prove` and `run`, share: options, the plan, progress and the report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from railwright.cli.main import drop_output

if TYPE_CHECKING:
    from rich.progress import Progress

    from railwright.benchmarks.benchmark import AnyBenchmark
    from railwright.benchmarks.options import Options
    from railwright.diagnosis.model import Diagnosis
    from railwright.launch.hosts import Hosts
    from railwright.launch.proof import Proof
    from railwright.launch.session import Planned
    from railwright.results.model import ResultFile

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--output", "-O", type=click.Path(path_type=Path), default=Path("out"), show_default=True,
                 help="Folder for results.jsonl, report.html and metrics.txt."),
    click.option("--option", "-o", "options", multiple=True, metavar="[BENCHMARK.]NAME=VALUE",
                 help="A benchmark's option, like mpi_latency.sizes=8:1M:x2."),
    click.option("--mpirun", metavar="PATH", help="The mpirun to use; its own MPI library is used with it."),
    click.option("--silence", type=click.FloatRange(1, 86400), default=60, show_default=True, metavar="SECONDS",
                 help="Ranks silent for this long beyond their plan count as hung."),
    click.option("--dry-run", is_flag=True, help="Show the plan and stop."),
    click.option("--force", is_flag=True, help="Measure on a busy host, or beside another run."),
    click.option("--json", "as_json", is_flag=True, help="Print the judged records instead of the report."),
)  # fmt: skip


def measuring_options(*, launches: int) -> Callable[[Command], Command]:
    """The options that `prove` and `run` have in common, for `measure`."""
    repeat = click.option("--launches", type=click.IntRange(1, 1000), default=launches, show_default=True,
                          help="Fresh processes per benchmark; their spread is the noise.")  # fmt: skip

    def decorate(command: Command) -> Command:
        for option in reversed((*_OPTIONS, repeat)):
            command = option(command)
        return command

    return decorate


def parse(names: tuple[str, ...], given: tuple[str, ...]) -> list[tuple[AnyBenchmark, Options]]:
    """The benchmarks of those names with their options. Raises UsageError."""
    from railwright.benchmarks.options import options_of
    from railwright.benchmarks.registry import find
    from railwright.errors import UsageError, unknown_name

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
    output: Path,
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
    from railwright.launch.proof import Proof
    from railwright.topology.sources.load import load

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
        file = proof.run(output)
    try:
        return report(file, output, as_json=as_json)
    finally:
        if proof.trouble is not None:  # that the results are not whole matters more than a report that is not written
            raise proof.trouble


def _refuse_busy_gpus(proof: Proof) -> None:
    """Raises UsageError where somebody else uses the GPUs that would be measured."""
    gpus = {gpu.id: gpu for one in proof.plan if one.job.launch.gpus and not one.plan.waived for gpu in one.job.gpus}
    if not gpus:
        return
    from railwright.launch.gpu_business import refuse_busy_gpus

    trouble = refuse_busy_gpus(gpus.values(), force=proof.force)
    if trouble:
        _note(trouble)


def _note(text: str) -> None:
    """A line on standard error. A measurement goes on when nobody can read it any more (`2>&1 | head`, full disk)."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def show_plan(proof: Proof) -> None:
    """What will be done, how long it takes, how much it moves and which files it writes; on standard error."""
    from railwright.units import format_duration, format_size

    _note(f"plan: {proof.launches} x {len(proof.plan) // proof.launches} launches")
    for one in proof.plan:
        if one.job.round:
            continue
        name = f"  {one.title}".ljust(26)
        if one.plan.waived:
            _note(f"{name} waived: {one.plan.waived}")
            continue
        cost = f"about {format_duration(one.plan.seconds)}, moves {format_size(one.plan.moved_bytes)}"
        where = f" on {len(one.job.hosts)} hosts" if one.job.hosts else ""
        _note(f"{name} {one.job.ranks} rank{'s' * (one.job.ranks > 1)}{where}, {cost}")
        for file in one.plan.files:
            _note(f"{'':26} writes {file}")
    _note(f"  all together about {format_duration(proof.seconds)}")


class _Display:
    """Progress on standard error: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._progress: Progress | None = None

    def __enter__(self) -> None:
        proof = self._proof
        if not sys.stderr.isatty():
            proof.on_done = lambda one: _note(f"done: {_title(one)}")
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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


def report(file: ResultFile, output: Path, *, as_json: bool) -> int:
    """Judge a run, write report.html and metrics.txt into `output`, and print it; the exit status.

    The files come first, and each is tried: what cannot be made, written or printed does not cost the rest.
    """
    from railwright.benchmarks.registry import declarations_for
    from railwright.diagnosis.diagnose import diagnose

    diagnosis = diagnose(file, declarations_for(file.run.schema_version))
    troubles: list[Exception] = []
    for name, make in _pages(file, diagnosis).items():
        try:
            _write(output / name, make())
        except Exception as trouble:  # also a mistake of our own in a page: the report on the terminal must come
            troubles.append(trouble)
    show(file, diagnosis, as_json=as_json)
    if troubles:
        raise troubles[0]
    return diagnosis.exit_status


def _pages(file: ResultFile, diagnosis: Diagnosis) -> dict[str, Callable[[], str]]:
    from railwright.report.html import render_html
    from railwright.report.openmetrics import render_openmetrics

    return {
        "report.html": lambda: render_html(file.run, diagnosis, file.results, file.end),
        "metrics.txt": lambda: render_openmetrics(file.run, diagnosis),
    }


def show(file: ResultFile, diagnosis: Diagnosis, *, as_json: bool) -> None:
    """Print a judged run."""
    with _reader_may_leave():
        if as_json:
            from railwright.report.records import json_lines

            for line in json_lines(file.run, diagnosis, file.end):
                click.echo(line)
        else:
            from railwright.benchmarks.registry import declarations_for
            from railwright.report.page import standard_output
            from railwright.report.text import render

            declarations = declarations_for(file.run.schema_version)
            render(file.run, diagnosis, file.end, standard_output(), file.results, declarations)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """`| head` leaves before all is printed: the exit status then still is that of the measurement."""
    try:
        yield
        click.echo(nl=False)
    except (BrokenPipeError, SystemExit):  # rich ends the program with SystemExit when the pipe is broken
        drop_output()


def _write(path: Path, text: str) -> None:
    """Write a report whole: a half-written one never takes the place of an older one. Raises RailwrightError."""
    from railwright.errors import RailwrightError

    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        hint = "the results are kept; `railwright judge` writes reports again"
        raise RailwrightError(f"cannot write {path}: {error.strerror}", hint=hint) from error
    _note(f"wrote {path}")
