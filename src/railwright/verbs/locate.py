"""`railwright locate`: finds the slow host, link or route of a fabric in few short rounds."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from railwright.errors import UsageError
from railwright.options.arguments import Arguments
from railwright.options.help import Command
from railwright.options.hosts import hosts_option, ssh_config_option
from railwright.options.output import json_option, page_option, print_answer, write
from railwright.options.search import search_options

if TYPE_CHECKING:
    from railwright.launch.hosts import Hosts
    from railwright.locate.place import Place
    from railwright.locate.switch_tree import SwitchTree
    from railwright.locate.ways import ProbeKind

ROUTINGS = ("unknown", "ecmp", "adaptive", "ftree", "updn", "minhop")
_SIMULATION_OPTIONS = {"--simulate", "--faults", "--noise", "--interference", "--wrong-map", "--lost", "--baselines"}


class _Locate(Command):
    """A command that suggests `simulate` or `cabling` for an option that has moved there from `locate`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does. Raises UsageError with the new command for an option that has moved."""
        given = {word.partition("=")[0] for word in args}
        if given & _SIMULATION_OPTIONS:
            from railwright.verbs.simulate import simulate

            words = self._words_for(simulate, {"--simulate": "FABRIC"}, args)
            raise UsageError("locate does not simulate", hint=shlex.join(words))
        if "--cluster" in given or ("--cabling" in given and not given & {"--hosts", "--hosts-file", "--lab"}):
            from railwright.verbs.cabling import cabling

            words = self._words_for(cabling, {"--cluster": "CLUSTER", "--cabling": "SEEN"}, args)
            raise UsageError("locate does not compare cables", hint=shlex.join(words))
        return super().parse_args(ctx, args)

    def _words_for(self, command: click.Command, arguments: dict[str, str], args: list[str]) -> list[str]:
        """Rewrite the arguments for another command. Options in `arguments` become positional. Drops unknown ones."""
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
@hosts_option("Search between these hosts, reached by ssh or given as netns:NAME.")
@ssh_config_option
@click.option("--interfaces", metavar="NAME", help="The network interface of the --hosts to search on.")
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
    help="Total rate of a leaf's hosts over the rate of its uplinks, with --switches.",
)
@click.option(
    "--routing",
    type=click.Choice(ROUTINGS),
    default="unknown",
    show_default=True,
    help="The routing of the switches between the --hosts, for the record.",
)
@click.option(
    "--probe",
    type=click.Choice(["tcp", "mpi", "rdma", "nccl"]),
    default="tcp",
    show_default=True,
    help="The traffic between the --hosts: TCP streams, or RDMA, MPI or NCCL on the routes that these choose.",
)
@click.option(
    "--mpirun", metavar="PATH", help="The mpirun for MPI, RDMA and NCCL, with the MPI library that belongs to it."
)
@click.option("--gpus", type=click.IntRange(1, 16), help="With --probe nccl: the number of GPUs of each host.  [1]")
@click.option(
    "--ports",
    metavar="NAME,...",
    help="With --probe rdma: RDMA ports of each host, such as mlx5_0,mlx5_1.  [that of the interface]",
)
@click.option("--lab", metavar="NAME", help="Search this lab, by TCP flows on chosen paths.")
@click.option("--resume", metavar="FILE", help="Store measurements in FILE, and continue from those in it.")
@click.option("--cabling", metavar="FILE", help="The subnet of the --hosts: the output of ibnetdiscover.")
@click.option(
    "--forwarding",
    metavar="FILE",
    help="The forwarding tables of its switches, the output of dump_fts. They fix the route of each pair.",
)
@click.option("--adapter", metavar="NAME", help="The port of each of the --hosts in that subnet, if it has several.")
@search_options
@click.option(
    "--latency", is_flag=True, help="Also measure the round trip of every pair of ports, twice, by hop class."
)
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Seed of the schedule.")
@click.option("--force", is_flag=True, help="Search even if another measuring run is active.")
@page_option("Also write a page with the fabric and the matrix of pairs.")
@json_option()
def locate(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Find the slow host, link or route in few short rounds, by real probes between hosts or in a lab.

    `railwright simulate` searches a simulated fabric, and `railwright cabling` compares cables with those planned.

    Exit status: 0 no suspects, 1 suspects, 3 links were not tested.

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
    from railwright.workflows.hosts import resolve_hosts
    from railwright.workflows.searched import SearchProgress, choose_rounds, search_status

    arguments = Arguments(**typed)
    if (arguments.lab is None) == (arguments.hosts is None):
        raise UsageError("locate requires either --hosts or --lab", hint="give one of --hosts HOST,HOST and --lab NAME")
    gpus = (arguments.gpus or 1) if arguments.probe == "nccl" else 0
    ports = _parse_ports(arguments)
    reached = {"ssh_config": arguments.ssh_config, "interfaces": arguments.interfaces}
    hosts = (
        resolve_hosts(arguments.hosts, ranks_per_host=gpus or len(ports) or None, **reached)
        if arguments.lab is None
        else None
    )
    place = _make_place(arguments, hosts, gpus, ports)
    way = _choose_probe(arguments, place, hosts, gpus or len(ports))
    rounds = choose_rounds(arguments, place.fabric)
    with measuring_alone(arguments.force):
        found = search(
            place, rounds, seed=arguments.seed, cover=arguments.cover, way=way, latency=arguments.latency,
            tell=SearchProgress(rounds, arguments, place.fabric), journal=arguments.resume,
        )  # fmt: skip
    if arguments.output is not None:
        write(arguments.output, render_located_html(found))
    print_answer([found], lambda: located_lines(found), as_json=arguments.as_json)
    return search_status(found.suspects, found.tested, found.not_measured + len(found.unjudged))


def _parse_ports(arguments: Arguments) -> tuple[str, ...]:
    """Parse --ports. Raises UsageError for other probes, and for text that names no RDMA ports."""
    if arguments.ports is None:
        return ()
    from railwright.benchmarks.rdma.options import parse_ports

    if arguments.probe != "rdma":
        raise UsageError("--ports requires --probe rdma", hint="add --probe rdma")
    if arguments.cabling is not None:
        raise UsageError("--ports and --cabling exclude each other", hint="name the port with --adapter")
    return parse_ports(arguments.ports)


def _make_place(arguments: Arguments, hosts: Hosts | None, gpus: int, ports: tuple[str, ...]) -> Place:
    from pathlib import Path

    from railwright.lab import state
    from railwright.locate.place import make_hosts_place, make_lab_place, make_subnet_place
    from railwright.topology.sources.cables import read_subnet

    if (arguments.cabling is None) != (arguments.forwarding is None):
        raise UsageError(
            "--cabling and --forwarding require each other", hint="give both: --cabling FILE --forwarding FILE"
        )
    if arguments.adapter is not None and arguments.cabling is None:
        raise UsageError("--adapter requires --cabling", hint="add --cabling FILE --forwarding FILE")
    if hosts is None:
        host_options = {"--ssh-config": arguments.ssh_config, "--interfaces": arguments.interfaces,
                        "--switches": arguments.switches,
                    "--cabling": arguments.cabling, "--oversubscription": arguments.oversubscription != 1,
                    "--routing": arguments.routing != "unknown"}  # fmt: skip
        if given := next((name for name, is_given in host_options.items() if is_given), ""):
            raise UsageError(f"{given} requires --hosts", hint="leave it out: --lab does not use it")
        state.require_root()
        return make_lab_place(state.open_lab(arguments.lab))
    if arguments.oversubscription != 1 and not arguments.switches:
        raise UsageError("--oversubscription requires --switches", hint="add --switches topology.conf")
    if arguments.cabling is not None:
        if arguments.switches:
            raise UsageError("--switches and --cabling exclude each other", hint="give one of them")
        subnet = read_subnet(Path(arguments.cabling), Path(arguments.forwarding))
        by_rdma = arguments.probe == "rdma"
        return make_subnet_place(hosts, subnet, arguments.routing, arguments.adapter or "", rdma=by_rdma)
    tree = _read_switch_tree(arguments.switches, hosts) if arguments.switches else None
    return make_hosts_place(hosts, arguments.routing, tree, arguments.oversubscription, gpus, ports)


def _choose_probe(arguments: Arguments, place: Place, hosts: Hosts | None, ends: int) -> ProbeKind:
    """Choose the kind of probe, with `ends` GPUs or RDMA ports of each host.

    Raises UsageError for options that conflict with it.
    """
    from railwright.locate.ways import mpi_probes, nccl_probes, rdma_probes, tcp_probes

    if arguments.gpus is not None and arguments.probe != "nccl":
        raise UsageError("--gpus requires --probe nccl", hint="add --probe nccl")
    if arguments.probe == "tcp":
        if arguments.mpirun is not None:
            raise UsageError("--mpirun requires --probe mpi, rdma or nccl", hint="add --probe mpi, rdma or nccl")
        return tcp_probes(place)
    if hosts is None:
        raise UsageError(
            f"--probe {arguments.probe} does not work with --lab, which pins its routes", hint="leave out --probe"
        )
    if arguments.probe == "nccl" and arguments.cabling is not None:
        raise UsageError(
            "--probe nccl excludes --cabling and --forwarding", hint="leave out --cabling and --forwarding"
        )
    if arguments.latency:
        raise UsageError("--latency requires --probe tcp", hint="leave out --probe")
    if arguments.probe == "nccl":
        return nccl_probes(hosts, arguments.mpirun, ends)
    if arguments.probe == "rdma":
        return rdma_probes(hosts, arguments.mpirun, ends or 1)
    return mpi_probes(hosts, arguments.mpirun)


def _read_switch_tree(path: str, hosts: Hosts) -> SwitchTree:
    """Read Slurm's topology.conf, or a folder with lldpctl's output on each host. Raises UsageError if that fails."""
    from pathlib import Path

    from railwright.locate import slurm_topology
    from railwright.locate.lldp_tree import build_lldp_tree
    from railwright.reading import read_bounded
    from railwright.topology.sources.cables import read_cabling

    file = Path(path)
    if file.is_dir():
        return build_lldp_tree(read_cabling(file), hosts.names, "".join(hosts.used_interfaces[:1]))
    text = read_bounded(file, slurm_topology.MAX_BYTES).decode("utf-8", "replace")
    try:
        return slurm_topology.parse_topology(text)
    except UsageError as error:
        raise UsageError(f"{path[:200]}: {error.message}", hint=error.hint) from error
