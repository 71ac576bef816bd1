"""`railwright run NAME...`: runs single benchmarks with all their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import EXIT_OK, UsageError
from railwright.options.arguments import Arguments
from railwright.options.completion import complete_benchmark
from railwright.options.help import Command
from railwright.options.hosts import container_options, hosts_options
from railwright.options.jobs import job_options, kubernetes_options, slurm_options
from railwright.options.measuring import launches_option, measuring_options
from railwright.options.output import print_text

if TYPE_CHECKING:
    from railwright.launch.hosts import Hosts
    from railwright.workflows.measuring import PendingJob


@click.command(cls=Command)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_benchmark)
@measuring_options
@launches_option(1)
@click.option("--alone", is_flag=True, help="Leave out the benchmarks that measure limits for the results.")
@click.option("--screen", is_flag=True, help="Measure each of the --hosts separately, and rank them.")
@click.option("--grow", is_flag=True, help="Measure each of the --hosts, then merge them by doubling while that gains.")
@click.option("--repeat", metavar="RECORD", help="Repeat a recorded `run`, and compare the two.")
@hosts_options
@click.option("--cluster", metavar="FILE", help="A cluster file that describes the --hosts and their fabric.")
@job_options
@slurm_options
@kubernetes_options
@container_options
def run(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Run single benchmarks. Without a name, list them with their options.

    \b
    railwright run mpi_latency -o transports=shm
    railwright run mpi_all_reduce --hosts node1,node2 --ranks-per-host 4
    railwright run nccl_all_reduce --hosts node1,node2 -o among=all,rails
    railwright run kv_transfer --lab lab --hosts host0,host2
    railwright run mpi_all_reduce --slurm --nodes 4 --partition gpu --time 30
    railwright run mpi_all_reduce --kubernetes --nodes 4 --gpus-per-node 8
    railwright run hpl --screen --hosts node1,node2,node3
    railwright run mpi_bandwidth --in-namespaces-of 4711 --against host --launches 3
    railwright run hpl --grow --hosts node1,node2,node3,node4
    """
    arguments = Arguments(**typed)
    if arguments.repeat is None:
        return _run(arguments)

    from railwright.verbs.run.repeat import build_repetition, show_comparison

    status = _run(build_repetition(arguments))
    return status if arguments.dry_run else show_comparison(arguments, status)


def _run(arguments: Arguments) -> int:
    """Measure, judge and report, or list the benchmarks if no name is given. Returns the exit status."""
    from railwright.workflows.container import measure_container, refuse_incomplete
    from railwright.workflows.hosts import choose_sort_key, refuse_no_hosts, refuse_shared_memory
    from railwright.workflows.measuring import PendingJob, add_ceilings, measure

    names = arguments.names
    refuse_incomplete(arguments, "screen", "grow")
    placed = _resolve_hosts(arguments)
    planned = placed.hosts if isinstance(placed, PendingJob) else placed
    refuse_shared_memory(planned, arguments.options)
    if not names:
        return _list_benchmarks()
    benchmarks = names if arguments.alone else add_ceilings(names, between_hosts=planned is not None)
    if arguments.in_namespaces_of is not None:
        return measure_container(("run", *names, *["--alone"] * arguments.alone), benchmarks, arguments)
    if arguments.screen and arguments.grow:
        raise UsageError("--grow and --screen exclude each other", hint="leave out --screen, which --grow includes")
    if arguments.screen or arguments.grow:
        _refuse_unscreenable("--screen" if arguments.screen else "--grow", names)
    if arguments.screen:
        refuse_no_hosts(planned)
    place = choose_sort_key(planned) if arguments.grow else None
    ceilings = frozenset(benchmarks) - set(names)
    return measure(benchmarks, arguments, hosts=placed, screens=arguments.screen, place=place, ceilings=ceilings)


def _resolve_hosts(arguments: Arguments) -> Hosts | PendingJob | None:
    """Return the hosts, or the job that will provide them. None means this host alone. Raises UsageError."""
    from railwright.launch.hosts import parse_interfaces
    from railwright.workflows import kubernetes, slurm
    from railwright.workflows.hosts import resolve_hosts
    from railwright.workflows.measuring import PendingJob

    kubernetes.refuse_mixed(arguments)
    if not arguments.slurm:
        slurm.refuse_without_slurm(arguments)
    started_by = slurm.choose_starter(arguments) if arguments.slurm else None
    if arguments.kubernetes:
        interfaces = parse_interfaces(arguments.interfaces or "")
        planned = kubernetes.plan_hosts(arguments.nodes, arguments.ranks_per_host or 1, interfaces)
        words = kubernetes.pod_words("run", arguments, *_pod_arguments(arguments))
        return PendingJob(planned, kubernetes.make_submitter(planned, words, arguments))
    if arguments.slurm and started_by is None:
        planned = slurm.plan_hosts(arguments)
        return PendingJob(planned, slurm.make_submitter(planned, arguments))
    reached = {name: getattr(arguments, name) for name in ("ranks_per_host", "lab", "ssh_config", "interfaces")}
    return resolve_hosts(arguments.hosts, **reached, slurm=started_by, is_asked=not arguments.dry_run)


def _pod_arguments(arguments: Arguments) -> list[str]:
    """Return the arguments of this verb that a pod receives unchanged."""
    words = [
        *arguments.names,
        *(["--ranks-per-host", str(arguments.ranks_per_host)] if arguments.ranks_per_host else []),
    ]
    words += ["--interfaces", arguments.interfaces] if arguments.interfaces else []
    return words + [f"--{name}" for name in ("alone", "screen", "grow") if getattr(arguments, name)]


def _list_benchmarks() -> int:
    """Print the benchmarks with their options."""
    from railwright.benchmarks.options import list_options
    from railwright.benchmarks.registry import BENCHMARKS, EVERY

    for benchmark in EVERY:
        place = "" if benchmark in BENCHMARKS else " (not part of prove)"
        print_text(f"{benchmark.name:18} {benchmark.summary}{place}")
        print_text(f"{'':18} method: {benchmark.method}")
        for name, (_, option) in list_options(benchmark.options).items():
            default = benchmark.defaults.get(name, option.default)
            print_text(f"{'':18} -o {benchmark.name}.{name}={default}    {option.help}")
    return EXIT_OK


def _refuse_unscreenable(option: str, names: tuple[str, ...]) -> None:
    """Raise UsageError for a benchmark that cannot measure each of several hosts separately."""
    from railwright.benchmarks.registry import EVERY, find

    for name in names:
        if not find(name).alone_on_a_host:
            able = ", ".join(benchmark.name for benchmark in EVERY if benchmark.alone_on_a_host)
            raise UsageError(f"{name} cannot measure each of several hosts separately", hint=f"{option} accepts {able}")
