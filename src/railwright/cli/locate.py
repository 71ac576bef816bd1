"""`railwright locate`: which host, link or route of a fabric is slow, in few short rounds."""

from __future__ import annotations

import click

from railwright.cli.command import command, json_option, option

_PART = click.FloatRange(0.0, 1.0)

COMMAND = command(
    "locate",
    "locate:locate",
    """Find the slow host, link or route of a simulated fabric: what a search of few rounds costs, and what it finds.

    FABRIC is a cluster file with tiers, or: fat-tree hosts= gpus= [tiers= leaf-down= oversubscription= rails=own].
    FAULTS is a JSON list of {kind, id, direction, capacity}, or words: rate= seed= hosts= switches= line-cards=
    routes= pairs= occupied= least= most=.

    Exit status: 1 where there are suspects, 0 where there are none, 3 where links were not tested.

    \b
    railwright locate --simulate 'fat-tree hosts=1280 gpus=8' --faults 'rate=0.005 seed=7'
    railwright locate --simulate cluster.toml --faults faults.json --route-cover leaf --json
    """,
    option("--simulate", "fabric", metavar="FABRIC", required=True, help="Search this fabric in a simulation."),
    option("--faults", metavar="FILE|WORDS", default="rate=0.005 seed=0", show_default=True, help="What is wrong."),
    option("--noise", type=_PART, default=0.02, show_default=True, help="Relative deviation of every rate."),
    option("--interference", type=_PART, default=0.02, show_default=True, help="Part of flows that others disturb."),
    option("--wrong-map", type=_PART, default=0.0, show_default=True, help="Part of flows on another path."),
    option("--lost", type=_PART, default=0.0, show_default=True, help="Part of probes that never answer."),
    option("--rounds", type=click.IntRange(2, 64), default=4, show_default=True, help="Screen rounds."),
    option("--confirm", type=click.IntRange(0, 64), default=2, show_default=True, help="Confirm rounds at most."),
    option(
        "--route-cover",
        "cover",
        type=click.Choice(["leaf", "pair"]),
        help="Also every route between leaves, or between all pairs of ports.",
    ),
    option("--most-rounds", type=click.IntRange(1), default=2000, show_default=True, help="Refuse a longer cover."),
    option("--baselines", "with_baselines", is_flag=True, help="Beside other ways to search."),
    option("--seed", type=click.IntRange(0, 2**32), help="Of schedule and disturbances.  [that of the faults]"),
    json_option("Print the record that the text is made from."),
)
