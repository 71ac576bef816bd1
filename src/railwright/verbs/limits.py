"""`railwright limits`: derives the limit of each path and collective, with the reason, without measuring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, EXIT_UNJUDGED, UsageError
from railwright.options.completion import complete_collective
from railwright.options.machine import MachineCommand, cluster_options, is_device, normalize_path, resolve_cluster
from railwright.options.output import json_option, print_answer

if TYPE_CHECKING:
    from railwright.topology.cluster import Cluster


@click.command(cls=MachineCommand)
@click.argument("paths", nargs=-1, metavar="['SOURCE>TARGET']...")
@cluster_options
@click.option("--path", "between", multiple=True, metavar="A:B", help="A path between machines, like gpu0:gpu0@2.")
@click.option(
    "--collective",
    "-c",
    metavar="NAME",
    shell_complete=complete_collective,
    help="A collective over all GPUs: all_reduce, all_gather, all_to_all ...",
)
@click.option(
    "--algorithm", "-a", default="auto", show_default=True, help="ring, tree, nvls ..., or auto for the best."
)
@click.option("--size", metavar="BYTES", help="Also show the expected rate at this size, like 64K.")
@json_option("Print one JSON record for each path or collective.")
def limits(
    paths: tuple[str, ...],
    machine: str | None,
    count: int | None,
    gpus: int | None,
    cluster_file: str | None,
    between: tuple[str, ...],
    collective: str | None,
    algorithm: str,
    size: str | None,
    as_json: bool,
) -> int:
    """Show the limit of each path or of a collective, with its bottleneck and its source.

    A path is two device ids, like 'gpu0>nic0' (quote the >); 'gpu0>gpu0' is a copy inside one GPU.
    Without a path, the important ones are shown.

    \b
    railwright limits 'gpu0>fabric0' --host hgx-h100 nics=2 nic-rate=200Gb/s
    railwright limits --host hgx-h100 nics=4 --count 16 --collective all_to_all
    railwright limits --host gb200-nvl72 --gpus 72 --collective all_reduce
    railwright limits --host aws-p5 --count 3 --path gpu0:gpu0@2
    """
    machine, paths = _split_words(machine, tuple(normalize_path(word, ">") for word in paths))
    between = tuple(normalize_path(text, ":") for text in between)
    if collective is None and (algorithm != "auto" or size is not None):
        raise UsageError("--algorithm and --size require --collective", hint="add --collective all_reduce")
    if paths and (between or collective):
        raise UsageError("'SOURCE>TARGET' excludes --path and --collective", hint="give --path or --collective alone")
    if between and collective is not None:
        raise UsageError("--path and --collective exclude each other", hint="give one of them")
    if not algorithm.strip():
        raise UsageError(
            "--algorithm must be a name, got an empty one",
            hint="give ring, tree, nvls ..., or leave it out for the best",
        )
    cluster = resolve_cluster(machine, count, cluster_file, gpus)
    if collective is not None:
        return _show_collective(cluster, collective, algorithm, size, as_json=as_json)
    return _show_paths(cluster, paths, between, as_json=as_json)


def _split_words(machine: str | None, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Split the words into machine and paths, for an unquoted name of several words: `limits GB200 NVL72 nics=2`.

    Every path contains a `>`, so that other words belong to the name, unless they are devices.
    """
    paths = tuple(word for word in words if ">" in word or is_device(word))
    if len(paths) == len(words):
        return machine, words
    name_words = [*(machine or "").split(), *(word for word in words if word not in paths)]
    return " ".join(sorted(name_words, key=lambda word: "=" in word)), paths


def _show_collective(cluster: Cluster, collective: str, algorithm: str, size: str | None, *, as_json: bool) -> int:
    import msgspec

    from railwright.expected.collective_rows import collective_row
    from railwright.report.formats.json_line import json_line
    from railwright.report.text.collectives import render_collective
    from railwright.units import format_size, parse_size

    if size is not None and size.upper().endswith("B") and size[-2:-1].upper() in "KMGT" and parse_size(size) > 1:
        click.echo(
            f"note: {size} is read as {format_size(parse_size(size))}, in powers of 1024 as in nccl-tests", err=True
        )
    found = collective_row(cluster, collective, algorithm, parse_size(size) if size is not None else None)
    # `omit_defaults` would leave out an empty list that readers look for.
    record = {**msgspec.to_builtins(found), "software_limits": list(found.software_limits)}
    click.echo(json_line(record) if as_json else render_collective(found))
    return EXIT_OK if found.algbw_bytes_per_s.expected_low is not None else EXIT_UNJUDGED


def _show_paths(cluster: Cluster, paths: tuple[str, ...], between: tuple[str, ...], *, as_json: bool) -> int:
    from railwright.expected.machine import Machine
    from railwright.expected.path_rows import list_host_rows, list_network_rows
    from railwright.limits.limit import Limit
    from railwright.report.text.limits import render_limits
    from railwright.topology.routes import list_main_paths

    machine = Machine(cluster=cluster)
    if between:
        rows = tuple(row for text in between for row in list_network_rows(machine, text))
    else:
        rows = list_host_rows(machine, paths or list_main_paths(cluster.host))
    print_answer(rows, lambda: render_limits(cluster, rows), as_json=as_json)
    return EXIT_OK if rows and all(isinstance(row.limit, Limit) for row in rows) else EXIT_UNJUDGED
