"""`prove --hosts`: every host measures itself, then pairs and collectives are measured. One page shows all results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote

import click
from msgspec.structs import replace

from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS, find
from railwright.diagnosis.acceptance.lines import Sheet
from railwright.diagnosis.fleet.between_hosts import doubt_shared, summarize_hosts, summarize_rails
from railwright.diagnosis.fleet.host_table import HostTable, host_table
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, CannotJudge, RailwrightError, unknown_name
from railwright.launch.hosts import Hosts, NoReach, PlannedHosts
from railwright.launch.session import PlannedLaunch
from railwright.options.arguments import Arguments
from railwright.options.machine import load_planned_cluster
from railwright.options.output import print_text, write
from railwright.report.formats.json_line import json_line
from railwright.report.pages.hosts import render_hosts_html
from railwright.report.text.acceptance import summarize
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.report.text.hosts import lines
from railwright.results.store import load
from railwright.run.exclusive import measuring_alone
from railwright.run.host_screen import HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.changes import add_gpu_addresses, add_rdma_names
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load as load_machine
from railwright.units import format_duration, format_size
from railwright.verbs.prove.between_benchmarks import (
    OF_KV,
    OF_RAILS,
    OF_RDMA,
    find_collectives,
    parse_between,
    split_options,
)
from railwright.verbs.prove.between_hosts import FOLDER, PAIRS_FILE, Between
from railwright.verbs.prove.between_plan import PlannedBetween
from railwright.verbs.prove.kept import FILE as KEPT_FILE
from railwright.verbs.prove.kept import KeptBetween, KeptCluster, judge_between, write_kept
from railwright.workflows.acceptance import Evidence, load_spec, plan_sheet, print_sheet
from railwright.workflows.hosts import assume_ports, describe_unasked
from railwright.workflows.judged import note, write_page
from railwright.workflows.measuring import option_words, parse_benchmarks
from railwright.workflows.requirements import load_requirements
from railwright.workflows.time_left import TimeLeft

_PAGE = "report.html"
_PLAN_FACTOR, _EXTRA_S = 5.0, 300.0
SCREEN, PAIRS, RAILS, COLLECTIVES, KV, RDMA = "screen", "pairs", "rails", "collectives", "kv", "rdma"
PARTS = (SCREEN, PAIRS, RAILS, COLLECTIVES, KV, RDMA)


class _Host(NamedTuple):
    """The diagnosis and topology of one host, or the reason why there is no diagnosis."""

    judged: Diagnosis | str
    topology: Topology | None = None


def prove_hosts(hosts: Hosts, arguments: Arguments) -> int:
    """Show the plan, measure each host and then all together, report, and return the exit status."""
    chosen = parse_benchmark_names(arguments)
    alone, parts = split_parts(chosen, arguments.parts)
    names = alone or tuple(benchmark.name for benchmark in BENCHMARKS)
    host_options, between_options = split_options(arguments.options, names)
    given = host_options if alone else (f"directory={arguments.directory}", *host_options)
    cluster = load_planned_cluster(arguments.cluster) if arguments.cluster is not None else None
    machine = load_machine(None)
    if arguments.dry_run and cluster is not None:
        machine = add_rdma_names(add_gpu_addresses(cluster.host))
        cluster = replace(cluster, host=machine)
        hosts = assume_ports(hosts, machine)
    proof = PlannedProof(machine, parse_benchmarks(names, given), arguments.launches)
    words = ["run", *names, "--alone"] if alone else ["prove", "--directory", arguments.directory]
    words += option_words(arguments, host_options, arguments.launches)
    limit_s, silence_s = _PLAN_FACTOR * proof.seconds + _EXTRA_S, arguments.silence + proof.seconds
    screen = HostScreen(hosts, words, Path(arguments.output), silence_s, limit_s, note, keep=arguments.resume)
    report = HostsReport(screen, arguments)
    if not arguments.dry_run:
        with contextlib.suppress(CannotJudge):  # the screen reports an unreachable host, which affects no other
            hosts.reach.check()
    together = parse_between(chosen, between_options, parts)
    between = Between(hosts, arguments, parts - {SCREEN}, cluster, together, proof.topology)
    seconds = show_plan(screen, proof, "" if alone else arguments.directory, between, is_screened=SCREEN in parts)
    report.show_planned(proof.plan if SCREEN in parts else (), between)
    if arguments.dry_run:
        return EXIT_OK
    between.left = TimeLeft(seconds)
    screen.tell = HostsProgress(screen, between.left, proof.seconds)
    with measuring_alone(arguments.force):
        (screen.output / KEPT_FILE).unlink(missing_ok=True)  # an earlier proof's, if this one is interrupted
        report.judge(screen.run(hosts.reach.agent) if SCREEN in parts else _require_reachable(hosts))
        if between.parts:
            machines = {host: result.topology for host, result in report.found.items() if result.topology is not None}
            report.there = between.run(machines, report.lost, resume=arguments.resume)
            report.kept = between.keep(report.there)
    report.keep()
    return report.tell()


def judge_hosts(folder: Path, kept: KeptCluster, arguments: Arguments) -> int:
    """Judge the folder of an earlier proof again, write its pages, and return the exit status."""
    arguments.launches = kept.launches
    hosts = PlannedHosts(tuple(kept.hosts), 1, NoReach("records", shares_cpus=kept.shares_cpus))
    report = HostsReport(HostScreen(hosts, (), folder, 0.0, 0.0, note), arguments)
    report.judge(kept.hosts)
    if kept.between is not None:
        machines = {host: result.topology for host, result in report.found.items() if result.topology is not None}
        report.there = judge_between(folder / FOLDER, kept.between, machines, compare=not kept.shares_cpus)
    return report.tell()


def parse_benchmark_names(arguments: Arguments) -> tuple[str, ...]:
    """Parse --benchmarks. Empty means the benchmarks of `prove` and all collectives. Raises UsageError."""
    return tuple(find(name.strip()).name for name in arguments.benchmarks.split(",")) if arguments.benchmarks else ()


def split_parts(chosen: tuple[str, ...], given: str | None) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the requested benchmarks of each host, and the requested parts that have benchmarks to run.

    Raises UsageError for an unknown part.
    """
    named = [part.strip() for part in given.split(",")] if given is not None else PARTS
    for part in named:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    parts = frozenset(named)
    together = {one.name for one in find_collectives()}
    alone = tuple(name for name in chosen if name not in together)
    if chosen:
        wanted = {
            SCREEN: alone,
            RAILS: OF_RAILS in chosen,
            COLLECTIVES: together & {*chosen},
            KV: OF_KV.keys() & {*chosen},
            RDMA: {*OF_RDMA} & {*chosen},
        }
        parts -= {part for part, named in wanted.items() if not named}
    return alone, parts


