"""The common part of `locate` and `simulate`: the rounds, the cost of a route cover, and the exit status."""

from __future__ import annotations

import contextlib

import click

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.prescribed import plan_cover
from railwright.diagnosis.localise.procedure import ROUND_S, Rounds
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Tested
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.arguments import Arguments
from railwright.units import format_duration
from railwright.workflows.time_left import TimeLeft

_LOAD_ROUNDS = 5
"""All ports at once, then each quarter of them."""


def choose_rounds(arguments: Arguments, fabric: Fabric) -> Rounds:
    """Choose the rounds of the search, and print the cost of a route cover. Raises UsageError if it is too long."""
    if arguments.cover is not None:
        cost = plan_cover(fabric, arguments.cover).cost
        lasts = format_duration(cost.rounds * ROUND_S)
        summary = f"{cost.leaf_pairs} leaf pairs x {cost.paths} paths: about {cost.rounds} rounds, {lasts} at most"
        if cost.rounds > arguments.most_rounds:
            hint = "raise --most-rounds, or cover only leaf routes"
            raise UsageError(f"route cover must be at most {arguments.most_rounds} rounds, got {summary}", hint=hint)
        click.echo(f"route cover of every {arguments.cover} route, {summary}", err=True)
    return Rounds(screen=arguments.rounds, confirm=arguments.confirm, load_test=arguments.load_test)


class SearchProgress:
    """Prints the steps of a search on standard error; the last step of each round has the time left."""

    def __init__(self, rounds: Rounds, arguments: Arguments, fabric: Fabric) -> None:
        cover = plan_cover(fabric, arguments.cover).cost.rounds if arguments.cover is not None else 0
        planned = rounds.screen + rounds.confirm + cover + _LOAD_ROUNDS * rounds.load_test
        self._left = TimeLeft(planned * ROUND_S)

    def __call__(self, text: str) -> None:
        """Print a step."""
        left = ""
        if text.startswith("round ") and text.endswith(": streams"):
            self._left.advance(ROUND_S)
            left = f", {self._left}" if self._left.estimate() else ""
        with contextlib.suppress(OSError):  # a search goes on if nobody reads its steps
            click.echo(f"{text}{left}", err=True)


def search_status(suspects: tuple[Suspect, ...], tested: Tested, not_measured: int) -> int:
    """Return 1 if there are suspects, 3 if something was not tested or measured, and otherwise 0."""
    if suspects:
        return EXIT_SLOW
    return EXIT_UNJUDGED if tested.links_filled < tested.links or not_measured else EXIT_OK
