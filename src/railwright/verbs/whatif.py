"""`railwright whatif`: compares designs of a cluster by limits, network parts and cost, without measuring."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, RailwrightError, UsageError
from railwright.options.completion import complete_collective, complete_shape
from railwright.options.machine import MachineCommand, derive_count, gpus_option, load_machine, refuse_both
from railwright.options.output import json_option, page_option, print_answer, write

if TYPE_CHECKING:
    from railwright.expected.designs import Design, Question
    from railwright.limits.bill import Prices
    from railwright.topology.cluster import Cluster

MAX_DESIGNS = 64
MAX_PRICE_FILE_BYTES = 2**16
_RADIX = (4, 1024)
_COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")


@click.command(cls=MachineCommand)
@click.option(
    "--from",
    "--host",
    "machines",
    multiple=True,
    metavar="SHAPE|FILE",
    shell_complete=complete_shape,
    help="A host with changes, like hgx-h100 nics=2. Once for each design.",
)
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=A,B,...",
    help="Vary a property of the host, like nics=2,4,8. Several options multiply.",
)
@click.option("--count", "-k", type=int, help="Number of hosts.")
@gpus_option
@click.option("--cluster", "cluster_file", metavar="FILE", help="A cluster file (TOML) that describes the fabric.")
@click.option(
    "--collective",
    "-c",
    "collectives",
    multiple=True,
    shell_complete=complete_collective,
    metavar="NAME",
    help="A collective. The first decides the Pareto mark. Default: all_reduce, all_gather, all_to_all.",
)
@click.option("--prices", "price_file", metavar="FILE", help="A price list (TOML), like examples/prices.toml.")
@click.option("--radix", type=int, help="Ports of a switch, where no cluster file gives the number of switches. [64]")
@click.option(
    "--optics",
    type=click.Choice(["all", "switches", "none"]),
    default="all",
    show_default=True,
    help="The cables that are optical: all, those between switches, or none.",
)
@page_option("Also write a page with the Pareto pictures.")
@json_option("Print one JSON record for each design.")
def whatif(
    machines: tuple[str, ...],
    vary: tuple[str, ...],
    count: int | None,
    gpus: int | None,
    cluster_file: str | None,
    collectives: tuple[str, ...],
    price_file: str | None,
    radix: int | None,
    optics: str,
    output: str | None,
    as_json: bool,
) -> int:
    """Compare designs of a cluster by their limits, network parts and cost.

    Without a cluster file the fabric is a non-blocking Clos of one to three tiers.

    \b
    railwright whatif --count 16 --host hgx-h100 --vary nics=2,4,8
    railwright whatif --count 16 --host hgx-h100 nics=4 --host hgx-h100 nics=8 nic-rate=200Gb/s
    railwright whatif --cluster cluster.toml --vary nics=2,4,8 --prices prices.toml --output designs.html
    """
    import msgspec

    from railwright.expected.designs import Question, compare_designs
    from railwright.report.pages.whatif import render_designs_html
    from railwright.report.text.whatif import render_designs

    clusters = _build_clusters(machines, vary, count, gpus, cluster_file, radix)
    prices = _load_prices(price_file) if price_file is not None else None
    given = {"collectives": tuple(dict.fromkeys(collectives or _COLLECTIVES)), "optics": optics, "prices": prices}
    question = msgspec.convert(given | ({"radix": radix} if radix is not None else {}), Question)
    designs = compare_designs([_evaluate(name, cluster, question) for name, cluster in clusters])
    if output is not None:
        write(output, render_designs_html(designs, question))
    print_answer(designs, lambda: render_designs(designs, question), as_json=as_json)
    return EXIT_OK


def _evaluate(name: str, cluster: Cluster, question: Question) -> Design:
    """Evaluate a design. The message of an error begins with the design's name."""
    from railwright.expected.designs import evaluate_design

    try:
        return evaluate_design(name, cluster, question)
    except RailwrightError as error:
        raise type(error)(f"{name[:120]}: {error.message}", hint=error.hint) from error


