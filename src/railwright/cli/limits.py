"""`railwright limits`: what each path and collective can reach, and why; measures nothing."""

from __future__ import annotations

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.machine_option import CLUSTER, MachineCommand

COMMAND = command(
    "limits",
    "limits:limits",
    """The limit of each path or of a collective, with what holds it back and its source.

    A path is two device ids, like 'gpu0>nic0' (quote the >); 'gpu0>gpu0' is a copy inside one GPU.
    Without a path, those that matter are shown.

    \b
    railwright limits 'gpu0>fabric0' --host hgx-h100 nics=2 nic-rate=200Gb/s
    railwright limits --host hgx-h100 nics=4 --count 16 --collective all_to_all
    railwright limits --host aws-p5 --count 3 --path gpu0:gpu0@2
    """,
    argument("paths", nargs=-1, metavar="['SOURCE>TARGET']..."),
    *CLUSTER,
    option("--path", "between", multiple=True, metavar="A:B", help="Between machines, like gpu0:gpu0@2."),
    option("--collective", "-c", metavar="NAME", help="all_reduce, all_gather, all_to_all ... over all GPUs."),
    option("--algorithm", "-a", default="auto", show_default=True, help="ring, tree, nvls ... instead of the best."),
    option("--size", metavar="BYTES", help="What to expect at this size, like 64K."),
    json_option("Print one JSON record for each path or collective."),
    cls=MachineCommand,
)
