"""`railwright locate`: which host, link or route of a fabric is slow, in few short rounds."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from railwright.errors import UsageError
from railwright.options.arguments import Arguments
from railwright.options.hosts import ssh_config_option
from railwright.options.output import json_option, page_option, print_answer, write
from railwright.options.search import search_options

if TYPE_CHECKING:
    from railwright.launch.hosts import Hosts
    from railwright.locate.place import Place
    from railwright.locate.switch_tree import SwitchTree
    from railwright.locate.ways import Way

ROUTINGS = ("unknown", "ecmp", "adaptive", "ftree", "updn", "minhop")
_OF_SIMULATION = {"--simulate", "--faults", "--noise", "--interference", "--wrong-map", "--lost", "--baselines"}


class _Locate(click.Command):
    """Names the command that has what `locate` was asked for before it was three commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does. Raises UsageError with the words of the other command."""
        given = {word.partition("=")[0] for word in args}
        if given & _OF_SIMULATION:
            from railwright.verbs.simulate import simulate

            words = self._words_for(simulate, {"--simulate": "FABRIC"}, args)
            raise UsageError("a simulated fabric has a command of its own", hint=shlex.join(words))
        if "--cluster" in given or ("--cabling" in given and not given & {"--hosts", "--lab"}):
            from railwright.verbs.cabling import cabling

            words = self._words_for(cabling, {"--cluster": "CLUSTER", "--cabling": "SEEN"}, args)
            raise UsageError("cables are compared by a command of its own", hint=shlex.join(words))
        return super().parse_args(ctx, args)

    def _words_for(self, command: click.Command, arguments: dict[str, str], args: list[str]) -> list[str]:
        """What was typed, for that command: values of some options are its arguments, and what it lacks is left out."""
        options = {name: one for each in (self, command) for one in each.params if isinstance(one, click.Option)
                   for name in one.opts}  # fmt: skip
        taken = {name for one in command.params for name in one.opts}
        kept: list[str] = []
        rest = iter(args)
        for word in rest:
            name, equals, value = word.partition("=")
            has_value = name in arguments or (name in options and not options[name].is_flag)
            values = [] if equals or not has_value else [next(rest, "")]
            if name in arguments:
                arguments = arguments | {name: value if equals else values[0]}
            elif name in taken or not name.startswith("-"):
                kept += [word, *values]
        return ["railwright", command.name or "", *arguments.values(), *kept]


@click.command(cls=_Locate)
@click.option("--hosts", metavar="HOST,HOST...", help="Search between these hosts, by TCP, over ssh or in netns:NAME.")
@ssh_config_option
@click.option("--interfaces", metavar="NAME", help="The network interface to search on, of the --hosts.")
@click.option(
    "--switches",
    metavar="FILE|FOLDER",
    help="The leaf switch of each of the --hosts: Slurm's topology.conf, or NAME.json of lldpctl.",
)
@click.option(
    "--oversubscription",
    type=click.FloatRange(1.0, 64.0),
    default=1.0,
    show_default=True,
    help="How many times the uplinks' rate the hosts of a leaf have, with --switches.",
)
@click.option(
    "--routing",
    type=click.Choice(ROUTINGS),
    default="unknown",
    show_default=True,
    help="How the switches between the --hosts choose ways; it is recorded.",
)
@click.option(
    "--probe",
    type=click.Choice(["tcp", "mpi", "nccl"]),
    default="tcp",
    show_default=True,
    help="What is sent between the --hosts: TCP streams, or by MPI or NCCL, whatever way it takes.",
)
@click.option("--mpirun", metavar="PATH", help="The mpirun of MPI and NCCL; its own MPI library is used with it.")
@click.option("--gpus", type=click.IntRange(1, 16), help="With --probe nccl: the first so many of each host.  [1]")
@click.option("--lab", metavar="NAME", help="Search this lab, by TCP flows on chosen paths.")
@click.option("--resume", metavar="FILE", help="Keep what is measured in FILE, and go on from what is there.")
@click.option("--cabling", metavar="FILE", help="The subnet of the --hosts, as ibnetdiscover printed it.")
@click.option(
    "--forwarding", metavar="FILE", help="The tables of its switches, as dump_fts printed them: a pair has one way."
)
@click.option("--adapter", metavar="NAME", help="The port of each of the --hosts in that subnet, where it has several.")
@search_options
@click.option("--latency", is_flag=True, help="Also the round trip of every pair of ports, twice, by hop class.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Of the schedule.")
@click.option("--force", is_flag=True, help="Also beside another measuring run.")
@page_option("Write a page with the fabric and the matrix of pairs as well.")
@json_option()
def locate(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Find the slow host, link or route in few short rounds, by real probes between hosts or in a lab.

    A simulated fabric is searched by `railwright simulate`; `railwright cabling` compares cables with those planned.

    Exit status: 1 where there are suspects, 0 where there are none, 3 where links were not tested.

    \b
    railwright locate --hosts host0,host1,host2,host3
    railwright locate --hosts host0,host1,host2,host3 --switches /etc/slurm/topology.conf
    railwright locate --hosts node1,node2,node3 --interfaces ib0 --cabling ibnetdiscover.txt --forwarding fts.txt
    railwright locate --lab lab
    railwright locate --lab lab --route-cover pair
    """
    from railwright.locate.search import search
    from railwright.report.pages.locate import render_located_html
    from railwright.report.text.locate import located_lines
    from railwright.run.exclusive import measuring_alone
    from railwright.runs.hosts import resolve_hosts
    from railwright.runs.searched import choose_rounds, search_status

    arguments = Arguments(**typed)
    if (arguments.lab is None) == (arguments.hosts is None):
        raise UsageError("what to search is not clear", hint="give one of --hosts HOST,HOST and --lab NAME")
    gpus = (arguments.gpus or 1) if arguments.probe == "nccl" else 0
    reached = {"ssh_config": arguments.ssh_config, "interfaces": arguments.interfaces}
    hosts = resolve_hosts(arguments.hosts, ranks_per_host=gpus or None, **reached) if arguments.lab is None else None
    place = _place(arguments, hosts, gpus)
    rounds, way = choose_rounds(arguments, place.fabric), _way(arguments, place, hosts, gpus)
    with measuring_alone(arguments.force):
        found = search(
            place, rounds, seed=arguments.seed, cover=arguments.cover, way=way, latency=arguments.latency,
            tell=lambda text: click.echo(text, err=True), journal=arguments.resume,
        )  # fmt: skip
    if arguments.output is not None:
        write(arguments.output, render_located_html(found))
    print_answer([found], lambda: located_lines(found), as_json=arguments.as_json)
    return search_status(found.suspects, found.tested, found.not_measured + len(found.unjudged))


