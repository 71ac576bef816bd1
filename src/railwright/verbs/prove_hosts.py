"""`prove --hosts`: every host proves itself, and is held against the others on one page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import click

from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS
from railwright.diagnosis.diagnose import diagnose
from railwright.diagnosis.host_table import HostTable, host_table
from railwright.diagnosis.judged import Diagnosis
from railwright.diagnosis.policy import Requirement
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, CannotJudge, RailwrightError
from railwright.launch.host_screen import HostScreen
from railwright.launch.hosts import Hosts
from railwright.launch.proof import Proof
from railwright.launch.screened import RESULTS
from railwright.report.hosts_html import render_hosts_html
from railwright.report.hosts_text import lines
from railwright.report.html import render_html
from railwright.report.records import json_line
from railwright.results.store import load
from railwright.topology.sources.load import load as load_machine
from railwright.units import format_duration, format_size
from railwright.verbs.judged import note, the_view
from railwright.verbs.measuring import parse
from railwright.verbs.requirements import the_requirements
from railwright.verbs.write import write

_PAGE, _OF_HOST = "report.html", "report.html"
_TIMES_PLAN, _BESIDE_S = 5.0, 300.0


def prove_hosts(
    hosts: Hosts,
    *,
    output: str,
    options: tuple[str, ...],
    directory: str,
    launches: int,
    silence: float,
    mpirun: str | None,
    force: bool,
    dry_run: bool,
    require: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the plan, let all hosts measure themselves, and report; the exit status."""
    required = the_requirements(require)
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    given = (f"directory={directory}", *options)
    proof = Proof(load_machine(None), parse(names, given), launches, ("railwright",))
    words = ["prove", "--launches", str(launches), "--directory", directory, "--silence", f"{silence:g}"]
    words += [word for text in options for word in ("-o", text)]
    words += (["--mpirun", mpirun] if mpirun else []) + ["--force"] * force
    folder = Path(output)
    longest_s = _TIMES_PLAN * proof.seconds + _BESIDE_S
    screen = HostScreen(hosts, words, folder, silence + proof.seconds, longest_s, note)
    with contextlib.suppress(CannotJudge):  # a host that cannot be reached says so itself, and costs itself alone
        hosts.reach.check()
    show_plan(screen, proof, directory)
    if dry_run:
        return EXIT_OK
    return report_hosts(screen, screen.run(), required, launches=launches, as_json=as_json)


def report_hosts(
    screen: HostScreen,
    troubles: Mapping[str, str],
    required: tuple[Requirement, ...],
    *,
    launches: int,
    as_json: bool,
) -> int:
    """Judge what hosts have sent, write the pages, and print the table; the exit status."""
    folder = screen.output
    judged = {host: why or _judged(screen.folder_of(host), required) for host, why in troubles.items()}
    compared = not screen.hosts.reach.shares_cpus
    table = host_table(judged, compare=compared)
    _write_pages(screen, judged, table, folder)
    for line in _json(table) if as_json else lines(table, compared=compared):
        click.echo(line)
    return _status(judged.values(), table, launches)


def show_plan(screen: HostScreen, proof: Proof, directory: str) -> None:
    """What every host will do, as far as this one tells; on standard error."""
    count = len(screen.hosts.names)
    rounds = -(-count // screen.at_once)
    moved = sum(one.plan.moved_bytes for one in proof.plan if not one.plan.waived)
    order = "all at once" if rounds == 1 else f"{screen.at_once} at a time"
    note(f"plan: {count} hosts prove themselves, {order}, by {screen.hosts.reach.name}; nothing crosses between them")
    note(f"  each about {format_duration(proof.seconds)} by this host's plan, moves {format_size(moved)} inside it, "
         f"writes test files in its {directory}")  # fmt: skip
    note(f"  writes {screen.output}/{_PAGE} and a folder for each host in {screen.folder_of('x').parent}")
    note(f"  all together about {format_duration(rounds * proof.seconds)}")


def _judged(folder: Path, required: tuple[Requirement, ...]) -> Diagnosis | str:
    """A host's records, judged, with its own report beside them; or why there is nothing to judge."""
    try:
        file = load(folder / RESULTS)
        diagnosis = diagnose(file, DECLARATIONS, required)
        write(str(folder / _OF_HOST), render_html(the_view(file, diagnosis)))
    except RailwrightError as error:  # what another host sent may be anything
        return error.message
    return diagnosis


def _write_pages(screen: HostScreen, judged: Mapping[str, Diagnosis | str], table: HostTable, folder: Path) -> None:
    def link_of(host: str) -> str:
        if isinstance(judged[host], str):
            return ""
        return quote(str((screen.folder_of(host) / _OF_HOST).relative_to(folder)))

    folder.mkdir(parents=True, exist_ok=True)
    write(str(folder / _PAGE), render_hosts_html(table, link_of))


def _json(table: HostTable) -> Iterator[str]:
    for column in table.columns:
        yield json_line(column)
    for host in table.hosts:
        yield json_line(host)


def _status(judged: Iterable[Diagnosis | str], table: HostTable, launches: int) -> int:
    """That of the worst host; one that is behind its siblings in several launches is slow."""
    statuses = [EXIT_UNJUDGED if isinstance(one, str) else one.exit_status for one in judged]
    if launches > 1 and any(host.behind for host in table.hosts):
        statuses.append(EXIT_SLOW)
    order = (EXIT_SLOW, EXIT_UNJUDGED, EXIT_OK)
    return next((status for status in order if status in statuses), EXIT_UNJUDGED)
