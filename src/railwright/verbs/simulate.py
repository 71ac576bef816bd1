"""`railwright simulate FABRIC`: runs the search of `locate` in a simulated fabric with known faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import UsageError
from railwright.options.arguments import Arguments
from railwright.options.help import Command
from railwright.options.machine import load_planned_cluster
from railwright.options.output import json_option, print_answer
from railwright.options.search import search_options

if TYPE_CHECKING:
    from railwright.diagnosis.localise.fabric import Fabric
    from railwright.diagnosis.localise.truth import Truth

_MAX_FAULTS = 100_000
_SHARE = click.FloatRange(0.0, 1.0)


@click.command(cls=Command)
@click.argument("fabric", nargs=-1, required=True, metavar="FABRIC")
@click.option("--faults", metavar="FILE|WORDS", default="rate=0.005 seed=0", show_default=True, help="The faults.")
@click.option("--forwarding", metavar="FILE", help="The output of dump_fts, which fixes the route of each pair.")
@click.option("--noise", type=_SHARE, default=0.02, show_default=True, help="Relative deviation of every rate.")
@click.option("--interference", type=_SHARE, default=0.02, show_default=True, help="Share of disturbed flows.")
@click.option("--wrong-map", type=_SHARE, default=0.0, show_default=True, help="Share of flows on a wrong path.")
@click.option("--lost", type=_SHARE, default=0.0, show_default=True, help="Share of probes without an answer.")
@search_options
@click.option("--baselines", is_flag=True, help="Also run other search methods.")
@click.option("--seed", type=click.IntRange(0, 2**32), help="Seed of schedule and noise.  [that of the faults]")
@json_option()
def simulate(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Search a simulated fabric with known faults, and report the rounds, the faults found and those missed.

    FABRIC is a cluster file with tiers, the output of ibnetdiscover, or: fat-tree hosts= gpus= [tiers= leaf-down=
    oversubscription= rails=own].
    FAULTS is a JSON list of {kind, id, direction, capacity}, or words: rate= seed= hosts= switches= line-cards=
    routes= pairs= occupied= least= most=.

    Exit status: 0 no suspects, 1 suspects, 3 links were not tested.

    \b
    railwright simulate fat-tree hosts=1280 gpus=8 --faults 'rate=0.005 seed=7'
    railwright simulate cluster.toml --faults faults.json --route-cover leaf --json
    railwright simulate ibnetdiscover.txt --forwarding fts.txt
    """
    import gc

    from railwright.diagnosis.localise import trial
    from railwright.diagnosis.localise.simulate import Weather
    from railwright.report.text.locate import simulated_lines
    from railwright.workflows.searched import choose_rounds, search_status

    arguments = Arguments(**typed)
    text = " ".join(arguments.fabric)
    gc.disable()  # millions of tuples that are not part of a reference cycle: scanning them would double the time
    try:
        fabric = _load_fabric(text, arguments.forwarding)
        rounds = choose_rounds(arguments, fabric)
        truth, drawn = _load_truth(fabric, arguments.faults)
        weather = Weather(
            noise=arguments.noise,
            interference=arguments.interference,
            wrong_map=arguments.wrong_map,
            lost=arguments.lost,
        )
        seed = drawn if arguments.seed is None else arguments.seed
        found = trial.run(
            fabric,
            text,
            truth,
            weather,
            seed=seed,
            rounds=rounds,
            cover=arguments.cover,
            with_baselines=arguments.baselines,
        )
    finally:
        gc.enable()
    print_answer([found], lambda: simulated_lines(found), as_json=arguments.as_json)
    return search_status(found.suspects, found.tested, 0)


def _load_fabric(text: str, forwarding: str | None) -> Fabric:
    from pathlib import Path

    from railwright.diagnosis.localise.fat_tree import fabric_of_cluster, parse_fat_tree
    from railwright.diagnosis.localise.prescribed import fabric_of_subnet
    from railwright.topology.sources.cables import read_subnet

    words, file = text.split(), Path(text)
    is_cluster = len(words) == 1 and file.suffix in (".toml", ".json")
    is_subnet = len(words) == 1 and not is_cluster and file.is_file()
    if forwarding is not None and not is_subnet:
        raise UsageError(
            "--forwarding requires an InfiniBand subnet", hint="give ibnetdiscover's output: railwright simulate FILE"
        )
    if is_subnet:
        return fabric_of_subnet(read_subnet(file, Path(forwarding) if forwarding is not None else None))
    if words[:1] == ["fat-tree"]:
        return parse_fat_tree(words[1:])
    if is_cluster:
        return fabric_of_cluster(load_planned_cluster(text))
    hint = "give a cluster file, the output of ibnetdiscover, or: fat-tree hosts=1280 gpus=8"
    raise UsageError(f"FABRIC must be a file or a fat-tree, got {text[:60]!r}", hint=hint)


def _load_truth(fabric: Fabric, text: str) -> tuple[Truth, int]:
    """Return the faults, and the seed from which they are drawn. The seed is 0 for listed faults."""
    from railwright.diagnosis.localise.records import Fault
    from railwright.diagnosis.localise.truth import apply_faults, draw, parse_draw
    from railwright.reading import InvalidContent, decode_json
    from railwright.results.given_file import format_name, read_short_text

    words = text.split()
    if words and all("=" in word for word in words):
        given = parse_draw(words)
        return draw(fabric, given), int(given["seed"])
    try:
        listed = decode_json(read_short_text(text), list[Fault])
    except InvalidContent as error:
        hint = "give a JSON list of {kind, id, direction, capacity}"
        raise UsageError(f"{format_name(text)} is not a list of faults: {error}", hint=hint) from error
    if len(listed) > _MAX_FAULTS:
        raise UsageError(f"faults must be at most {_MAX_FAULTS}, got {len(listed)}", hint="give fewer")
    return apply_faults(fabric, listed), 0
