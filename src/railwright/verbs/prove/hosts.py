"""`prove --hosts`: every host proves itself, then pairs and collectives between them; one page holds all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
from msgspec.structs import replace

from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS, find
from railwright.diagnosis.acceptance.lines import Sheet
from railwright.diagnosis.fleet.between_hosts import paths_of_hosts, unless_shared
from railwright.diagnosis.fleet.host_table import HostTable, host_table
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, CannotJudge, RailwrightError, unknown_name
from railwright.launch.hosts import Hosts, PlannedHosts
from railwright.options.arguments import Arguments
from railwright.options.machine import load_planned_cluster
from railwright.options.output import write
from railwright.report.formats.json_line import json_line
from railwright.report.pages.hosts import render_hosts_html
from railwright.report.text.between_hosts import Found
from railwright.report.text.hosts import lines
from railwright.results.store import load
from railwright.run.exclusive import measuring_alone
from railwright.run.host_screen import HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.runs.acceptance import Evidence, load_spec, sheet_lines
from railwright.runs.judged import note, write_page
from railwright.runs.measuring import option_words, parse_benchmarks
from railwright.runs.requirements import load_requirements
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load as load_machine
from railwright.units import format_duration, format_size
from railwright.verbs.prove.between_hosts import (
    FOLDER,
    PAIRS_FILE,
    Between,
    find_collectives,
    parse_collectives,
    split_options,
)

_PAGE = "report.html"
_TIMES_PLAN, _BESIDE_S = 5.0, 300.0
SCREEN, PAIRS, COLLECTIVES = "screen", "pairs", "collectives"
PARTS = (SCREEN, PAIRS, COLLECTIVES)


class _Host(NamedTuple):
    """What one host sent."""

    judged: Diagnosis | str
    topology: Topology | None = None


def prove_hosts(hosts: Hosts, arguments: Arguments) -> int:
    """Show the plan, let all hosts measure themselves and then each other, and report; the exit status."""
    of_hosts, of_all = split_options(arguments.options)
    chosen = parse_benchmark_names(arguments)
    alone, parts = _alone(chosen, arguments.parts)
    names = alone or tuple(benchmark.name for benchmark in BENCHMARKS)
    given = of_hosts if alone else (f"directory={arguments.directory}", *of_hosts)
    proof = PlannedProof(load_machine(None), parse_benchmarks(names, given), arguments.launches)
    words = ["run", *names, "--alone"] if alone else ["prove", "--directory", arguments.directory]
    words += option_words(arguments, of_hosts, arguments.launches)
    longest_s, silence_s = _TIMES_PLAN * proof.seconds + _BESIDE_S, arguments.silence + proof.seconds
    screen = HostScreen(hosts, words, Path(arguments.output), silence_s, longest_s, note, keep=arguments.resume)
    report = HostsReport(screen, arguments)
    cluster = load_planned_cluster(arguments.cluster) if arguments.cluster is not None else None
    with contextlib.suppress(CannotJudge):  # a host that cannot be reached says so itself, and costs itself alone
        hosts.reach.check()
    between = Between(hosts, arguments, parts - {SCREEN}, cluster, parse_collectives(chosen, of_all), proof.topology)
    show_plan(screen, proof, "" if alone else arguments.directory, between, is_screened=SCREEN in parts)
    if arguments.dry_run:
        return EXIT_OK
    with measuring_alone(arguments.force):
        report.judge(screen.run(hosts.reach.agent) if SCREEN in parts else _reachable(hosts))
        if between.parts:
            machines = {host: one.topology for host, one in report.found.items() if one.topology is not None}
            report.there = between.run(machines, report.lost, resume=arguments.resume)
    return report.tell()


def parse_benchmark_names(arguments: Arguments) -> tuple[str, ...]:
    """Those that were named; none: those of `prove`, and all collectives. Raises UsageError."""
    return tuple(find(name.strip()).name for name in arguments.benchmarks.split(",")) if arguments.benchmarks else ()


def _alone(chosen: tuple[str, ...], given: str | None) -> tuple[tuple[str, ...], frozenset[str]]:
    """The benchmarks that were asked of each host by itself, and the parts that are left where only some were.

    Raises UsageError for a part that is none.
    """
    named = [part.strip() for part in given.split(",")] if given is not None else PARTS
    for part in named:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    parts = frozenset(named)
    together = {one.name for one in find_collectives()}
    alone = tuple(name for name in chosen if name not in together)
    if chosen:
        parts -= {part for part, named in ((SCREEN, alone), (COLLECTIVES, together & {*chosen})) if not named}
    return alone, parts


class HostsReport:
    """What hosts have sent of themselves, and what was measured between them. Raises UsageError for what decides."""

    def __init__(self, screen: HostScreen, arguments: Arguments) -> None:
        self.screen, self.arguments = screen, arguments
        self.required, spec = load_requirements(arguments.require), load_spec(arguments.accept, arguments.require)
        self.evidence = Evidence(spec, screen.output) if spec is not None else None
        self.found: dict[str, _Host] = {}
        self.lost: dict[str, str] = {}
        """Why a host was not measured to its end."""
        self.there: Found | None = None

    def judge(self, troubles: Mapping[str, str]) -> None:
        """Judge what each host has sent, and write its own report; empty troubles are none."""
        self.lost = {host: why for host, why in troubles.items() if why}
        self.found = {host: self._judged(host, why) for host, why in troubles.items()}

    def tell(self) -> int:
        """Write the page, print what was found; the exit status, which is the sheet's where there is one."""
        table = self._table()
        self._write_page(table)
        as_json, compared = self.arguments.as_json, _compares(self.screen.hosts)
        for line in _json(table, self.there) if as_json else lines(table, compared=compared, between=self.there):
            click.echo(line)
        if self.evidence is None:
            return self._status(table)
        sheet = self._sheet(self.evidence)
        for line in sheet_lines(sheet, as_json=as_json):
            click.echo(line)
        return sheet.exit_status

    def _judged(self, host: str, why: str) -> _Host:
        """A host's records, judged, with its own report beside them; or why there is nothing to judge."""
        folder = self.screen.host_folder(host)
        if not (folder / RESULTS).exists():
            return _Host(why or "it was not screened")
        try:
            file = load(folder / RESULTS)
            compare = _compares(self.screen.hosts)
            diagnosis = unless_shared(diagnose(file, DECLARATIONS, self.required), compare=compare)
            write_page(file, diagnosis, folder)
            if self.evidence is not None:
                self.evidence.add(folder / RESULTS, file, diagnosis, host)
        except RailwrightError as error:  # what another host sent may be anything
            return _Host(why or error.message)
        return _Host(diagnosis, file.run.topology)

    def _sheet(self, evidence: Evidence) -> Sheet:
        """All of it against the specification."""
        lost = dict(self.lost)
        for host, one in self.found.items():
            if isinstance(one.judged, str):
                lost.setdefault(host, one.judged)
        if self.there is not None:
            lost |= {host: why for host, why in self.there.said.left_out.items() if host not in lost}
            between = self.screen.output / FOLDER
            if self.there.pairs:
                evidence.add_pairs(between / PAIRS_FILE, self.there.pairs)
            if self.there.collectives is not None:
                evidence.add(between / RESULTS, load(between), self.there.collectives)
        sheet = evidence.sheet([host for host in self.found if host not in lost], lost)
        note(f"wrote {evidence.page}")
        return sheet

    def _table(self) -> HostTable:
        """The hosts with their own paths, and with what each sent to the others and received."""
        judged = {host: one.judged for host, one in self.found.items()}
        lost = dict.fromkeys(self.found, "") | self.lost
        if self.there is not None:
            lost |= {host: why for host, why in self.there.said.left_out.items() if not lost.get(host)}
            for host, paths in paths_of_hosts(self.there.pairs).items():
                one = judged.get(host)
                if isinstance(one, Diagnosis):
                    judged[host] = replace(one, paths=(*one.paths, *paths))
                elif host not in self.lost:  # it was not screened
                    judged[host] = Diagnosis(points=(), paths=paths, findings=(), exit_status=EXIT_OK)
        return host_table(judged, compare=_compares(self.screen.hosts), troubles=lost)

    def _write_page(self, table: HostTable) -> None:
        folder = self.screen.output

        def link_of(host: str) -> str:
            if isinstance(self.found[host].judged, str):
                return ""
            return quote(str((self.screen.host_folder(host) / _PAGE).relative_to(folder)))

        folder.mkdir(parents=True, exist_ok=True)
        write(str(folder / _PAGE), render_hosts_html(table, link_of, self.there, f"{FOLDER}/{_PAGE}"))

    def _status(self, table: HostTable) -> int:
        """That of the worst host or pair; a host that is behind its siblings in several launches is slow."""
        there, judged = self.there, [one.judged for one in self.found.values()]
        statuses = [one.exit_status if isinstance(one, Diagnosis) else EXIT_UNJUDGED for one in judged]
        statuses += [EXIT_UNJUDGED for host in table.hosts if host.trouble]
        if self.arguments.launches > 1 and any(host.behind for host in table.hosts):
            statuses.append(EXIT_SLOW)
        if there is not None:
            if there.said.is_bad or any(one.is_slow for one in there.pairs):
                statuses.append(EXIT_SLOW)
            if not there.said.is_whole or any(one.verdict.state != "ok" for one in there.pairs):
                statuses.append(EXIT_UNJUDGED)
            statuses += [there.collectives.exit_status] if there.collectives else []
        order = (EXIT_SLOW, EXIT_UNJUDGED, EXIT_OK)
        return next((status for status in order if status in statuses), EXIT_UNJUDGED)


