"""The options of a search for slow components, by real probes or in a simulation."""

from __future__ import annotations

import click

from railwright.options.group import combine

search_options = combine(
    click.option(
        "--rounds", type=click.IntRange(2, 64), default=4, show_default=True, help="Number of screening rounds."
    ),
    click.option(
        "--confirm",
        type=click.IntRange(0, 64),
        default=2,
        show_default=True,
        help="Maximum number of confirmation rounds.",
    ),
    click.option(
        "--route-cover",
        "cover",
        type=click.Choice(["leaf", "pair"]),
        help="Also probe every route between leaves, or between all pairs of ports.",
    ),
    click.option(
        "--load-test",
        is_flag=True,
        help="Repeat the flows with a quarter of the ports, to see whether load is the cause.",
    ),
    click.option(
        "--most-rounds",
        type=click.IntRange(1),
        default=2000,
        show_default=True,
        help="Maximum number of rounds of a route cover.",
    ),
    section="Search",
)
