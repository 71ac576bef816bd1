"""Designs of a cluster side by side: limits, bill of network parts, cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from railwright.errors import RailwrightError, UsageError
from railwright.expected.designs import Design, Question, compared, design_of
from railwright.limits.bill import Prices, check_prices
from railwright.report.pages.whatif import render_designs_html
from railwright.report.text.whatif import render_designs
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.sources.cluster_file import load_cluster
from railwright.topology.sources.root import read_bounded
from railwright.verbs.machine import the_machine
from railwright.verbs.write import refuse_no_page, write

MOST_DESIGNS = 64
MAX_PRICE_FILE_BYTES = 2**16
_RADIX = (4, 1024)
_COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")


def whatif(
    machines: tuple[str, ...],
    vary: tuple[str, ...],
    count: int | None,
    cluster_file: str | None,
    collectives: tuple[str, ...],
    price_file: str | None,
    radix: int | None,
    optics: str,
    output: str | None,
    as_json: bool,
) -> int:
    """Print the designs, and write their page where one is wanted. Raises UsageError."""
    refuse_no_page(output)
    clusters = _clusters(machines, vary, count, cluster_file, radix)
    question = _question(collectives, price_file, radix, optics)
    designs = compared([_design(name, cluster, question) for name, cluster in clusters])
    if output is not None:
        write(output, render_designs_html(designs, question))
    if as_json:
        for design in designs:
            click.echo(msgspec.json.encode(design).decode())
    else:
        click.echo(render_designs(designs, question))
    return 0


def _design(name: str, cluster: Cluster, question: Question) -> Design:
    """One design; where its limits cannot be said, the error names the design."""
    try:
        return design_of(name, cluster, question)
    except RailwrightError as error:
        raise type(error)(f"{name[:120]}: {error.message}", hint=error.hint) from error


def _question(collectives: tuple[str, ...], price_file: str | None, radix: int | None, optics: str) -> Question:
    given = {"radix": radix} if radix is not None else {}
    prices = _prices(price_file) if price_file is not None else None
    names = tuple(dict.fromkeys(collectives or _COLLECTIVES))
    return msgspec.convert({"collectives": names, "optics": optics, "prices": prices, **given}, Question)


def _clusters(
    machines: tuple[str, ...], vary: tuple[str, ...], count: int | None, cluster_file: str | None, radix: int | None
) -> list[tuple[str, Cluster]]:
    """Each design's name and cluster, in the order given."""
    given = load_cluster(Path(cluster_file)) if cluster_file is not None else None
    hosts = count if count is not None else given.hosts if given is not None else None
    if hosts is None:
        raise UsageError("the number of hosts is not given", hint="add --count 16, or --cluster FILE")
    if radix is not None and not _RADIX[0] <= radix <= _RADIX[1]:
        raise UsageError(f"switches of {radix} ports", hint=f"give {_RADIX[0]} to {_RADIX[1]}")
    if radix is not None and given is not None and given.fabric.tiers:
        raise UsageError("--radix is for a fabric that no file describes", hint="leave it out, or leave out the tiers")
    fabric = given.fabric if given is not None else None
    if not machines and given is not None and not vary:
        return [(given.host.name, cluster_of(given.host, hosts, fabric))]
    texts = tuple(_varied(machines or _base(given), vary))
    return [(text, cluster_of(the_machine(text), hosts, fabric)) for text in texts]


def _base(given: Cluster | None) -> tuple[str, ...]:
    """The cluster file's own host, as text that can be varied."""
    if given is None:
        raise UsageError("there is no design", hint="name hosts, like --host hgx-h100 --vary nics=2,4,8")
    if given.host.source != "shape":
        raise UsageError("the cluster file's host is a saved machine, which cannot be varied", hint="give --host SHAPE")
    return (given.host.name,)


def _varied(machines: tuple[str, ...], vary: tuple[str, ...]) -> Iterator[str]:
    """The hosts, or every combination of the varied changes made to the one host. Raises UsageError."""
    if vary and len(machines) > 1:
        raise UsageError(f"--vary belongs to one host, {len(machines)} are given", hint="give one --host")
    choices: dict[str, list[str]] = {}
    for text in vary:
        key, values = _choice(text)
        if key in choices:
            raise UsageError(f"{key[:60]} is varied twice", hint="give all its values in one --vary")
        choices[key] = values
    combinations = 1
    for values in choices.values():
        combinations *= len(values)
    if max(combinations, len(machines)) > MOST_DESIGNS:
        number = max(combinations, len(machines))
        raise UsageError(f"{number} designs", hint=f"at most {MOST_DESIGNS} can be held side by side")
    texts = [
        _changed(machine, dict(zip(choices, values, strict=True)))
        for machine in machines
        for values in itertools.product(*choices.values())
    ]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise UsageError(f"the design {text[:120]!r} is given twice", hint="give it once")
    yield from texts


def _choice(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(",")]
    if not equals or not key or not all(found):
        raise UsageError(f"not values of a change: {text[:60]!r}", hint="write KEY=A,B, like nics=2,4,8")
    return key.strip(), found


def _changed(machine: str, changes: dict[str, str]) -> str:
    """The host's words with those changes made or replaced."""
    kept = [word for word in machine.split() if word.partition("=")[0] not in changes]
    return " ".join([*kept, *(f"{key}={value}" for key, value in changes.items())])


def _prices(file: str) -> Prices:
    raw = read_bounded(Path(file), MAX_PRICE_FILE_BYTES)
    try:
        prices = msgspec.toml.decode(raw, type=Prices)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        hint = "see examples/prices.toml and docs/whatif.md"
        raise UsageError(f"{file} is not a price list: {str(error)[:200]}", hint=hint) from error
    if not 0 < len(prices.currency) <= 8 or not 0 < len(prices.title) <= 200:
        raise UsageError(f"{file} needs a title and a currency", hint="a currency has at most 8 characters, like EUR")
    check_prices(prices)
    return prices
