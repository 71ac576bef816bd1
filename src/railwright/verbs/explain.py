"""What a known tool printed, held against the machine that it ran on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from railwright.benchmarks.registry import declarations_for
from railwright.diagnosis.diagnose import diagnose
from railwright.diagnosis.explain import Explained, explain
from railwright.diagnosis.foreign import Machine, shapes_for
from railwright.diagnosis.nccl_contradictions import contradictions
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, RailwrightError, UsageError
from railwright.report.explain_text import render_explained
from railwright.report.nccl_svg import draw
from railwright.report.nccl_text import render_nccl_log
from railwright.report.records import json_line
from railwright.results.readers import nccl_log, registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.nccl_log_model import NcclLog
from railwright.results.store import load
from railwright.terminal import visible
from railwright.topology.devices import Topology
from railwright.verbs.cluster import the_cluster
from railwright.verbs.given_file import OUR_OWN, is_our_folder, name_of, read, text_of
from railwright.verbs.judged import show
from railwright.verbs.write import write

_MOST_SHAPES = 4
_MOST_RUNS = 100


def explain_file(
    file: str,
    machine: str | None,
    count: int | None,
    cluster_file: str | None,
    between: str,
    svg: str | None,
    as_json: bool,
) -> int:
    """Print what the file says of its machine; the exit status. Raises UsageError."""
    given = machine is not None or cluster_file is not None
    if not given and (count is not None or between):
        option = "--count" if count is not None else "--path"
        raise UsageError(f"{option} is about a machine, and none was given", hint="give --host SHAPE as well")
    raw = b"" if is_our_folder(file) else read(file)
    if not raw or raw.lstrip().startswith(OUR_OWN):
        _refuse_options(file, "our own records name their machine", "--host and --path", given)
        _refuse_options(file, "our own records have no rings", "--svg", svg is not None)
        return _show_our_own(file, as_json=as_json)
    text = text_of(raw, file)
    place = _place(machine, count, cluster_file, between) if given else None
    is_log = nccl_log.recognises(text)
    if not is_log:
        registry.recognise(text)  # says what this is not
        _refuse_options(file, "this is no NCCL log, which has the rings", "--svg", svg is not None)
        return _worst(_show_tables(text, place, file, as_json=as_json))
    host = place.cluster.host if place else None
    statuses = [_show_log(nccl_log.read(text), host, svg, as_json=as_json)]
    if any(reader.recognises(text) for reader in registry.READERS):
        statuses += _show_tables_of_log(text, place, file, as_json=as_json)
    elif between:
        raise UsageError("--path is for a point-to-point table, and the log has none", hint="leave --path out")
    return _worst(statuses)


def _place(machine: str | None, count: int | None, cluster_file: str | None, between: str) -> Machine:
    return Machine(cluster=the_cluster(machine, count, cluster_file), path=between)


def _worst(statuses: list[int]) -> int:
    return 1 if 1 in statuses else max(statuses)


def _refuse_options(file: str, why: str, options: str, given: bool) -> None:
    if given:
        raise UsageError(f"{options} cannot be used with {name_of(file)}: {why}", hint=f"leave {options} out")


def _show_our_own(file: str, *, as_json: bool) -> int:
    if file == "-":
        raise UsageError("our own records are not read from standard input", hint="give the file or its folder")
    found = load(Path(file))
    diagnosis = diagnose(found, declarations_for(found.run.schema_version))
    show(found, diagnosis, as_json=as_json)
    return diagnosis.exit_status


def _show_tables(text: str, machine: Machine | None, file: str, *, as_json: bool) -> list[int]:
    statuses = []
    tables = registry.read(text)
    for number, explained in enumerate(_explained(tables, machine)):
        statuses.append(explained.status)
        if number and not as_json:
            click.echo()
        click.echo(json_line(explained) if as_json else render_explained(explained))
    if machine is None:
        _ask_for_the_machine(tables[0], file)
    return statuses


def _explained(tables: tuple[ForeignFile, ...], machine: Machine | None) -> list[Explained]:
    """Every run. Raises UsageError for too many, and what a run raises with its number among several."""
    if len(tables) > _MOST_RUNS:
        raise UsageError(f"{len(tables)} runs in one file, at most {_MOST_RUNS} are read", hint="give a part of it")
    found = []
    for number, table in enumerate(tables, 1):
        try:
            found.append(explain(table, machine))
        except UsageError as error:
            if len(tables) == 1:
                raise
            raise UsageError(f"run {number} of {len(tables)}: {error.message}", hint=error.hint) from error
    return found


def _show_tables_of_log(text: str, machine: Machine | None, file: str, *, as_json: bool) -> list[int]:
    """A table that cannot be read or judged takes nothing from what the log said, and is no success either."""
    try:
        return _show_tables(text, machine, file, as_json=as_json)
    except RailwrightError as error:
        click.echo(f"the table in the log could not be judged: {visible(error.message)}", err=True)
        return [EXIT_UNJUDGED]


def _ask_for_the_machine(found: ForeignFile, file: str) -> None:
    """The next command on standard error, with the shapes that have the table's GPU where it names one."""
    shapes = shapes_for(found)
    count = f" --count {found.hosts}" if found.hosts and found.hosts > 1 else " [--count HOSTS]"
    if found.hosts == 1:
        count = ""
    click.echo("no machine was given, so no row is judged", err=True)
    name = shlex.quote(visible(file))
    click.echo(f"hint: railwright explain {name} --host {shapes[0] if shapes else 'SHAPE'}{count}", err=True)
    if shapes[1:]:
        more = "" if len(shapes) <= _MOST_SHAPES else " ..."
        click.echo(f"      the same GPU is in {', '.join(shapes[1:_MOST_SHAPES])}{more}", err=True)
    elif not shapes:
        click.echo("      shapes are like hgx-h100, aws-p5, gh200 or pcie-8gpu, with changes like nics=2", err=True)


def _show_log(log: NcclLog, host: Topology | None, svg: str | None, *, as_json: bool) -> int:
    findings = contradictions(log, host)
    if svg is not None:
        write(svg, draw(log, host))
    if as_json:
        click.echo(json_line({"record": "nccl_log", "log": log, "findings": findings}))
    else:
        click.echo(render_nccl_log(log, findings, host))
    certainties = {finding.certainty for finding in findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    return EXIT_UNJUDGED if certainties else EXIT_OK
