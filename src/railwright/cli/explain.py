"""`railwright explain FILE`: what a known tool printed, held against the machine it ran on; measures nothing."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from railwright.cli.machine_option import MachineCommand, cluster_options

if TYPE_CHECKING:
    from railwright.diagnosis.explain import Explained
    from railwright.diagnosis.foreign import Machine
    from railwright.results.readers.model import ForeignFile
    from railwright.results.readers.nccl_log_model import NcclLog
    from railwright.topology.model import Topology

_MOST_BYTES = 16 * 2**20
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""What a shell gives for `<(command)`: pipes that have a writer, unlike a named one that may never have."""
_OUR_OWN = b'{"record":"run"'
_MOST_SHAPES = 4
_MOST_RUNS = 100


@click.command("explain", cls=MachineCommand)
@click.argument("file", metavar="FILE")
@cluster_options
@click.option("--path", "between", default="", metavar="A:B", help="What a point-to-point table is about: gpu0:gpu0@1.")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw the rings of an NCCL log over the machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each run in the file.")
def COMMAND(  # noqa: N802 - see cli/prove.py; one option each
    file: str,
    machine: str | None,
    count: int | None,
    cluster_file: str | None,
    between: str,
    svg: Path | None,
    as_json: bool,
) -> int:
    """Is what a known tool printed normal for its machine, and if not, why? FILE may be - for standard input.

    Reads nccl-tests, OSU, perftest, nixlbench, gdsio, fio, HPL, NCCL's log (NCCL_DEBUG=INFO) and our own records.

    \b
    railwright explain all_reduce.txt --host hgx-h100 --count 16
    railwright explain nccl.log --host hgx-h100 nics=2 --count 2
    """  # noqa: D301
    from railwright.errors import UsageError
    from railwright.results.readers import nccl_log, registry

    given = machine is not None or cluster_file is not None
    if not given and (count is not None or between):
        option = "--count" if count is not None else "--path"
        raise UsageError(f"{option} is about a machine, and none was given", hint="give --host SHAPE as well")
    raw = b"" if _is_our_folder(file) else _read(file)
    if not raw or raw.lstrip().startswith(_OUR_OWN):
        _refuse_options(file, "our own records name their machine", "--host and --path", given)
        _refuse_options(file, "our own records have no rings", "--svg", svg is not None)
        return _show_our_own(file, as_json=as_json)
    text = _text(raw, file)
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
    from railwright.cli.machine_option import the_cluster
    from railwright.diagnosis.foreign import Machine

    return Machine(cluster=the_cluster(machine, count, cluster_file), path=between)


def _worst(statuses: list[int]) -> int:
    return 1 if 1 in statuses else max(statuses)


def _refuse_options(file: str, why: str, options: str, given: bool) -> None:
    from railwright.errors import UsageError

    if given:
        raise UsageError(f"{options} cannot be used with {_name(file)}: {why}", hint=f"leave {options} out")


def _show_our_own(file: str, *, as_json: bool) -> int:
    from railwright.benchmarks.registry import declarations_for
    from railwright.cli.measuring import show
    from railwright.diagnosis.diagnose import diagnose
    from railwright.errors import UsageError
    from railwright.results.store import load

    if file == "-":
        raise UsageError("our own records are not read from standard input", hint="give the file or its folder")
    found = load(Path(file))
    diagnosis = diagnose(found, declarations_for(found.run.schema_version))
    show(found, diagnosis, as_json=as_json)
    return diagnosis.exit_status


def _show_tables(text: str, machine: Machine | None, file: str, *, as_json: bool) -> list[int]:
    from railwright.report.explain_text import render_explained
    from railwright.report.records import json_line
    from railwright.results.readers import registry

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
    from railwright.diagnosis.explain import explain
    from railwright.errors import UsageError

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
    from railwright.errors import EXIT_UNJUDGED, RailwrightError
    from railwright.report.wording import visible

    try:
        return _show_tables(text, machine, file, as_json=as_json)
    except RailwrightError as error:
        click.echo(f"the table in the log could not be judged: {visible(error.message)}", err=True)
        return [EXIT_UNJUDGED]