def _place(arguments: Arguments, hosts: Hosts | None, gpus: int) -> Place:
    from pathlib import Path

    from railwright.lab import state
    from railwright.locate.place import place_of_hosts, place_of_lab, place_of_subnet
    from railwright.topology.sources.cables import read_subnet

    if (arguments.cabling is None) != (arguments.forwarding is None):
        raise UsageError("a subnet is two files", hint="describe it: --cabling FILE --forwarding FILE")
    if arguments.adapter is not None and arguments.cabling is None:
        raise UsageError("--adapter is a port in a subnet", hint="describe it: --cabling FILE --forwarding FILE")
    if hosts is None:
        of_hosts = {"--ssh-config": arguments.ssh_config, "--interfaces": arguments.interfaces, "--switches": arguments.switches,
                    "--cabling": arguments.cabling, "--oversubscription": arguments.oversubscription != 1,
                    "--routing": arguments.routing != "unknown"}  # fmt: skip
        if given := next((name for name, is_given in of_hosts.items() if is_given), ""):
            raise UsageError(f"{given} is for --hosts", hint="leave it out: a lab's hosts are entered without ssh")
        state.require_root()
        return place_of_lab(state.open_lab(arguments.lab))
    if arguments.oversubscription != 1 and not arguments.switches:
        raise UsageError("--oversubscription is of leaves", hint="name them: --switches topology.conf")
    if arguments.cabling is not None:
        if arguments.switches:
            raise UsageError("--switches and --cabling both describe the network", hint="give one of them")
        subnet = read_subnet(Path(arguments.cabling), Path(arguments.forwarding))
        return place_of_subnet(hosts, subnet, arguments.routing, arguments.adapter or "")
    tree = _switch_tree(arguments.switches, hosts) if arguments.switches else None
    return place_of_hosts(hosts, arguments.routing, tree, arguments.oversubscription, gpus)


def _way(arguments: Arguments, place: Place, hosts: Hosts | None, gpus: int) -> Way:
    """How flows are sent. Raises UsageError for what the place or the other options rule out."""
    from railwright.locate.ways import mpi_way, nccl_way, tcp_way

    if arguments.gpus is not None and arguments.probe != "nccl":
        raise UsageError("--gpus are those of NCCL's probes", hint="ask for --probe nccl")
    if arguments.probe == "tcp":
        if arguments.mpirun is not None:
            raise UsageError("--mpirun starts the ranks of MPI's probes", hint="ask for --probe mpi or --probe nccl")
        return tcp_way(place)
    if hosts is None:
        raise UsageError(f"--probe {arguments.probe} takes its own ways, and a lab's are pinned", hint="leave --probe out")
    if arguments.probe == "nccl" and arguments.cabling is not None:
        raise UsageError("GPUs are not searched over a subnet's tables", hint="leave out --cabling and --forwarding")
    if arguments.latency:
        raise UsageError("--latency is of the kernels' own answers", hint="leave --probe out for it")
    if arguments.probe == "nccl":
        return nccl_way(hosts, arguments.mpirun, gpus)
    return mpi_way(hosts, arguments.mpirun)


def _switch_tree(path: str, hosts: Hosts) -> SwitchTree:
    """Slurm's topology.conf, or a folder of what lldpctl printed on each host. Raises UsageError."""
    from pathlib import Path

    from railwright.locate import slurm_topology
    from railwright.locate.lldp_tree import tree_of_lldp
    from railwright.topology.sources.cables import read_cabling
    from railwright.topology.sources.root import read_bounded

    file = Path(path)
    if file.is_dir():
        return tree_of_lldp(read_cabling(file), hosts.names, "".join(hosts.used_interfaces[:1]))
    text = read_bounded(file, slurm_topology.MOST_BYTES).decode("utf-8", "replace")
    try:
        return slurm_topology.switch_tree_of(text)
    except UsageError as error:
        raise UsageError(f"{path[:200]}: {error.message}", hint=error.hint) from error
