"""`railwright explain FILE`: what a known tool printed, held against the machine it ran on; measures nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from railwright.cli.machine_option import MachineCommand, cluster_options

if TYPE_CHECKING:
    from railwright.diagnosis.foreign import Machine
    from railwright.results.readers.nccl_log_model import NcclLog
    from railwright.topology.model import Topology

_MOST_BYTES = 16 * 2**20


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
    r"""Is what a known tool printed normal for its machine, and if not, why? FILE may be - for standard input.

    Reads nccl-tests, OSU, perftest, nixlbench, gdsio, fio, HPL, NCCL's log (NCCL_DEBUG=INFO) and our own records.

    \b
    railwright explain all_reduce.txt --host hgx-h100 --count 16
    railwright explain nccl.log --host hgx-h100 nics=2 --count 2
    """
    from railwright.cli.machine_option import the_cluster
    from railwright.diagnosis.foreign import Machine
    from railwright.results.readers import nccl_log, registry

    if _is_our_own(file):
        return _show_our_own(Path(file), as_json=as_json)
    text = _read(file)
    given = machine is not None or cluster_file is not None
    cluster = the_cluster(machine, count, cluster_file) if given else None
    place = Machine(cluster=cluster, path=between) if cluster is not None else None
    log = nccl_log.read(text) if nccl_log.recognises(text) else None
    statuses = []
    if log is not None:
        statuses.append(_show_log(log, cluster.host if cluster else None, svg, as_json=as_json))
    if log is None or any(reader.recognises(text) for reader in registry.READERS):
        statuses += _show_tables(text, place, as_json=as_json)
    return 1 if 1 in statuses else max(statuses)


def _show_our_own(file: Path, *, as_json: bool) -> int:
    from railwright.cli.measuring import show
    from railwright.diagnosis.diagnose import diagnose
    from railwright.results.store import load

    found = load(file)
    diagnosis = diagnose(found)
    show(found, diagnosis, as_json=as_json)
    return diagnosis.exit_status


def _show_tables(text: str, machine: Machine | None, *, as_json: bool) -> list[int]:
    import msgspec

    from railwright.diagnosis.explain import explain
    from railwright.report.explain_text import render_explained
    from railwright.results.readers import registry

    statuses = []
    for found in registry.read(text):
        explained = explain(found, machine)
        statuses.append(explained.status)
        click.echo(msgspec.json.encode(explained).decode() if as_json else render_explained(explained))
        if not as_json:
            click.echo()
    if machine is None:
        click.echo("no machine was given, so nothing is judged: add --host SHAPE [--count K]", err=True)
    return statuses


def _show_log(log: NcclLog, host: Topology | None, svg: Path | None, *, as_json: bool) -> int:
    import msgspec

    from railwright.diagnosis.nccl_contradictions import contradictions
    from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
    from railwright.report.nccl_svg import draw
    from railwright.report.nccl_text import render_nccl_log

    findings = contradictions(log, host)
    if svg is not None:
        try:
            svg.write_text(draw(log, host), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {svg}: {error.strerror}", hint="choose another file") from error
    if as_json:
        record = {"record": "nccl_log", "log": log, "findings": findings}
        click.echo(msgspec.json.encode(record).decode())
    else:
        click.echo(render_nccl_log(log, findings, host))
    certainties = {finding.certainty for finding in findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    return EXIT_UNJUDGED if certainties else EXIT_OK


def _read(file: str) -> str:
    """The text, at most 16 MiB of it. Raises UsageError."""
    from railwright.errors import UsageError

    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {file[:200]!r}: {reason}", hint="give the file that the tool printed") from error
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{file[:200]!r} is larger than 16 MiB", hint="give the part with the table or the start")
    if not raw.strip():
        raise UsageError(f"{file[:200]!r} is empty", hint="give the file that the tool printed")
    return raw.decode("utf-8", errors="replace")


def _is_our_own(file: str) -> bool:
    path = Path(file)
    try:
        if path.is_dir():
            return True
        with path.open("rb") as stream:
            return stream.read(64).lstrip().startswith(b'{"record":"run"')
    except (OSError, ValueError):
        return False
