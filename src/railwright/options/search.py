"""The options of a search for what is slow, by real probes or in a simulation."""

from __future__ import annotations

import click

from railwright.options.group import combine

search_options = combine(
    click.option("--rounds", type=click.IntRange(2, 64), default=4, show_default=True, help="Screen rounds."),
    click.option("--confirm", type=click.IntRange(0, 64), default=2, show_default=True, help="Confirm rounds at most."),
    click.option(
        "--route-cover",
        "cover",
        type=click.Choice(["leaf", "pair"]),
        help="Also every route between leaves, or between all pairs of ports.",
    ),
    click.option("--load-test", is_flag=True, help="Also the same flows with a quarter of the ports: is it the load?"),
    click.option(
        "--most-rounds", type=click.IntRange(1), default=2000, show_default=True, help="Refuse a longer cover."
    ),
)
