"""The search for slow hosts, links and routes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.cover import CoverKind, RouteCover
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.fat_tree import fabric_of_cluster, parse_fat_tree
from railwright.diagnosis.localise.procedure import ROUND_S, Rounds
from railwright.diagnosis.localise.records import Fault
from railwright.diagnosis.localise.simulate import Weather
from railwright.diagnosis.localise.truth import Truth, draw, parse_draw, truth_of
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.report.locate_text import simulated_lines
from railwright.units import format_duration
from railwright.verbs import given_file
from railwright.verbs.cluster import the_cluster

_MOST_FAULTS = 100_000


def locate(
    fabric: str,
    faults: str,
    noise: float,
    interference: float,
    wrong_map: float,
    lost: float,
    rounds: int,
    confirm: int,
    cover: CoverKind | None,
    most_rounds: int,
    with_baselines: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """Search a simulated fabric and print what was found; the exit status. Raises UsageError."""
    with _without_garbage_collection():
        there = _fabric(fabric)
        _refuse_long_cover(there, cover, most_rounds)
        truth, drawn = _truth(there, faults)
        found = trial.run(
            there,
            fabric,
            truth,
            Weather(noise=noise, interference=interference, wrong_map=wrong_map, lost=lost),
            seed=drawn if seed is None else seed,
            rounds=Rounds(screen=rounds, confirm=confirm),
            cover=cover,
            with_baselines=with_baselines,
        )
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        for line in simulated_lines(found):
            click.echo(line)
    if found.suspects:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.tested.links_filled < found.tested.links else EXIT_OK


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Millions of tuples that are in no circle: looking through them again and again would double the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _fabric(text: str) -> Fabric:
    words = text.split()
    if words[:1] == ["fat-tree"]:
        return parse_fat_tree(words[1:])
    if len(words) == 1 and Path(text).suffix in (".toml", ".json"):
        return fabric_of_cluster(the_cluster(None, None, text))
    raise UsageError(f"{text[:60]!r} is no fabric", hint="give a cluster file, or 'fat-tree hosts=1280 gpus=8'")


def _refuse_long_cover(fabric: Fabric, cover: CoverKind | None, most: int) -> None:
    """Say what a cover costs before it is run. Raises UsageError for one that is too long."""
    if cover is None:
        return
    cost = RouteCover(fabric, cover).cost
    lasts = format_duration(cost.rounds * ROUND_S)
    says = f"{cost.leaf_pairs} leaf pairs x {cost.paths} paths: about {cost.rounds} rounds, {lasts} at most"
    if cost.rounds > most:
        raise UsageError(f"this route cover is too long: {says}", hint="see --most-rounds, or cover leaf routes only")
    click.echo(f"route cover of every {cover} route, {says}", err=True)


def _truth(fabric: Fabric, text: str) -> tuple[Truth, int]:
    """The faults, and the seed of their words."""
    words = text.split()
    if words and all("=" in word for word in words):
        given = parse_draw(words)
        return draw(fabric, given), int(given["seed"])
    raw = given_file.text_of(given_file.read(text), text)
    try:
        listed = msgspec.json.decode(raw, type=list[Fault])
    except msgspec.DecodeError as error:
        hint = "give a JSON list of {kind, id, direction, capacity}"
        raise UsageError(f"{given_file.name_of(text)} is no list of faults: {error}", hint=hint) from error
    if len(listed) > _MOST_FAULTS:
        raise UsageError(f"{len(listed)} faults", hint=f"give at most {_MOST_FAULTS}")
    return truth_of(fabric, listed), 0
