"""What each path and collective can reach, and why."""

from __future__ import annotations

import click
import msgspec

from railwright.errors import EXIT_OK, EXIT_UNJUDGED, UsageError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import rows_between, rows_inside
from railwright.limits.limit import Limit
from railwright.report.text.collectives import render_collective
from railwright.report.text.limits import render_limits
from railwright.topology.cluster import Cluster
from railwright.topology.routes import paths_that_matter
from railwright.topology.shapes import canonical_name
from railwright.units import format_size, parse_size
from railwright.verbs.cluster import spelt_path, the_cluster


def limits(
    paths: tuple[str, ...],
    machine: str | None,
    count: int | None,
    cluster_file: str | None,
    between: tuple[str, ...],
    collective: str | None,
    algorithm: str,
    size: str | None,
    as_json: bool,
) -> int:
    """Print the limits that were asked for; the exit status. Raises UsageError for options that exclude each other."""
    machine, paths = _named(machine, tuple(spelt_path(word, ">") for word in paths))
    between = tuple(spelt_path(text, ":") for text in between)
    if collective is None and (algorithm != "auto" or size is not None):
        raise UsageError("--algorithm and --size belong to a collective", hint="give --collective all_reduce")
    if paths and (between or collective):
        raise UsageError("'SOURCE>TARGET' is a path inside one machine", hint="give --path or --collective alone")
    if between and collective is not None:
        raise UsageError("--path and --collective are two questions", hint="give one of them")
    if not algorithm.strip():
        raise UsageError("--algorithm is empty", hint="give ring, tree, nvls ..., or leave it out for the best")
    cluster = the_cluster(machine, count, cluster_file)
    if collective is not None:
        return _collective(cluster, collective, algorithm, size, as_json=as_json)
    return _paths(cluster, paths, between, as_json=as_json)


def _named(machine: str | None, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The machine and the paths, where a name of several words came without quotes: `limits GB200 NVL72 nics=2`.

    No path is without a `>`, so that such words are no paths; they are left as they are where they name no shape.
    """
    said = [*(machine or "").split(), *(word for word in words if ">" not in word)]
    if canonical_name(" ".join(word for word in said if "=" not in word)) is None:
        return machine, words
    return " ".join(sorted(said, key=lambda word: "=" in word)), tuple(word for word in words if ">" in word)


def _collective(cluster: Cluster, collective: str, algorithm: str, size: str | None, *, as_json: bool) -> int:
    if size is not None and size.upper().endswith("B") and size[-2:-1].upper() in "KMGT" and parse_size(size) > 1:
        click.echo(
            f"note: {size} is read as {format_size(parse_size(size))}, powers of 1024 as NCCL's tests have", err=True
        )
    found = collective_row(cluster, collective, algorithm, parse_size(size) if size is not None else None)
    # `omit_defaults` would leave out an empty list that readers look for.
    record = {**msgspec.to_builtins(found), "software_limits": list(found.software_limits)}
    click.echo(msgspec.json.encode(record).decode() if as_json else render_collective(found))
    return EXIT_OK if found.algbw_bytes_per_s.expected_low is not None else EXIT_UNJUDGED


def _paths(cluster: Cluster, paths: tuple[str, ...], between: tuple[str, ...], *, as_json: bool) -> int:
    machine = Machine(cluster=cluster)
    if between:
        rows = tuple(row for text in between for row in rows_between(machine, text))
    else:
        rows = rows_inside(machine, paths or paths_that_matter(cluster.host))
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    else:
        click.echo(render_limits(cluster.host, rows))
    return EXIT_OK if rows and all(isinstance(row.limit, Limit) for row in rows) else EXIT_UNJUDGED
