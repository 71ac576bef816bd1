"""`prove --hosts`: every host proves itself, then pairs and collectives between them; one page holds all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
from msgspec.structs import replace

from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS
from railwright.diagnosis.acceptance.agreement import Spec
from railwright.diagnosis.acceptance.lines import Sheet
from railwright.diagnosis.fleet.between_hosts import paths_of_hosts, unless_shared
from railwright.diagnosis.fleet.host_table import HostTable, host_table
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.diagnosis.verdicts.policy import Requirement
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, CannotJudge, RailwrightError
from railwright.launch.hosts import Hosts, PlannedHosts
from railwright.report.formats.json_line import json_line
from railwright.report.pages.hosts import render_hosts_html
from railwright.report.pages.run import render_html
from railwright.report.text.between_hosts import Found
from railwright.report.text.hosts import lines
from railwright.results.store import load
from railwright.run.exclusive import measuring_alone
from railwright.run.host_screen import HostScreen
from railwright.run.plan import PlannedProof
from railwright.run.screened import RESULTS
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load as load_machine
from railwright.units import format_duration, format_size
from railwright.verbs.acceptance import Evidence, the_spec, told
from railwright.verbs.between_hosts import (
    FOLDER,
    PAIRS_FILE,
    Between,
    chosen_collectives,
    collectives,
    part_options,
)
from railwright.verbs.cluster import the_cluster
from railwright.verbs.judged import note, the_view
from railwright.verbs.measuring import parse
from railwright.verbs.requirements import the_requirements
from railwright.verbs.write import write

_PAGE, _OF_HOST = "report.html", "report.html"
_TIMES_PLAN, _BESIDE_S = 5.0, 300.0
SCREEN, PAIRS, COLLECTIVES = "screen", "pairs", "collectives"
PARTS = (SCREEN, PAIRS, COLLECTIVES)


@dataclass(frozen=True)
class Asked:
    """What of the words of `prove` is about hosts."""

    parts: tuple[str, ...]
    benchmarks: tuple[str, ...]
    """Of each host and of all together; none: those of `prove`, and all collectives."""
    load: float
    cluster: str | None
    resume: bool


class _Host(NamedTuple):
    """What one host sent."""

    judged: Diagnosis | str
    topology: Topology | None = None


def prove_hosts(
    hosts: Hosts,
    *,
    asked: Asked,
    output: str,
    options: tuple[str, ...],
    directory: str,
    launches: int,
    silence: float,
    mpirun: str | None,
    force: bool,
    dry_run: bool,
    require: tuple[str, ...],
    accept: str | None,
    as_json: bool,
) -> int:
    """Show the plan, let all hosts measure themselves and then each other, and report; the exit status."""
    required, spec = the_requirements(require), the_spec(accept, require)
    of_hosts, of_all = part_options(options)
    alone, parts = _chosen(asked)
    names = alone or tuple(benchmark.name for benchmark in BENCHMARKS)
    given = of_hosts if alone else (f"directory={directory}", *of_hosts)
    proof = PlannedProof(load_machine(None), parse(names, given), launches)
    words = ["run", *names, "--alone"] if alone else ["prove", "--directory", directory]
    words += ["--launches", str(launches), "--silence", f"{silence:g}"]
    words += [word for text in of_hosts for word in ("-o", text)]
    words += (["--mpirun", mpirun] if mpirun else []) + ["--force"] * force
    folder = Path(output)
    evidence = Evidence(spec, folder) if spec is not None else None
    longest_s = _TIMES_PLAN * proof.seconds + _BESIDE_S
    screen = HostScreen(hosts, words, folder, silence + proof.seconds, longest_s, note, keep=asked.resume)
    cluster = the_cluster(None, None, asked.cluster) if asked.cluster is not None else None
    with contextlib.suppress(CannotJudge):  # a host that cannot be reached says so itself, and costs itself alone
        hosts.reach.check()
    chosen = chosen_collectives(asked.benchmarks, of_all)
    between = Between(hosts, folder, parts - {SCREEN}, asked.load, cluster, chosen, launches, mpirun, silence,
                      proof.topology)  # fmt: skip
    show_plan(screen, proof, "" if alone else directory, between, is_screened=SCREEN in parts)
    if dry_run:
        return EXIT_OK
    with measuring_alone(force):
        troubles = screen.run(hosts.reach.agent) if SCREEN in parts else _reachable(hosts)
        found = {host: _judged(screen, host, why, required, evidence) for host, why in troubles.items()}
        machines = {host: one.topology for host, one in found.items() if one.topology is not None}
        left_out = {host: why for host, why in troubles.items() if why}
        there = between.run(machines, left_out, resume=asked.resume) if between.parts else None
    return _report(screen, found, troubles, there, launches, evidence, as_json=as_json)


def _chosen(asked: Asked) -> tuple[tuple[str, ...], frozenset[str]]:
    """The benchmarks that were asked of each host by itself, and the parts that are left where only some were."""
    together = {one.name for one in collectives()}
    alone = tuple(name for name in asked.benchmarks if name not in together)
    parts = frozenset(asked.parts)
    if asked.benchmarks:
        parts -= {part for part, named in ((SCREEN, alone), (COLLECTIVES, together & {*asked.benchmarks})) if not named}
    return alone, parts


def report_hosts(
    screen: HostScreen,
    troubles: Mapping[str, str],
    required: tuple[Requirement, ...],
    spec: Spec | None,
    *,
    launches: int,
    as_json: bool,
) -> int:
    """Judge what hosts have sent of themselves, write the pages, and print the table; the exit status."""
    evidence = Evidence(spec, screen.output) if spec is not None else None
    found = {host: _judged(screen, host, why, required, evidence) for host, why in troubles.items()}
    return _report(screen, found, troubles, None, launches, evidence, as_json=as_json)


def _report(
    screen: HostScreen,
    found: Mapping[str, _Host],
    troubles: Mapping[str, str],
    there: Found | None,
    launches: int,
    evidence: Evidence | None,
    *,
    as_json: bool,
) -> int:
    """Write the page, print what was found; the exit status, which is the sheet's where there is one."""
    table = _table(screen.hosts, found, troubles, there)
    _write_pages(screen, found, table, there)
    compared = _compares(screen.hosts)
    for line in _json(table, there) if as_json else lines(table, compared=compared, between=there):
        click.echo(line)
    if evidence is None:
        return _status(found, table, there, launches)
    sheet = _sheet(evidence, screen, found, troubles, there)
    for line in told(sheet, as_json=as_json):
        click.echo(line)
    return sheet.exit_status