def _build_clusters(
    machines: tuple[str, ...],
    vary: tuple[str, ...],
    count: int | None,
    gpus: int | None,
    cluster_file: str | None,
    radix: int | None,
) -> list[tuple[str, Cluster]]:
    """Return each design's name and cluster, in the given order. Raises UsageError for conflicting options."""
    from pathlib import Path

    from railwright.topology.cluster import build_cluster
    from railwright.topology.sources.cluster_file import load_cluster

    given = load_cluster(Path(cluster_file)) if cluster_file is not None else None
    refuse_both(count, gpus)
    count = given.hosts if given is not None and count is None and gpus is None else count
    if count is None and gpus is None:
        raise UsageError("whatif requires --count, --gpus or --cluster", hint="add --count 16, or --gpus 128")
    if radix is not None and not _RADIX[0] <= radix <= _RADIX[1]:
        raise UsageError(f"--radix must be {_RADIX[0]} to {_RADIX[1]}, got {radix}", hint="give a number in that range")
    if radix is not None and given is not None and given.fabric.tiers and all(t.switches for t in given.fabric.tiers):
        raise UsageError(
            "--radix has no effect: every tier of the cluster file gives its switches", hint="leave it out"
        )
    fabric = given.fabric if given is not None else None
    if not machines and given is not None and not vary:
        return [(given.host.name, build_cluster(given.host, derive_count(given.host, count, gpus) or 0, fabric))]
    texts = tuple(_vary_hosts(machines or _base_hosts(given), vary))
    found = [(text, load_machine(text)) for text in texts]
    return [(text, build_cluster(host, derive_count(host, count, gpus) or 0, fabric)) for text, host in found]


def _base_hosts(given: Cluster | None) -> tuple[str, ...]:
    """Return the cluster file's host as text that can be varied. Raises UsageError if it is not a shape."""
    if given is None:
        raise UsageError("whatif requires a host", hint="add --host hgx-h100 --vary nics=2,4,8")
    if given.host.source != "shape":
        raise UsageError(
            "--vary requires a shape, but the cluster file's host is a saved machine", hint="give --host SHAPE"
        )
    return (given.host.name,)


def _vary_hosts(machines: tuple[str, ...], vary: tuple[str, ...]) -> Iterator[str]:
    """Yield the hosts, or the host with every combination of the varied changes. Raises UsageError."""
    if vary and len(machines) > 1:
        raise UsageError(f"--vary requires a single --host, got {len(machines)}", hint="give one --host")
    choices: dict[str, list[str]] = {}
    for text in vary:
        key, values = _parse_choice(text)
        if key in choices:
            raise UsageError(f"{key[:60]} is varied twice", hint="give all its values in one --vary")
        choices[key] = values
    combinations = 1
    for values in choices.values():
        combinations *= len(values)
    if max(combinations, len(machines)) > MAX_DESIGNS:
        number = max(combinations, len(machines))
        raise UsageError(f"designs must be at most {MAX_DESIGNS}, got {number}", hint="vary fewer values")
    texts = [
        _apply_changes(machine, dict(zip(choices, values, strict=True)))
        for machine in machines
        for values in itertools.product(*choices.values())
    ]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise UsageError(f"the design {text[:120]!r} is given twice", hint="give it once")
    yield from texts


def _parse_choice(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(",")]
    if not equals or not key or not all(found):
        raise UsageError(f"--vary must be KEY=A,B, got {text[:60]!r}", hint="write KEY=A,B, like nics=2,4,8")
    return key.strip(), found


def _apply_changes(machine: str, changes: dict[str, str]) -> str:
    """Return the host's text with the changes added or replaced."""
    kept = [word for word in machine.split() if word.partition("=")[0] not in changes]
    return " ".join([*kept, *(f"{key}={value}" for key, value in changes.items())])


def _load_prices(file: str) -> Prices:
    from pathlib import Path

    from railwright.limits.bill import Prices, check_prices
    from railwright.reading import InvalidContent, decode_toml, read_bounded

    raw = read_bounded(Path(file), MAX_PRICE_FILE_BYTES)
    try:
        prices = decode_toml(raw, Prices)
    except InvalidContent as error:
        hint = "see examples/prices.toml and docs/whatif.md"
        raise UsageError(f"{file} is not a price list: {str(error)[:200]}", hint=hint) from error
    if not 0 < len(prices.currency) <= 8 or not 0 < len(prices.title) <= 200:
        raise UsageError(
            f"{file} must have a title of at most 200 characters and a currency of at most 8",
            hint='write title = "prices of 2026" and currency = "EUR"',
        )
    check_prices(prices)
    return prices