class HostsReport:
    """The report on the hosts and the paths between them. Raises UsageError for a wrong --require or --accept."""

    def __init__(self, screen: HostScreen, arguments: Arguments) -> None:
        self.screen, self.arguments = screen, arguments
        self.required, spec = load_requirements(arguments.require), load_spec(arguments.accept, arguments.require)
        self.evidence = Evidence(spec, screen.output) if spec is not None else None
        self.found: dict[str, _Host] = {}
        self.lost: dict[str, str] = {}
        """The hosts whose measurement is incomplete, each with the reason."""
        self.there: BetweenHostsResult | None = None
        self.kept: KeptBetween | None = None
        """The measurements of `there`."""

    def keep(self) -> None:
        """Write the record with which `judge` judges the folder again."""
        hosts = {host: self.lost.get(host, "") for host in self.found}
        launches, shares_cpus = self.arguments.launches, not _may_compare(self.screen.hosts)
        self.screen.output.mkdir(parents=True, exist_ok=True)
        kept = KeptCluster(hosts=hosts, launches=launches, shares_cpus=shares_cpus, between=self.kept)
        write_kept(self.screen.output, kept)

    def show_planned(self, launches: Sequence[PlannedLaunch], between: PlannedBetween) -> None:
        """Print which planned launches will decide each line of the specification, if there is one."""
        if self.evidence is None:
            return
        every = (*launches, *between.planned_launches())
        has_pairs = PAIRS in between.parts
        for line in plan_sheet(self.evidence.spec, every, hosts=len(self.screen.hosts.names), has_pairs=has_pairs):
            note(f"  {line}")

    def judge(self, troubles: Mapping[str, str]) -> None:
        """Judge each host's records, and write its report. `troubles` maps every host to its failure or to ''."""
        self.lost = {host: why for host, why in troubles.items() if why}
        self.found = {host: self._judge_host(host, why) for host, why in troubles.items()}

    def tell(self) -> int:
        """Write the page, print the results, and return the exit status. An acceptance sheet decides the status."""
        table = self._build_table()
        self._write_page(table)
        as_json, compared = self.arguments.as_json, _may_compare(self.screen.hosts)
        sheet = self._build_sheet(self.evidence) if self.evidence is not None else None
        if sheet is not None and not as_json:
            print_text(f"{summarize(sheet)}.")
        if as_json:
            for line in _json_lines(table, self.there):
                click.echo(line)
        else:
            print_text(lines(table, compared=compared, between=self.there))
        if sheet is None:
            return self._status(table)
        print_sheet(sheet, as_json=as_json)
        return sheet.exit_status

    def _judge_host(self, host: str, trouble: str) -> _Host:
        """Judge a host's records and write its report next to them, or return why there is nothing to judge."""
        folder = self.screen.host_folder(host)
        if not (folder / RESULTS).exists():
            return _Host(trouble or "it was not screened")
        try:
            file = load(folder / RESULTS)
            compare = _may_compare(self.screen.hosts)
            diagnosis = doubt_shared(diagnose(file, DECLARATIONS, self.required), compare=compare)
            write_page(file, diagnosis, folder)
            if self.evidence is not None:
                self.evidence.add(folder / RESULTS, file, diagnosis, host)
        except RailwrightError as error:  # records from another host may be malformed
            return _Host(trouble or error.message)
        return _Host(diagnosis, file.run.topology)

    def _build_sheet(self, evidence: Evidence) -> Sheet:
        """Compare all results with the specification."""
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

    def _build_table(self) -> HostTable:
        """Build the table of hosts, with their own paths and those between them."""
        judged = {host: diagnosis.judged for host, diagnosis in self.found.items()}
        lost = dict.fromkeys(self.found, "") | self.lost
        if self.there is not None:
            lost |= {host: why for host, why in self.there.said.left_out.items() if not lost.get(host)}
            between = [*summarize_hosts(self.there.pairs).items(), *summarize_rails(self.there.rails).items()]
            for host, paths in between:
                diagnosis = judged.get(host)
                if isinstance(diagnosis, Diagnosis):
                    judged[host] = replace(diagnosis, paths=(*diagnosis.paths, *paths))
                elif host not in self.lost:  # it was not screened
                    judged[host] = Diagnosis(points=(), paths=paths, findings=(), exit_status=EXIT_OK)
        return host_table(judged, compare=_may_compare(self.screen.hosts), troubles=lost)

    def _write_page(self, table: HostTable) -> None:
        folder = self.screen.output

        def link_of(host: str) -> str:
            if isinstance(self.found[host].judged, str):
                return ""
            return quote(str((self.screen.host_folder(host) / _PAGE).relative_to(folder)))

        folder.mkdir(parents=True, exist_ok=True)
        write(str(folder / _PAGE), render_hosts_html(table, link_of, self.there, f"{FOLDER}/{_PAGE}"))

    def _status(self, table: HostTable) -> int:
        """Return the status of the worst host or pair. A host behind its siblings in several launches is slow."""
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


