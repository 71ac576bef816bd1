"""`railwright locate`: which host, link or route of a fabric is slow, in few short rounds."""

from __future__ import annotations

import click

from railwright.cli.command import command, json_option, option

ROUTINGS = ("unknown", "ecmp", "adaptive", "ftree", "updn", "minhop")
_PART = click.FloatRange(0.0, 1.0)

COMMAND = command(
    "locate",
    "locate:locate",
    """Find the slow host, link or route in few short rounds, by real probes, or in a simulated fabric.

    FABRIC is a cluster file with tiers, what ibnetdiscover printed, or: fat-tree hosts= gpus= [tiers= leaf-down=
    oversubscription= rails=own].
    FAULTS is a JSON list of {kind, id, direction, capacity}, or words: rate= seed= hosts= switches= line-cards=
    routes= pairs= occupied= least= most=.

    Exit status: 1 where there are suspects, 0 where there are none, 3 where links were not tested.

    \b
    railwright locate --hosts host0,host1,host2,host3
    railwright locate --hosts host0,host1,host2,host3 --switches /etc/slurm/topology.conf
    railwright locate --hosts node1,node2,node3 --interfaces ib0 --cabling ibnetdiscover.txt --forwarding fts.txt
    railwright locate --lab lab
    railwright locate --lab lab --route-cover pair
    railwright locate --simulate 'fat-tree hosts=1280 gpus=8' --faults 'rate=0.005 seed=7'
    railwright locate --cluster cluster.toml --cabling ibnetdiscover.txt
    railwright locate --simulate cluster.toml --faults faults.json --route-cover leaf --json
    railwright locate --simulate ibnetdiscover.txt --forwarding fts.txt
    """,
    option("--hosts", metavar="HOST,HOST...", help="Search between these hosts, by TCP, over ssh or in netns:NAME."),
    option("--ssh-config", metavar="FILE", help="For ssh to the --hosts, instead of ~/.ssh/config."),
    option("--interfaces", metavar="NAME", help="The network interface to search on, of the --hosts."),
    option(
        "--switches",
        metavar="FILE|FOLDER",
        help="The leaf switch of each of the --hosts: Slurm's topology.conf, or NAME.json of lldpctl.",
    ),
    option(
        "--oversubscription",
        type=click.FloatRange(1.0, 64.0),
        default=1.0,
        show_default=True,
        help="How many times the uplinks' rate the hosts of a leaf have, with --switches.",
    ),
    option(
        "--routing",
        type=click.Choice(ROUTINGS),
        default="unknown",
        show_default=True,
        help="How the switches between the --hosts choose ways; it is recorded.",
    ),
    option(
        "--probe",
        type=click.Choice(["tcp", "mpi", "nccl"]),
        default="tcp",
        show_default=True,
        help="What is sent between the --hosts: TCP streams, or by MPI or NCCL, whatever way it takes.",
    ),
    option("--mpirun", metavar="PATH", help="The mpirun of MPI and NCCL; its own MPI library is used with it."),
    option("--gpus", type=click.IntRange(1, 16), help="With --probe nccl: the first so many of each host.  [1]"),
    option("--lab", metavar="NAME", help="Search this lab, by TCP flows on chosen paths."),
    option("--resume", metavar="FILE", help="Keep what is measured in FILE, and go on from what is there."),
    option("--simulate", "fabric", metavar="FABRIC", help="Search this fabric in a simulation."),
    option(
        "--cabling",
        metavar="FILE|FOLDER",
        help="Only compare cables with those planned: what ibnetdiscover printed, or NAME.json of lldpctl. With --hosts"
        " and --forwarding: the subnet that is searched.",
    ),
    option("--cluster", metavar="FILE", help="The cluster file with the planned cables, for --cabling."),
    option(
        "--forwarding",
        metavar="FILE",
        help="What dump_fts printed: each pair of ports then has one way. For"
        " --simulate, and for --hosts beside --cabling.",
    ),
    option("--adapter", metavar="NAME", help="The port of each of the --hosts in that subnet, where it has several."),
    option("--faults", metavar="FILE|WORDS", help="What is wrong in a simulation.  [rate=0.005 seed=0]"),
    option("--noise", type=_PART, help="Simulated: relative deviation of every rate.  [0.02]"),
    option("--interference", type=_PART, help="Simulated: part of flows that others disturb.  [0.02]"),
    option("--wrong-map", type=_PART, help="Simulated: part of flows on another path.  [0]"),
    option("--lost", type=_PART, help="Simulated: part of probes that never answer.  [0]"),
    option("--rounds", type=click.IntRange(2, 64), default=4, show_default=True, help="Screen rounds."),
    option("--confirm", type=click.IntRange(0, 64), default=2, show_default=True, help="Confirm rounds at most."),
    option(
        "--route-cover",
        "cover",
        type=click.Choice(["leaf", "pair"]),
        help="Also every route between leaves, or between all pairs of ports.",
    ),
    option("--load-test", is_flag=True, help="Also the same flows with a quarter of the ports: is it the load?"),
    option("--latency", is_flag=True, help="Also the round trip of every pair of ports, twice, by hop class."),
    option("--most-rounds", type=click.IntRange(1), default=2000, show_default=True, help="Refuse a longer cover."),
    option("--baselines", "with_baselines", is_flag=True, help="Beside other ways to search."),
    option("--seed", type=click.IntRange(0, 2**32), help="Of schedule and disturbances.  [that of the faults, 0]"),
    option("--force", is_flag=True, help="Also beside another measuring run."),
    option("--output", "-O", metavar="FILE.html", help="Write a page with the fabric and the matrix of pairs as well."),
    json_option("Print the record that the text is made from."),
)