def _sheet(
    evidence: Evidence,
    screen: HostScreen,
    found: Mapping[str, _Host],
    troubles: Mapping[str, str],
    there: Found | None,
) -> Sheet:
    """What hosts sent of themselves, and what was measured between them, against the specification."""
    lost = {host: why for host, why in troubles.items() if why}
    lost |= {host: one.judged for host, one in found.items() if isinstance(one.judged, str) and host not in lost}
    if there is not None:
        lost |= {host: why for host, why in there.said.left_out.items() if host not in lost}
        between = screen.output / FOLDER
        if there.pairs:
            evidence.add_pairs(between / PAIRS_FILE, there.pairs)
        if there.collectives is not None:
            evidence.add(between / RESULTS, load(between), there.collectives)
    sheet = evidence.sheet([host for host in found if host not in lost], lost)
    note(f"wrote {evidence.page}")
    return sheet


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
    note(f"  writes {screen.output}/{_PAGE}, a folder for each host in {screen.folder_of('x').parent}"
         + f", and {screen.output / FOLDER}" * bool(said))  # fmt: skip
    gpus = len((cluster.host if cluster else proof.topology).of_kind("gpu"))
    hours = f"{count * gpus * seconds / 3600:.2g} GPU hours ({count} x {gpus} GPUs)" if gpus else "no GPU hours"
    like = "the cluster file's" if cluster else "this one"
    note(f"  all together about {format_duration(seconds)}; {hours}, if the hosts are like {like}")