def _ask_for_the_machine(found: ForeignFile, file: str) -> None:
    """The next command on standard error, with the shapes that have the table's GPU where it names one."""
    from railwright.diagnosis.foreign import shapes_for
    from railwright.report.wording import visible

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


def _show_log(log: NcclLog, host: Topology | None, svg: Path | None, *, as_json: bool) -> int:
    from railwright.diagnosis.nccl_contradictions import contradictions
    from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
    from railwright.report.nccl_svg import draw
    from railwright.report.nccl_text import render_nccl_log
    from railwright.report.records import json_line

    findings = contradictions(log, host)
    if svg is not None:
        try:
            svg.write_text(draw(log, host), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {svg}: {error.strerror}", hint="choose another file") from error
    if as_json:
        click.echo(json_line({"record": "nccl_log", "log": log, "findings": findings}))
    else:
        click.echo(render_nccl_log(log, findings, host))
    certainties = {finding.certainty for finding in findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    return EXIT_UNJUDGED if certainties else EXIT_OK


def _read(file: str) -> bytes:
    """The bytes, at most 16 MiB of them (a record of ours may go on). Raises UsageError."""
    from railwright.errors import UsageError

    hint = "give the file that the tool printed"
    try:
        raw = _from_standard_input() if file == "-" else _from_file(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {_name(file)}: {reason}", hint=hint) from error
    if not raw.strip():
        raise UsageError(f"{_name(file)} is empty", hint=hint)
    if len(raw) > _MOST_BYTES and not raw.lstrip().startswith(_OUR_OWN):
        raise UsageError(f"{_name(file)} is larger than 16 MiB", hint="give the part with the table or the start")
    return raw


def _from_standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError(None, "it is closed")
    return sys.stdin.buffer.read(_MOST_BYTES + 1)


def _from_file(file: str) -> bytes:
    """A regular file, or a pipe that the shell made; a named pipe could make us wait for ever."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(descriptor).st_mode
        is_pipe = stat.S_ISFIFO(mode) and file.startswith(_DESCRIPTORS)
        if not stat.S_ISREG(mode) and not is_pipe:
            raise OSError(None, "it is not a regular file; a command's output can be given as standard input (-)")
        os.set_blocking(descriptor, True)
        return stream.read(_MOST_BYTES + 1)


def _text(raw: bytes, file: str) -> str:
    """What the tool printed. Raises UsageError for what is no text."""
    from railwright.errors import UsageError

    name = _name(file)
    if raw.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        raise UsageError(f"{name} is compressed", hint="unpack it first, like: zcat FILE | railwright explain -")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "iconv -f UTF-16 -t UTF-8 FILE | railwright explain -"
        raise UsageError(f"{name} is UTF-16, which no tool prints by itself", hint=hint)
    if (place := raw.find(b"\0")) >= 0:
        raise UsageError(
            f"{name} is no text: byte {place} is a NUL", hint="give the text that the tool printed on the terminal"
        )
    return raw.decode("utf-8-sig", errors="replace")


def _is_our_folder(file: str) -> bool:
    """Whether it is the folder of a run of ours. Raises UsageError for another one."""
    from railwright.errors import UsageError
    from railwright.results.store import RESULTS_NAME

    try:
        if file == "-" or not Path(file).is_dir():
            return False
        if (Path(file) / RESULTS_NAME).exists():
            return True
    except (OSError, ValueError):
        return False
    hint = "give the file that the tool printed, or the folder of a run of ours"
    raise UsageError(f"{_name(file)} is a folder without {RESULTS_NAME}", hint=hint)


def _name(file: str) -> str:
    return "standard input" if file == "-" else repr(file[:200])
