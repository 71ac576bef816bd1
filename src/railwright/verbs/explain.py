"""`railwright explain FILE`: judges the output of a known tool against its machine, without measuring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from railwright.errors import UsageError, unknown_name
from railwright.options.completion import complete_collective
from railwright.options.machine import MachineCommand, cluster_options, normalize_path, resolve_cluster
from railwright.options.output import json_option, print_answer, write

if TYPE_CHECKING:
    from railwright.expected.machine import Machine
    from railwright.explain.paste import Paste
    from railwright.results.readers.foreign_file import ForeignFile
    from railwright.results.readers.pasted.long_text import LongText

_MAX_SHAPES = 4


@click.command(cls=MachineCommand)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@cluster_options
@click.option("--beside", metavar="RUN", help="A railwright run on the same host, for OSU tables within that host.")
@click.option(
    "--path", "between", default="", metavar="A:B", help="The devices of a point-to-point table: gpu0:gpu0@1."
)
@click.option(
    "--collective",
    default="",
    metavar="NAME",
    shell_complete=complete_collective,
    help="The collective of a table that does not name it: all_gather.",
)
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="The number of ranks of a table that does not print it."
)
@click.option("--svg", type=click.Path(), help="Draw the rings of an NCCL log on the machine's topology.")
@json_option("Print one JSON record for each run in the file.")
def explain(
    files: tuple[str, ...],
    machine: str | None,
    count: int | None,
    gpus: int | None,
    cluster_file: str | None,
    beside: str | None,
    between: str,
    collective: str,
    ranks: int | None,
    svg: str | None,
    as_json: bool,
) -> int:
    """Judge whether a known tool's output is normal for its machine, and why. Reads standard input by default.

    Reads nccl-tests, OSU, the Intel MPI Benchmarks, perftest, ucx_perftest, nixlbench, nvbandwidth, gdsio, fio,
    elbencho, IOR, mdtest, iperf3, STREAM, HPL, HPCG, NCCL's log (NCCL_DEBUG=INFO) and railwright's own records.

    \b
    railwright explain all_reduce.txt --host hgx-h100 --count 16
    railwright explain nccl.log --host hgx-h100 nics=2 --count 2
    railwright explain all_reduce.txt nccl.node*.log --host hgx-h100 --count 2
    railwright explain osu_bw.txt --beside out/results.jsonl
    """
    from railwright.busbw import OPERATIONS
    from railwright.explain.paste import read_paste

    if collective and collective not in OPERATIONS:
        raise unknown_name("collective", collective, OPERATIONS)
    given = machine is not None or cluster_file is not None or beside is not None
    if not given and (count is not None or gpus is not None or between):
        option = "--count" if count is not None else "--gpus" if gpus is not None else "--path"
        raise UsageError(f"{option} requires a machine", hint="add --host SHAPE")
    text = _read_text(files or ("-",))
    if text is None:
        file = files[0] if files else "-"
        _refuse_options(file, "railwright's records already name their machine", "--host, --beside and --path", given)
        _refuse_options(file, "railwright's records have no rings", "--svg", svg is not None)
        return _show_our_own(file, as_json=as_json)
    place = _make_machine(machine, count, gpus, cluster_file, beside, normalize_path(between, ":")) if given else None
    found = read_paste(text, place, collective, ranks)
    _show(found, place, files[0] if files else "-", svg, as_json=as_json)
    return found.status


def _read_text(files: tuple[str, ...]) -> str | LongText | None:
    """Read the output of tools from one or several files of a run. None for a railwright run.

    Raises UsageError for a file that cannot be read, and for a railwright run with other files.
    """
    from railwright.results.given_file import decode_text, format_name, is_our_folder, is_our_own, read, read_pieces
    from railwright.results.readers.pasted.long_text import read_long

    if len(files) > 1:
        for file in files:
            if file == "-" or is_our_folder(file):
                name = "standard input" if file == "-" else f"{format_name(file)}, a railwright run,"
                raise UsageError(f"{name} cannot be combined with other files", hint="give it alone")
        return read_long([(format_name(file), read_pieces(file)) for file in files])
    (file,) = files
    raw = None if is_our_folder(file) else read(file)
    if raw is None or (isinstance(raw, bytes) and is_our_own(raw)):
        return None
    return decode_text(raw, file) if isinstance(raw, bytes) else read_long([(format_name(file), raw)])


def _make_machine(
    machine: str | None, count: int | None, gpus: int | None, cluster_file: str | None, beside: str | None, path: str
) -> Machine:
    from railwright.expected.machine import Machine

    if beside is None:
        is_given = count is not None or gpus is not None or cluster_file is not None
        return Machine(cluster=resolve_cluster(machine, count, cluster_file, gpus), path=path, hosts_given=is_given)
    if any(option is not None for option in (machine, cluster_file, count, gpus)):
        raise UsageError("--beside excludes --host, --count, --gpus and --cluster", hint="leave them out")
    from pathlib import Path

    from railwright.benchmarks.registry import DECLARATIONS
    from railwright.expected.baselines import Baselines
    from railwright.results.store import load
    from railwright.topology.cluster import build_cluster

    run = load(Path(beside))
    return Machine(
        cluster=build_cluster(run.run.topology, 1),
        path=path,
        hosts_given=False,
        measured=Baselines(run.results, DECLARATIONS),
    )


def _refuse_options(file: str, why: str, options: str, given: bool) -> None:
    from railwright.results.given_file import format_name

    if given:
        raise UsageError(f"{options} cannot be used with {format_name(file)}: {why}", hint=f"leave {options} out")


def _show_our_own(file: str, *, as_json: bool) -> int:
    """Print a railwright run as `judge` does, and return the exit status."""
    if file == "-":
        raise UsageError("railwright's records cannot be read from standard input", hint="give the file or its folder")
    from pathlib import Path

    from railwright.benchmarks.registry import DECLARATIONS
    from railwright.diagnosis.runs.diagnose import diagnose
    from railwright.results.store import load
    from railwright.workflows.judged import show, view_file

    found = load(Path(file))
    diagnosis = diagnose(found, DECLARATIONS)
    show(view_file(found, diagnosis), as_json=as_json)
    return diagnosis.exit_status


def _show(found: Paste, place: Machine | None, file: str, svg: str | None, *, as_json: bool) -> None:
    """Print the errors, the log, the tables and what else was recognised. Raises UsageError for --svg without a log."""
    from functools import partial

    from railwright.report.text.explain import render_explained
    from railwright.terminal import escape

    if found.errors:
        from railwright.explain.noted import Noted
        from railwright.report.text.noted import render_errors

        record = Noted(tool="the job's errors", says=("the lines that tell why a job failed",), findings=found.errors)
        print_answer([record], lambda: render_errors(found.errors), as_json=as_json)
    if found.log is None:
        _refuse_options(file, "only an NCCL log has rings", "--svg", svg is not None)
    else:
        _show_log(found, place, svg, as_json=as_json)
    if found.files and not any(table.machine for table in found.tables):
        _suggest_machine(found.files[0], file)
    for number, explained in enumerate(found.tables):
        if number and not as_json:
            click.echo()
        print_answer([explained], partial(render_explained, explained), as_json=as_json)
    for noted in found.noted:
        from railwright.report.text.noted import render_noted

        print_answer([noted], partial(render_noted, noted), as_json=as_json)
    if not as_json:
        for sentence in found.unread:
            click.echo(escape(sentence))
    if found.refused is not None:
        click.echo(f"the table in the log could not be judged: {escape(found.refused.message)}", err=True)


def _suggest_machine(found: ForeignFile, file: str) -> None:
    """Print the next command on standard error, with the shapes that contain the GPU in the table."""
    import shlex

    from railwright.explain.suggested_shapes import list_shapes
    from railwright.terminal import escape

    shapes = list_shapes(found)
    count = f" --count {found.hosts}" if found.hosts and found.hosts > 1 else " [--count HOSTS]"
    if found.hosts == 1:
        count = ""
    click.echo("no row is judged, because no machine was given: which one is it?", err=True)
    name = shlex.quote(escape(file))
    click.echo(f"hint: railwright explain {name} --host {shapes[0] if shapes else 'SHAPE'}{count}", err=True)
    if shapes[1:]:
        more = "" if len(shapes) <= _MAX_SHAPES else " ..."
        click.echo(f"      the same GPU is in {', '.join(shapes[1:_MAX_SHAPES])}{more}", err=True)
    elif not shapes:
        click.echo("      shapes are like hgx-h100, aws-p5, gh200 or pcie-8gpu, with changes like nics=2", err=True)


def _show_log(found: Paste, place: Machine | None, svg: str | None, *, as_json: bool) -> None:
    from railwright.report.text.nccl import render_nccl_log

    host, log, findings = place.cluster.host if place else None, found.log, found.findings
    assert log is not None
    if svg is not None:
        from railwright.report.pictures.nccl import draw

        write(svg, draw(log, host))
    record = {"record": "nccl_log", "log": log, "findings": findings}
    print_answer([record], lambda: render_nccl_log(log, findings, host), as_json=as_json)