class HostsProgress:
    """Prints the end of each host's measurement, with the time left of all parts."""

    def __init__(self, screen: HostScreen, left: TimeLeft, seconds: float) -> None:
        self._screen, self._left, self._seconds = screen, left, seconds
        self._done = 0
        self._lock = Lock()

    def __call__(self, text: str) -> None:
        """Print the end of a host."""
        with self._lock:  # each host has a thread
            if self._done % self._screen.at_once == 0:  # hosts that measure at the same time end at about the same
                self._left.advance(self._seconds)
            self._done += 1
            note(f"{text}, {self._left}")


def _may_compare(hosts: PlannedHosts) -> bool:
    with contextlib.suppress(CannotJudge):
        return not hosts.reach.shares_cpus
    return True


def _require_reachable(hosts: Hosts) -> dict[str, str]:
    """Check the hosts, and return an empty failure for each. Raises CannotJudge if a host cannot be reached."""
    hosts.reach.check()
    return dict.fromkeys(hosts.names, "")


def show_plan(
    screen: HostScreen,
    proof: PlannedProof,
    directory: str,
    between: PlannedBetween,
    *,
    is_screened: bool = True,
    like: str = "this one",
) -> float:
    """Print the plan on standard error: for each host, estimated from the machine called `like`, and between the hosts.

    Returns its duration in seconds.
    """
    count = len(screen.hosts.names)
    rounds, seconds = -(-count // screen.at_once), 0.0
    note(f"plan: {count} hosts, by {screen.hosts.reach.name}")
    cluster = between.cluster
    like = "the cluster file's" if cluster else like
    if assumed := describe_unasked(between.hosts, like):
        note(f"  {assumed}")
    if is_screened:
        moved = sum(one.plan.moved_bytes for one in proof.plan if not one.plan.waived)
        order = "all at once" if rounds == 1 else f"{screen.at_once} at a time"
        seconds = rounds * proof.seconds
        note(f"  screen: each host measures itself, {order}, about {format_duration(proof.seconds)} by our plan;"
             f" it moves {format_size(moved)} within the host, and nothing between hosts")  # fmt: skip
        if directory:
            note(f"  each writes test files in its {directory}")
    said, more_s = between.plan()
    for line in said:
        note(f"  {line}")
    seconds += more_s
    note(f"  writes {screen.output}/{_PAGE}, a folder for each host in {screen.host_folder('x').parent}"
         + f", and {screen.output / FOLDER}" * bool(said))  # fmt: skip
    gpus = len((cluster.host if cluster else proof.topology).of_kind("gpu"))
    gpu_hours = count * gpus * seconds / 3600
    hours = f"{gpu_hours:,.{1 if gpu_hours < 10 else 0}f} GPU hours ({count} x {gpus} GPUs)" if gpus else "no GPU hours"
    note(f"  about {format_duration(seconds)} in total; {hours}, if the hosts are like {like}")
    return seconds


def _json_lines(table: HostTable, there: BetweenHostsResult | None) -> Iterator[str]:
    records: list[object] = [*table.columns, *table.hosts]
    if there is not None:
        records += [there.said, *there.pairs, *(there.collectives.paths if there.collectives else ())]
    yield from map(json_line, records)
