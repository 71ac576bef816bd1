"""`railwright watch`: what the curves of a running job tell of its iterations."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.hosts_option import LAB, SSH_CONFIG

COMMAND = command(
    "watch",
    "watch:watch",
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
    """,
    argument("command", nargs=-1, type=click.UNPROCESSED),
    option("--pid", type=click.IntRange(1), help="Watch this process, and those that it has started until now."),
    option("--cgroup", metavar="PATH", help="Watch this control group (version 2), below /sys/fs/cgroup."),
    option("--job", type=click.IntRange(1), metavar="ID", help="Watch this Slurm job, on this node or on the --hosts."),
    option("--here", is_flag=True, help="Watch what runs in our network namespace, as in a host of a lab."),
    option("--hosts", metavar="HOST,HOST...", help="Watch these hosts together, by ssh, in a --lab or netns:NAME."),
    LAB,
    SSH_CONFIG,
    option("--slurm", is_flag=True, help="Watch the nodes of the --job together, or of the Slurm job around us."),
    option("--seconds", type=click.FloatRange(0.1, 1e6), help="Watch so long at most."),
    option("--rate", type=click.FloatRange(0.1, 1000), default=100.0, show_default=True, help="Ticks a second."),
    option(
        "--gpu-cpu",
        type=click.FloatRange(0.1, 100),
        default=0.5,
        show_default=True,
        metavar="PERCENT",
        help="Of one core that asking GPUs may take: NVLink's counters need 2 to 6 for iterations of half a second.",
    ),
    option(
        "--record",
        metavar="FILE.arrows",
        help="Keep all samples: an Arrow IPC stream, whole up to its last second; - is standard output. "
        "Of several hosts: a folder.",
    ),
    option("--from", "recording", is_flag=True, help="Look at what was kept: FILE.arrows, of several hosts all."),
    option("--simulate", "simulated", metavar="WORDS", help="Look at the curves of a job that is simulated."),
    option("--output", "-O", metavar="FILE.html", help="Write a page with the curves and the iterations as well."),
    option("--cost", "with_cost", is_flag=True, help="Measure what watching costs a tight load on all cores."),
    option("--cost-of", metavar="COMMAND", help="The same of another monitor: 'nvidia-smi -l 1'."),
    option("--pairs", type=click.IntRange(2, 10_000), default=20, show_default=True, help="Of --cost: about 4 s each."),
    option("--force", is_flag=True, help="Measure the cost also beside another measuring run."),
    json_option("Print the record that the text is made from."),
)
