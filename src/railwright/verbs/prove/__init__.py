"""`railwright prove`: topology, limits, measurements, diagnosis, and a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from railwright.errors import UsageError
from railwright.options.arguments import Arguments
from railwright.options.completion import complete_benchmark
from railwright.options.help import Command
from railwright.options.hosts import container_options, hosts_option, lab_option, ssh_config_option
from railwright.options.jobs import job_options, kubernetes_options
from railwright.options.measuring import accept_option, launches_option, measuring_options


@click.command(cls=Command)
@measuring_options
@accept_option
@launches_option(3)
@click.option("--directory", metavar="DIR", help="The file system to measure.  [. on this machine, /tmp on --hosts]")
@hosts_option("Measure these hosts, by ssh or in a --lab.")
@lab_option
@ssh_config_option
@click.option("--interfaces", metavar="NAME,...", help="Network interfaces between the --hosts.")
@click.option(
    "--parts", metavar="PART,...", help="Any of screen (each host), pairs, rails, collectives, kv, rdma.  [all]"
)
@click.option("--quick", is_flag=True, help="The audit and a few paths of this host, within 30 s. It leaves no file.")
@click.option(
    "--benchmarks",
    metavar="NAME,...",
    shell_complete=complete_benchmark,
    help="Run only these benchmarks and their baselines.",
)
@click.option(
    "--max-load",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of the hosts whose ports may be loaded at once, to spare other work.",
)
@click.option("--cluster", metavar="FILE", help="A cluster file that describes the fabric between the --hosts.")
@click.option("--resume", is_flag=True, help="Keep the results of the same command that was interrupted.")
@click.option("--slurm", is_flag=True, help="Measure the nodes of the surrounding Slurm job.")
@job_options
@kubernetes_options
@container_options
def prove(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Measure this machine and compare every path with its limit.

    Requires neither a GPU nor root. Writes results.jsonl, report.html and metrics.txt.

    With --hosts or --slurm every host measures itself, then all pairs are measured in rounds of disjoint pairs, then
    collectives of all hosts, NIXL and RDMA. One page compares hosts and pairs. With --kubernetes pods on the nodes do
    the same.
    With --in-namespaces-of PID --against host a container and its host are measured alternately.

    \b
    railwright prove
    railwright prove --quick
    railwright prove --hosts node1,node2,node3,node4
    railwright prove --kubernetes --nodes 4 --gpus-per-node 8
    railwright prove --in-namespaces-of 4711 --against host
    railwright prove --hosts node1,node2,node3,node4 --parts pairs --max-load 0.5
    """
    from railwright.benchmarks.options import list_options
    from railwright.benchmarks.registry import BENCHMARKS, DECLARATIONS, find
    from railwright.verbs.prove.hosts import parse_benchmark_names, prove_hosts
    from railwright.verbs.prove.pods import prove_pods
    from railwright.workflows.container import measure_container
    from railwright.workflows.hosts import resolve_hosts
    from railwright.workflows.measuring import add_ceilings, measure
    from railwright.workflows.quick import prove_quick
    from railwright.workflows.requirements import load_requirements, select_required

    arguments = Arguments(**typed)
    _refuse_mixed(arguments)
    here, arguments.directory = arguments.directory or ".", arguments.directory or _DIRECTORY_ON_HOSTS
    if arguments.kubernetes:
        return prove_pods(arguments)
    reached = {name: getattr(arguments, name) for name in ("lab", "ssh_config", "interfaces")}
    slurm = "auto" if arguments.slurm else None
    placed = resolve_hosts(arguments.hosts, **reached, slurm=slurm, is_asked=not arguments.dry_run)
    if placed is not None:
        return prove_hosts(placed, arguments)
    if arguments.quick:
        return prove_quick(arguments)
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    if arguments.in_namespaces_of is not None:
        return measure_container(("prove", "--directory", arguments.directory), names, arguments)
    chosen = parse_benchmark_names(arguments)
    names = add_ceilings(chosen, between_hosts=False) if chosen else names
    names = select_required(names, load_requirements(arguments.require), DECLARATIONS)
    owners = [name for name in names if "directory" in list_options(find(name).options)]
    arguments.options = (*(f"{name}.directory={here}" for name in owners), *arguments.options)
    return measure(names, arguments, ceilings=frozenset(names) - {*chosen} if chosen else frozenset())


def _refuse_mixed(arguments: Arguments) -> None:
    """Raise UsageError for options that conflict or that require others."""
    import os

    from railwright.launch.slurm.allocation import is_inside_job
    from railwright.workflows import kubernetes
    from railwright.workflows.container import refuse_incomplete

    refuse_incomplete(arguments)
    kubernetes.refuse_mixed(arguments)
    if arguments.quick:
        others = {"--hosts": arguments.hosts, "--slurm": arguments.slurm or None, "--accept": arguments.accept,
                  "--kubernetes": arguments.kubernetes or None, "--benchmarks": arguments.benchmarks,
                  "--in-namespaces-of": arguments.in_namespaces_of}  # fmt: skip
        _refuse(
            others, "does not work with --quick, which measures a few paths of this host", "leave one of the two out"
        )
    if arguments.in_namespaces_of is not None:
        _refuse({"--benchmarks": arguments.benchmarks}, "does not work with --in-namespaces-of", "leave it out")
    files = {"--cluster": arguments.cluster, "--resume": arguments.resume or None}
    host_options = {"--parts": arguments.parts, "--max-load": arguments.max_load < 1 or None} | files
    if arguments.kubernetes:
        _refuse(files, "does not work with --kubernetes, whose pods have no file of this machine", "leave it out")
        return
    job_options = {"--nodes": arguments.nodes, "--time": arguments.limit, "--gpus-per-node": arguments.gpus_per_node}
    _refuse(job_options, "requires --kubernetes", "add --kubernetes")
    if arguments.slurm and not is_inside_job(os.environ):
        hint = "salloc --exclusive --nodes 4 railwright prove --slurm"
        raise UsageError("prove --slurm requires a surrounding job", hint=hint)
    if arguments.verbose and (arguments.hosts is not None or arguments.slurm):
        raise UsageError("--verbose does not work with several hosts", hint="see each host's own report, below hosts/")
    if arguments.hosts is None and not arguments.slurm:
        _refuse(host_options, "requires several hosts", "add --hosts host0,host1 or --slurm")


def _refuse(given: Mapping[str, object], why: str, hint: str) -> None:
    """Raise UsageError for the first of these options that was given."""
    lone = next((option for option, value in given.items() if value is not None), None)
    if lone is not None:
        raise UsageError(f"{lone} {why}", hint=hint)


_DIRECTORY_ON_HOSTS = "/tmp"  # noqa: S108 - a file system that every host has