def _judged(
    screen: HostScreen, host: str, why: str, required: tuple[Requirement, ...], evidence: Evidence | None
) -> _Host:
    """A host's records, judged, with its own report beside them; or why there is nothing to judge."""
    folder = screen.folder_of(host)
    if not (folder / RESULTS).exists():
        return _Host(why or "it was not screened")
    try:
        file = load(folder / RESULTS)
        diagnosis = unless_shared(diagnose(file, DECLARATIONS, required), compare=_compares(screen.hosts))
        write(str(folder / _OF_HOST), render_html(the_view(file, diagnosis)))
        if evidence is not None:
            evidence.add(folder / RESULTS, file, diagnosis, host)
    except RailwrightError as error:  # what another host sent may be anything
        return _Host(why or error.message)
    return _Host(diagnosis, file.run.topology)


def _table(
    hosts: PlannedHosts, found: Mapping[str, _Host], troubles: Mapping[str, str], there: Found | None
) -> HostTable:
    """The hosts with their own paths, and with what each sent to the others and received."""
    judged = {host: one.judged for host, one in found.items()}
    lost = dict(troubles)
    if there is not None:
        lost |= {host: why for host, why in there.said.left_out.items() if not lost.get(host)}
        for host, paths in paths_of_hosts(there.pairs).items():
            one = judged.get(host)
            if isinstance(one, Diagnosis):
                judged[host] = replace(one, paths=(*one.paths, *paths))
            elif not troubles.get(host):  # it was not screened
                judged[host] = Diagnosis(points=(), paths=paths, findings=(), exit_status=EXIT_OK)
    return host_table(judged, compare=_compares(hosts), troubles=lost)


def _write_pages(screen: HostScreen, found: Mapping[str, _Host], table: HostTable, there: Found | None) -> None:
    folder = screen.output

    def link_of(host: str) -> str:
        if isinstance(found[host].judged, str):
            return ""
        return quote(str((screen.folder_of(host) / _OF_HOST).relative_to(folder)))

    folder.mkdir(parents=True, exist_ok=True)
    write(str(folder / _PAGE), render_hosts_html(table, link_of, there, f"{FOLDER}/{_OF_HOST}"))


def _json(table: HostTable, there: Found | None) -> Iterator[str]:
    records: list[object] = [*table.columns, *table.hosts]
    if there is not None:
        records += [there.said, *there.pairs, *(there.collectives.paths if there.collectives else ())]
    yield from map(json_line, records)


def _status(found: Mapping[str, _Host], table: HostTable, there: Found | None, launches: int) -> int:
    """That of the worst host or pair; a host that is behind its siblings in several launches is slow."""
    statuses = [_status_of(one.judged) for one in found.values()]
    statuses += [EXIT_UNJUDGED for host in table.hosts if host.trouble]
    if launches > 1 and any(host.behind for host in table.hosts):
        statuses.append(EXIT_SLOW)
    if there is not None:
        if there.said.is_bad or any(one.is_slow for one in there.pairs):
            statuses.append(EXIT_SLOW)
        if not there.said.is_whole or any(one.verdict.state != "ok" for one in there.pairs):
            statuses.append(EXIT_UNJUDGED)
        statuses += [there.collectives.exit_status] if there.collectives else []
    order = (EXIT_SLOW, EXIT_UNJUDGED, EXIT_OK)
    return next((status for status in order if status in statuses), EXIT_UNJUDGED)


def _status_of(judged: Diagnosis | str) -> int:
    return judged.exit_status if isinstance(judged, Diagnosis) else EXIT_UNJUDGED
