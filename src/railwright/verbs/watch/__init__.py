"""`railwright watch`: what the curves of a running job tell of its iterations."""

from __future__ import annotations

from typing import Any

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.arguments import Arguments
from railwright.options.hosts import lab_option, ssh_config_option
from railwright.options.output import json_option, page_option, print_answer


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--pid", type=click.IntRange(1), help="Watch this process, and those that it has started until now.")
@click.option("--cgroup", metavar="PATH", help="Watch this control group (version 2), below /sys/fs/cgroup.")
@click.option(
    "--job", type=click.IntRange(1), metavar="ID", help="Watch this Slurm job, on this node or on the --hosts."
)
@click.option("--here", is_flag=True, help="Watch what runs in our network namespace, as in a host of a lab.")
@click.option("--hosts", metavar="HOST,HOST...", help="Watch these hosts together, by ssh, in a --lab or netns:NAME.")
@lab_option
@ssh_config_option
@click.option("--slurm", is_flag=True, help="Watch the nodes of the --job together, or of the Slurm job around us.")
@click.option("--seconds", type=click.FloatRange(0.1, 1e6), help="Watch so long at most.")
@click.option("--rate", type=click.FloatRange(0.1, 1000), default=100.0, show_default=True, help="Ticks a second.")
@click.option(
    "--gpu-cpu",
    type=click.FloatRange(0.1, 100),
    default=0.5,
    show_default=True,
    metavar="PERCENT",
    help="Of one core that asking GPUs may take: NVLink's counters need 2 to 6 for iterations of half a second.",
)
@click.option(
    "--record",
    metavar="FILE.arrows",
    help="Keep all samples: an Arrow IPC stream, whole up to its last second; - is standard output. "
    "Of several hosts: a folder.",
)
@click.option("--from", "recorded", is_flag=True, help="Look at what was kept: FILE.arrows, of several hosts all.")
@click.option("--simulate", metavar="WORDS", help="Look at the curves of a job that is simulated.")
@page_option("Write a page with the curves and the iterations as well.")
@click.option("--cost", is_flag=True, help="Measure what watching costs a tight load on all cores.")
@click.option("--cost-of", metavar="COMMAND", help="The same of another monitor: 'nvidia-smi -l 1'.")
@click.option(
    "--pairs", type=click.IntRange(2, 10_000), default=20, show_default=True, help="Of --cost: about 4 s each."
)
@click.option("--force", is_flag=True, help="Measure the cost also beside another measuring run.")
@json_option()
def watch(**typed: Any) -> int:  # noqa: ANN401 - the options above
    """Iterations, compute and communication share and the best gain of a job, with no knowledge of it.

    Counters of the processor, GPUs, network, RDMA ports and drives are sampled while COMMAND runs, until a process
    ends, or for some seconds. With --json what COMMAND prints goes to standard error.

    WORDS of a simulation are: period= compute= communication= exposed= noise= drift= missing= rate= seconds= seed=
    jitter= change= second=.

    With --hosts each is watched by a railwright of its own there, on one time axis, and is held against the others.

    Exit status: 0 where the curves could be looked at, also where there is no period in them; 3 where there are too
    few samples, or COMMAND failed. Of hosts: 1 where one is unlike the others, 3 where one was not watched to the end.
    Of a cost: 0 below 0.5 %, 1 above, 3 where the pairs do not tell.

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
        return _cost(arguments)
    if arguments.simulate is not None:
        return _simulate(arguments)

    from railwright.verbs.watch import here, hosts

    if not arguments.recorded:
        return here.watch(arguments) if arguments.hosts is None and not arguments.slurm else hosts.watch(arguments)
    if not arguments.command:
        raise UsageError("--from has no recording", hint="give one: --from job.arrows; of several hosts all of them")
    return here.replay(arguments) if len(arguments.command) == 1 else hosts.replay(arguments)


def _refuse_mixed(arguments: Arguments, things: list[str]) -> None:
    """Raises UsageError for two things to watch, and for what is not looked at on other hosts.

    A command may run beside a group or job that is watched.
    """
    command = arguments.command if not arguments.recorded else ()
    if len(things) > 1 or (command and things not in ([], ["--cgroup"], ["--job"])):
        both = " and ".join([*things, *["a command"] * bool(command)])
        raise UsageError(f"what to watch is not clear: {both}", hint="give one of them")
    afar = next((name for name in ("hosts", "lab", "ssh_config", "slurm") if getattr(arguments, name)), "")
    other = next((name for name in things if name not in ("--cgroup", "--job")), "")
    if afar and other:
        option = afar.replace("_", "-")
        raise UsageError(f"{other} is of this machine, and --{option} names others", hint="give one of them")


def _simulate(arguments: Arguments) -> int:
    from railwright.diagnosis.iterations.simulate import parse_job
    from railwright.diagnosis.iterations.trial import tried
    from railwright.report.text.watch import simulated_job_lines

    found = tried(parse_job(arguments.simulate.split()))
    print_answer([found], lambda: simulated_job_lines(found), as_json=arguments.as_json)
    return EXIT_OK


def _cost(arguments: Arguments) -> int:
    """Measure what a monitor costs; 0: shown to be below the threshold, 1: above it, 3: neither."""
    from railwright.report.text.watch import cost_lines
    from railwright.run.exclusive import measuring_alone
    from railwright.watch.cost import Other, Own, cost

    monitor = Own() if arguments.cost_of is None else Other(_words(arguments.cost_of))
    with measuring_alone(arguments.force):
        found = cost(monitor, arguments.pairs, lambda text: click.echo(text, err=True))
    print_answer([found], lambda: cost_lines(found), as_json=arguments.as_json)
    if found.slowed_by_high < found.threshold:
        return EXIT_OK
    return EXIT_SLOW if found.slowed_by_low > found.threshold else EXIT_UNJUDGED


def _words(text: str) -> list[str]:
    """The words of a command, quoted as for a shell, which is not asked. Raises UsageError."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text[:60]!r} is no command: {error}", hint="see how it is quoted") from error
    if not words:
        raise UsageError("--cost-of has no command", hint="give one: --cost-of 'nvidia-smi -l 1'")
    return words