def _compares(hosts: PlannedHosts) -> bool:
    with contextlib.suppress(CannotJudge):
        return not hosts.reach.shares_cpus
    return True


def _reachable(hosts: Hosts) -> dict[str, str]:
    """No host's trouble where all can be reached. Raises CannotJudge otherwise: a screen tells which is at fault."""
    hosts.reach.check()
    return dict.fromkeys(hosts.names, "")


def show_plan(
    screen: HostScreen, proof: PlannedProof, directory: str, between: Between | None = None, *, is_screened: bool = True
) -> None:
    """What every host will do, as far as this one tells, and what all do together; on standard error."""
    count = len(screen.hosts.names)
    rounds, seconds = -(-count // screen.at_once), 0.0
    note(f"plan: {count} hosts, by {screen.hosts.reach.name}")
    if is_screened:
        moved = sum(one.plan.moved_bytes for one in proof.plan if not one.plan.waived)
        order = "all at once" if rounds == 1 else f"{screen.at_once} at a time"
        seconds = rounds * proof.seconds
        note(f"  screen: each proves itself, {order}, about {format_duration(proof.seconds)} by this host's plan;"
             f" it moves {format_size(moved)} inside it, nothing crosses between hosts")  # fmt: skip
        if directory:
            note(f"  each writes test files in its {directory}")
    said, more_s = between.plan() if between is not None else ((), 0.0)
    cluster = between.cluster if between is not None else None
    for line in said:
        note(f"  {line}")
    seconds += more_s
    note(f"  writes {screen.output}/{_PAGE}, a folder for each host in {screen.host_folder('x').parent}"
         + f", and {screen.output / FOLDER}" * bool(said))  # fmt: skip
    gpus = len((cluster.host if cluster else proof.topology).of_kind("gpu"))
    hours = f"{count * gpus * seconds / 3600:.2g} GPU hours ({count} x {gpus} GPUs)" if gpus else "no GPU hours"
    like = "the cluster file's" if cluster else "this one"
    note(f"  all together about {format_duration(seconds)}; {hours}, if the hosts are like {like}")


def _json(table: HostTable, there: Found | None) -> Iterator[str]:
    records: list[object] = [*table.columns, *table.hosts]
    if there is not None:
        records += [there.said, *there.pairs, *(there.collectives.paths if there.collectives else ())]
    yield from map(json_line, records)
