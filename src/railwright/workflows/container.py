"""`--in-namespaces-of PID --against host`: the paths of a container, measured alternately with those of its host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.checks.finding import Finding
from railwright.diagnosis.fleet.container import Entered, container_findings, find_differences
from railwright.diagnosis.fleet.settings import describe_host
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, RailwrightError, UsageError
from railwright.launch.containers.surroundings import CONTAINER, HOST, Surroundings, read_surroundings, write_agent
from railwright.launch.hosts import NoReach, PlannedHosts
from railwright.options.arguments import Arguments
from railwright.report.formats.json_line import json_line
from railwright.report.formats.records import FindingRecord, comparison_lines
from railwright.report.pages.page import standard_output
from railwright.report.text.container import render_container
from railwright.results.compare import Comparison, compare
from railwright.results.records import Record, ResultFile
from railwright.results.store import Writer, load
from railwright.run.host_screen import HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.sources.load import load as load_machine
from railwright.units import format_duration
from railwright.workflows.judged import note, write_page
from railwright.workflows.measuring import option_words, parse_benchmarks

_PLAN_FACTOR, _EXTRA_S = 5.0, 300.0
_ROUNDS, _SIDES = "rounds", "hosts"


def refuse_incomplete(arguments: Arguments, *more: str) -> None:
    """Raise UsageError if only one of the two options is given, or an option that conflicts with them."""
    if (arguments.in_namespaces_of is None) != (arguments.against is None):
        raise UsageError(
            "--in-namespaces-of and --against require each other", hint="write --in-namespaces-of PID --against host"
        )
    other = next((name for name in ("hosts", *more, "slurm", "kubernetes", "require", "accept", "verbose")
                  if getattr(arguments, name, None)), None)  # fmt: skip
    if arguments.in_namespaces_of is not None and other is not None:
        raise UsageError(f"--{other} and --in-namespaces-of exclude each other", hint=f"leave out --{other}")


def measure_container(words: Sequence[str], names: tuple[str, ...], arguments: Arguments) -> int:
    """Show the plan, measure both sides alternately, report, and return the exit status.

    `words` is the command that measures one side, and `names` are the benchmarks that it measures.
    """
    inside, launches = read_surroundings(arguments.in_namespaces_of), arguments.launches
    proof = PlannedProof(load_machine(None), parse_benchmarks(names, arguments.options), launches)
    _show_plan(inside, proof.seconds, launches, arguments.output)
    if arguments.dry_run:
        return EXIT_OK
    command = [*words, *option_words(arguments, arguments.options, 1)]
    folder = Path(arguments.output)
    limit_s = _PLAN_FACTOR * proof.seconds + _EXTRA_S
    troubles: dict[str, str] = {}
    for number in range(launches):
        # Each side goes first in every other round, so that drift of the machine affects both equally.
        order = (HOST, CONTAINER) if number % 2 == 0 else (CONTAINER, HOST)
        sides = PlannedHosts(order, 1, NoReach("namespaces", shares_cpus=True))
        screen = HostScreen(
            sides, command, folder / _ROUNDS / str(number), arguments.silence + proof.seconds, limit_s, note
        )
        troubles |= {side: why for side, why in screen.run(partial(write_agent, inside)).items() if why}
    files = {side: _merge_rounds(folder, side, launches) for side in (HOST, CONTAINER)}
    return _report(inside, files, troubles, folder, arguments.as_json)


def _show_plan(inside: Surroundings, seconds: float, launches: int, output: str) -> None:
    note(f"plan: this host and the container of process {inside.pid} measure alternately, {launches} times each")
    note(f"  adopted      {', '.join(inside.taken)}")
    for item in inside.left:
        note(f"  not adopted  {item}")
    note(f"  writes {output}/{_SIDES}/{HOST} and {output}/{_SIDES}/{CONTAINER}")
    note(f"  about {format_duration(2 * seconds)} in total")


def _merge_rounds(folder: Path, side: str, launches: int) -> ResultFile | None:
    """Merge the rounds of a side into one run with a launch per round. None if no round left records."""
    found = []
    for number in range(launches):
        file = folder / _ROUNDS / str(number) / _SIDES / side / RESULTS
        if file.exists():
            found.append((number, load(file)))
    if not found:
        return None
    writer = Writer(folder / _SIDES / side, found[0][1].run)
    try:
        for record in _iterate_records(found):
            writer.append(record)
    finally:
        writer.close()
    return load(writer.path)


def _iterate_records(found: Sequence[tuple[int, ResultFile]]) -> Iterator[Record]:
    for number, file in found:
        yield from (replace(result, launch=number) for result in file.results)
        yield from (replace(result, launch=number) for result in file.disturbed)
    ends = [file.end for _, file in found if file.end is not None]
    if len(ends) == len(found):
        moved = {name: 0 for end in ends for name in end.counters_moved}
        total = {name: sum(end.counters_moved.get(name, 0) for end in ends) for name in moved}
        cut = next((end.interrupted for end in ends if end.interrupted), "")
        yield replace(ends[-1], counters_moved=total, interrupted=cut)


def _report(
    inside: Surroundings, files: dict[str, ResultFile | None], troubles: dict[str, str], folder: Path, as_json: bool
) -> int:
    entered = Entered(
        pid=inside.pid, program=inside.program, taken=inside.taken, left=inside.left, troubles=dict(troubles)
    )
    host, container = files[HOST], files[CONTAINER]
    findings = {side: _judge_side(file, folder / _SIDES / side) for side, file in files.items() if file is not None}
    alone = container_findings(findings.get(HOST, ()), findings.get(CONTAINER, ()))
    compared = compare(host, container) if host is not None and container is not None else None
    differ = (
        tuple(find_differences(describe_host(host.run.topology), describe_host(container.run.topology)))
        if host and container
        else ()
    )
    status = _status(compared, alone, troubles)
    if compared is not None:
        compared = replace(compared, exit_status=status)
    if as_json:
        for record in (entered, *differ, *(FindingRecord(finding=finding) for finding in alone)):
            click.echo(json_line(record))
        for line in comparison_lines(compared) if compared is not None else ():
            click.echo(line)
    else:
        render_container(entered, differ, alone, compared, standard_output())
    return status


def _judge_side(file: ResultFile, folder: Path) -> tuple[Finding, ...]:
    """Judge a side, write its report next to its records, and return its findings."""
    diagnosis = diagnose(file, DECLARATIONS)
    try:
        write_page(file, diagnosis, folder)
    except RailwrightError as error:
        note(error.message)
    return diagnosis.findings


def _status(compared: Comparison | None, alone: Sequence[Finding], troubles: dict[str, str]) -> int:
    """Return 1 if the container is slower or has its own fault, 3 if something is unknown, and otherwise 0."""
    if any(finding.certainty in ("seen", "likely") for finding in alone):
        return EXIT_SLOW
    if compared is None:
        return EXIT_UNJUDGED
    return EXIT_UNJUDGED if troubles and compared.exit_status == EXIT_OK else compared.exit_status
