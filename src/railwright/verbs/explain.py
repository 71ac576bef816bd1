"""What a known tool printed, held against the machine that it ran on."""

from __future__ import annotations

import shlex

import click

from railwright.busbw import OPERATIONS
from railwright.checks.finding import Finding
from railwright.errors import UsageError, unknown_name
from railwright.expected.machine import Machine
from railwright.explain.paste import Paste, read_paste
from railwright.explain.rows import shapes_for
from railwright.report.formats.json_line import json_line
from railwright.report.text.explain import render_explained
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.nccl_log.model import NcclLog
from railwright.results.readers.pasted.long_text import LongText, read_long
from railwright.terminal import visible
from railwright.topology.devices import Topology
from railwright.verbs.cluster import spelt_path, the_cluster
from railwright.verbs.given_file import is_our_folder, is_our_own, name_of, pieces_of, read, text_of
from railwright.verbs.write import write

_MOST_SHAPES = 4


def explain_file(
    files: tuple[str, ...],
    machine: str | None,
    count: int | None,
    cluster_file: str | None,
    beside: str | None,
    between: str,
    collective: str,
    svg: str | None,
    as_json: bool,
) -> int:
    """Print what the files say of their machine; the exit status. Raises UsageError."""
    if collective and collective not in OPERATIONS:
        raise unknown_name("collective", collective, OPERATIONS)
    given = machine is not None or cluster_file is not None or beside is not None
    if not given and (count is not None or between):
        option = "--count" if count is not None else "--path"
        raise UsageError(f"{option} is about a machine, and none was given", hint="give --host SHAPE as well")
    file = files[0] if files else "-"
    if len(files) < 2:
        raw = b"" if is_our_folder(file) else read(file)
        if isinstance(raw, bytes) and (not raw or is_our_own(raw)):
            _refuse_options(file, "our own records name their machine", "--host, --beside and --path", given)
            _refuse_options(file, "our own records have no rings", "--svg", svg is not None)
            return _show_our_own(file, as_json=as_json)
        text = text_of(raw, file) if isinstance(raw, bytes) else read_long([(name_of(file), raw)])
    else:
        text = _of_one_run(files)
    place = _place(machine, count, cluster_file, beside, between) if given else None
    found = read_paste(text, place, collective)
    if found.log is None:
        _refuse_options(file, "this is no NCCL log, which has the rings", "--svg", svg is not None)
    else:
        _show_log(found.log, found.findings, place.cluster.host if place else None, svg, as_json=as_json)
    _show_tables(found, file, as_json=as_json)
    return found.status


def _of_one_run(files: tuple[str, ...]) -> LongText:
    """Several files: the logs of a run's processes, and its tables. Raises UsageError for what cannot be together."""
    for file in files:
        if file == "-" or is_our_folder(file):
            what = "standard input" if file == "-" else f"{name_of(file)}, a run of ours,"
            raise UsageError(f"{what} cannot be read together with other files", hint="give it alone")
    return read_long([(name_of(file), pieces_of(file)) for file in files])


def _place(
    machine: str | None, count: int | None, cluster_file: str | None, beside: str | None, between: str
) -> Machine:
    if beside is not None:
        if machine is not None or cluster_file is not None or count is not None:
            raise UsageError(
                "--beside names the machine, which is one host", hint="leave --host, --count and --cluster out"
            )
        from railwright.verbs.explain_own import machine_of_run

        return machine_of_run(beside, spelt_path(between, ":"))
    return Machine(cluster=the_cluster(machine, count, cluster_file), path=spelt_path(between, ":"))


def _refuse_options(file: str, why: str, options: str, given: bool) -> None:
    if given:
        raise UsageError(f"{options} cannot be used with {name_of(file)}: {why}", hint=f"leave {options} out")


def _show_our_own(file: str, *, as_json: bool) -> int:
    if file == "-":
        raise UsageError("our own records are not read from standard input", hint="give the file or its folder")
    from railwright.verbs.explain_own import show_our_own

    return show_our_own(file, as_json=as_json)


def _show_tables(found: Paste, file: str, *, as_json: bool) -> None:
    for number, explained in enumerate(found.tables):
        if number and not as_json:
            click.echo()
        click.echo(json_line(explained) if as_json else render_explained(explained))
    if found.files and not any(one.machine for one in found.tables):
        _ask_for_the_machine(found.files[0], file)
    if found.refused is not None:
        click.echo(f"the table in the log could not be judged: {visible(found.refused.message)}", err=True)


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


def _show_log(
    log: NcclLog, findings: tuple[Finding, ...], host: Topology | None, svg: str | None, *, as_json: bool
) -> None:
    if svg is not None:
        from railwright.report.pictures.nccl import draw

        write(svg, draw(log, host))
    if as_json:
        click.echo(json_line({"record": "nccl_log", "log": log, "findings": findings}))
    else:
        from railwright.report.text.nccl import render_nccl_log

        click.echo(render_nccl_log(log, findings, host))
