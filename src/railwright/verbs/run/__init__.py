"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import EXIT_OK, UsageError
from railwright.options.asked import Arguments
from railwright.options.hosts import container_options, hosts_options
from railwright.options.jobs import job_options, kubernetes_options, slurm_options
from railwright.options.measuring import launches_option, measuring_options

if TYPE_CHECKING:
    from railwright.launch.hosts import Hosts
    from railwright.runs.measuring import PendingJob


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@measuring_options
@launches_option(1)
@click.option("--alone", is_flag=True, help="Leave out the ceilings that the results are held against.")
@click.option("--screen", is_flag=True, help="Measure each of the --hosts by itself, and rank them.")
@click.option("--grow", is_flag=True, help="Measure each of the --hosts, then merge them by doubling while that gains.")
@click.option("--repeat", metavar="RECORD", help="Run a recorded `run` once more, and compare the two.")
@hosts_options
@job_options
@slurm_options
@kubernetes_options
@container_options
def run(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Run single benchmarks; without a name, list them with their options.

    \b
    railwright run mpi_latency -o transports=shm
    railwright run mpi_all_reduce --hosts node1,node2 --ranks-per-host 4
    railwright run kv_transfer --lab lab --hosts host0,host2
    railwright run mpi_all_reduce --slurm --nodes 4 --partition gpu --time 30
    railwright run mpi_all_reduce --kubernetes --nodes 4 --gpus-per-node 8
    railwright run hpl --screen --hosts node1,node2,node3
    railwright run mpi_bandwidth --in-namespaces-of 4711 --against host --launches 3
    railwright run hpl --grow --hosts node1,node2,node3,node4
    """
    asked = Arguments(**typed)
    if asked.repeat is None:
        return _run(asked)

    from railwright.verbs.run.repeat import build_repetition, show_comparison

    status = _run(build_repetition(asked))
    return status if asked.dry_run else show_comparison(asked, status)


def _run(asked: Arguments) -> int:
    """Measure, judge and report, or list the benchmarks where none is named; the exit status."""
    from railwright.runs.container import measure_container, refuse_incomplete
    from railwright.runs.hosts import choose_sort_key, refuse_no_hosts, refuse_shared_memory
    from railwright.runs.measuring import PendingJob, add_ceilings, measure

    names = asked.names
    refuse_incomplete(asked, "screen", "grow")
    placed = _placed(asked)
    planned = placed.hosts if isinstance(placed, PendingJob) else placed
    refuse_shared_memory(planned, asked.options)
    if not names:
        return _list()
    every = names if asked.alone else add_ceilings(names, between_hosts=planned is not None)
    if asked.in_namespaces_of is not None:
        return measure_container(("run", *names, *["--alone"] * asked.alone), every, asked)
    if asked.screen and asked.grow:
        raise UsageError("--grow begins with every host by itself", hint="leave out --screen")
    if asked.screen or asked.grow:
        _refuse_others("--screen" if asked.screen else "--grow", names)
    if asked.screen:
        refuse_no_hosts(planned)
    place = choose_sort_key(planned) if asked.grow else None
    ceilings = frozenset(every) - set(names)
    return measure(every, asked, hosts=placed, screens=asked.screen, place=place, ceilings=ceilings)


def _placed(asked: Arguments) -> Hosts | PendingJob | None:
    """Returns the hosts, or the job that will have them."""
    from railwright.launch.hosts import parse_interfaces
    from railwright.runs import kubernetes, slurm
    from railwright.runs.hosts import resolve_hosts
    from railwright.runs.measuring import PendingJob

    kubernetes.refuse_mixed(asked)
    if not asked.slurm:
        slurm.refuse_without_slurm(asked)
    started_by = slurm.choose_starter(asked) if asked.slurm else None
    if asked.kubernetes:
        interfaces = parse_interfaces(asked.interfaces or "")
        to_come = kubernetes.plan_hosts(asked.nodes, asked.ranks_per_host or 1, interfaces)
        words = kubernetes.pod_words("run", asked, *_words(asked))
        return PendingJob(to_come, kubernetes.make_submitter(to_come, words, asked))
    if asked.slurm and started_by is None:
        to_come = slurm.plan_hosts(asked)
        return PendingJob(to_come, slurm.make_submitter(to_come, asked))
    reached = {name: getattr(asked, name) for name in ("ranks_per_host", "lab", "ssh_config", "interfaces")}
    return resolve_hosts(asked.hosts, **reached, slurm=started_by)


def _words(asked: Arguments) -> list[str]:
    """The words of this verb that are the same in a pod."""
    words = [*asked.names, *(["--ranks-per-host", str(asked.ranks_per_host)] if asked.ranks_per_host else [])]
    words += ["--interfaces", asked.interfaces] if asked.interfaces else []
    return words + [f"--{name}" for name in ("alone", "screen", "grow") if getattr(asked, name)]


def _list() -> int:
    """Print the benchmarks with their options."""
    from railwright.benchmarks.options import options_of
    from railwright.benchmarks.registry import BENCHMARKS, EVERY

    for benchmark in EVERY:
        place = "" if benchmark in BENCHMARKS else " (not part of prove)"
        click.echo(f"{benchmark.name:18} {benchmark.summary}{place}")
        click.echo(f"{'':18} method: {benchmark.method}")
        for name, (_, option) in options_of(benchmark.options).items():
            default = benchmark.defaults.get(name, option.default)
            click.echo(f"{'':18} -o {benchmark.name}.{name}={default}    {option.help}")
    return EXIT_OK


def _refuse_others(option: str, names: tuple[str, ...]) -> None:
    """Raises UsageError for a benchmark that needs several hosts, or cannot leave this one."""
    from railwright.benchmarks.registry import EVERY, find

    for name in names:
        if not find(name).alone_on_a_host:
            able = ", ".join(one.name for one in EVERY if one.alone_on_a_host)
            raise UsageError(f"{name} cannot be run on each of several hosts by itself", hint=f"{option} takes {able}")
