"""`railwright watch`: derives the iterations of a running job from its resource curves."""

from __future__ import annotations

from typing import Any

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.arguments import Arguments
from railwright.options.help import Command
from railwright.options.hosts import hosts_option, lab_option, ssh_config_option
from railwright.options.output import json_option, page_option, print_answer


@click.command(cls=Command)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--pid", type=click.IntRange(1), help="Watch this process and its present descendants.")
@click.option("--cgroup", metavar="PATH", help="Watch this control group (version 2), below /sys/fs/cgroup.")
@click.option(
    "--job", type=click.IntRange(1), metavar="ID", help="Watch this Slurm job, on this node or on the --hosts."
)
@click.option("--here", is_flag=True, help="Watch the processes in our network namespace, as in a host of a lab.")
@hosts_option("Watch these hosts together, by ssh, in a --lab, or as netns:NAME.")
@lab_option
@ssh_config_option
@click.option("--slurm", is_flag=True, help="Watch the nodes of the --job, or of the surrounding Slurm job, together.")
@click.option("--seconds", type=click.FloatRange(0.1, 1e6), help="Maximum duration, from the first sample.")
@click.option("--rate", type=click.FloatRange(0.1, 1000), default=100.0, show_default=True, help="Samples per second.")
@click.option(
    "--gpu-cpu",
    type=click.FloatRange(0.1, 100),
    default=0.5,
    show_default=True,
    metavar="PERCENT",
    help="Share of a core for reading GPUs. NVLink's counters need 2 to 6 for iterations of half a second.",
)
@click.option(
    "--record",
    metavar="FILE.arrows",
    help="Store all samples as an Arrow IPC stream, complete up to its last second. - is standard output. "
    "With several hosts: a folder.",
)
@click.option(
    "--from", "recorded", is_flag=True, help="Analyse recordings: FILE.arrows, or with several hosts all of them."
)
@click.option("--simulate", metavar="WORDS", help="Analyse the curves of a simulated job.")
@page_option("Also write a page with the curves and the iterations.")
@click.option("--cost", is_flag=True, help="Measure the cost of watching for a tight load on all cores.")
@click.option("--cost-of", metavar="COMMAND", help="Measure the cost of another monitor: 'nvidia-smi -l 1'.")
@click.option(
    "--pairs",
    type=click.IntRange(2, 10_000),
    default=20,
    show_default=True,
    help="Pairs of measurements for --cost, about 4 s each.",
)
@click.option("--force", is_flag=True, help="Measure the cost even if another measuring run is active.")
@json_option()
def watch(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Derive a job's iterations, compute share, communication share and best possible gain from outside the job.

    Counters of the processor, GPUs, network, RDMA ports and drives are sampled while COMMAND runs, until a process
    exits, or for some seconds. With --json, COMMAND's output goes to standard error.

    WORDS of a simulation are: period= compute= communication= exposed= noise= drift= missing= rate= seconds= seed=
    jitter= change= second=.

    With --hosts, railwright runs on each host. The hosts share a time axis and are compared with each other.

    Exit status: 0 the curves were analysed, even if they have no period, 3 too few samples, or COMMAND failed.
    With hosts: 1 a host differs from the others, 3 a host was not watched to the end.
    With a cost: 0 below 0.5 %, 1 above, 3 the pairs are inconclusive.

    \b
    railwright watch -- mpirun -n 2 ./train
    railwright watch --pid 4711 --seconds 60 --output job.html
    railwright watch --seconds 3600 --record job.arrows
    railwright watch --hosts node1,node2 --seconds 60 --record job
    railwright watch --job 4711 --slurm --seconds 60
    railwright watch --from job.arrows --json
    railwright watch --from job/node1.arrows job/node2.arrows
    railwright watch --cost --pairs 40
    railwright watch --cost-of 'nvidia-smi -l 1'
    railwright watch --simulate 'period=0.7 compute=0.6 communication=0.5 exposed=0.4 noise=0.1 seed=7'
    """
    arguments = Arguments(**typed)
    things = {
        "--pid": arguments.pid, "--cgroup": arguments.cgroup, "--job": arguments.job, "--here": arguments.here or None,
        "--simulate": arguments.simulate, "--from": arguments.recorded or None, "--cost": arguments.cost or None,
        "--cost-of": arguments.cost_of,
    }  # fmt: skip
    _refuse_mixed(arguments, [name for name, value in things.items() if value is not None])
    if arguments.cost or arguments.cost_of is not None:
        return _report_cost(arguments)
    if arguments.simulate is not None:
        return _simulate(arguments)

    from railwright.verbs.watch import here, hosts

    if not arguments.recorded:
        return here.watch(arguments) if arguments.hosts is None and not arguments.slurm else hosts.watch(arguments)
    if not arguments.command:
        raise UsageError(
            "--from must name a recording", hint="give --from job.arrows; with several hosts give all recordings"
        )
    return here.replay(arguments) if len(arguments.command) == 1 else hosts.replay(arguments)


def _refuse_mixed(arguments: Arguments, things: list[str]) -> None:
    """Raise UsageError for more than one target, and for targets that do not work on other hosts.

    A command may run while a control group or a Slurm job is watched.
    """
    command = arguments.command if not arguments.recorded else ()
    if len(things) > 1 or (command and things not in ([], ["--cgroup"], ["--job"])):
        both = " and ".join([*things, *["a command"] * bool(command)])
        raise UsageError(f"{both} exclude each other", hint="give one of them")
    afar = next((name for name in ("hosts", "lab", "ssh_config", "slurm") if getattr(arguments, name)), "")
    other = next((name for name in things if name not in ("--cgroup", "--job")), "")
    if afar and other:
        option = afar.replace("_", "-")
        raise UsageError(f"{other} and --{option} exclude each other", hint="give one of them")


def _simulate(arguments: Arguments) -> int:
    from railwright.diagnosis.iterations.simulate import parse_job
    from railwright.diagnosis.iterations.trial import run_trial
    from railwright.report.text.watch import simulated_job_lines

    found = run_trial(parse_job(arguments.simulate.split()))
    print_answer([found], lambda: simulated_job_lines(found), as_json=arguments.as_json)
    return EXIT_OK


def _report_cost(arguments: Arguments) -> int:
    """Measure the cost of a monitor. Returns 0 if the cost is below the threshold, 1 if above, 3 if inconclusive."""
    from railwright.report.text.watch import cost_lines
    from railwright.run.exclusive import measuring_alone
    from railwright.watch.cost import CommandMonitor, OwnMonitor, measure_cost

    monitor = OwnMonitor() if arguments.cost_of is None else CommandMonitor(_split_command(arguments.cost_of))
    with measuring_alone(arguments.force):
        found = measure_cost(monitor, arguments.pairs, lambda text: click.echo(text, err=True))
    print_answer([found], lambda: cost_lines(found), as_json=arguments.as_json)
    if found.slowed_by_high < found.threshold:
        return EXIT_OK
    return EXIT_SLOW if found.slowed_by_low > found.threshold else EXIT_UNJUDGED


def _split_command(text: str) -> list[str]:
    """Split a command that is quoted as for a shell. Raises UsageError for wrong quotes and for no command."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--cost-of must be a command, got {text[:60]!r}: {error}", hint="check the quotes") from error
    if not words:
        raise UsageError("--cost-of must be a command, got an empty one", hint="write --cost-of 'nvidia-smi -l 1'")
    return words
