"""What `locate` and `simulate` share: the rounds that are asked for, what a cover costs, and the exit status."""

from __future__ import annotations

import click

from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.prescribed import cover_of
from railwright.diagnosis.localise.procedure import ROUND_S, Rounds
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Tested
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.arguments import Arguments
from railwright.units import format_duration


def choose_rounds(arguments: Arguments, fabric: Fabric) -> Rounds:
    """The rounds of the search; says what a cover costs. Raises UsageError for one that is too long."""
    if arguments.cover is not None:
        cost = cover_of(fabric, arguments.cover).cost
        lasts = format_duration(cost.rounds * ROUND_S)
        says = f"{cost.leaf_pairs} leaf pairs x {cost.paths} paths: about {cost.rounds} rounds, {lasts} at most"
        if cost.rounds > arguments.most_rounds:
            hint = "see --most-rounds, or cover leaf routes only"
            raise UsageError(f"this route cover is too long: {says}", hint=hint)
        click.echo(f"route cover of every {arguments.cover} route, {says}", err=True)
    return Rounds(screen=arguments.rounds, confirm=arguments.confirm, load_test=arguments.load_test)


def search_status(suspects: tuple[Suspect, ...], tested: Tested, not_measured: int) -> int:
    """1 where there are suspects; else 3 where links were not tested."""
    if suspects:
        return EXIT_SLOW
    return EXIT_UNJUDGED if tested.links_filled < tested.links or not_measured else EXIT_OK
