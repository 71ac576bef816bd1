"""`railwright explain FILE`: what a known tool printed, held against the machine it ran on; measures nothing."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.machine_option import CLUSTER, MachineCommand

COMMAND = command(
    "explain",
    "explain:explain_file",
    """Is what a known tool printed normal for its machine, and if not, why? Without FILE: standard input.

    Reads nccl-tests, OSU, the Intel MPI Benchmarks, perftest, ucx_perftest, nixlbench, nvbandwidth, gdsio, fio,
    elbencho, IOR, mdtest, iperf3, STREAM, HPL, HPCG, NCCL's log (NCCL_DEBUG=INFO) and our own records.

    \b
    railwright explain all_reduce.txt --host hgx-h100 --count 16
    railwright explain nccl.log --host hgx-h100 nics=2 --count 2
    railwright explain all_reduce.txt nccl.node*.log --host hgx-h100 --count 2
    railwright explain osu_bw.txt --beside out/results.jsonl
    """,
    argument("files", metavar="[FILE]...", nargs=-1),
    *CLUSTER,
    option("--beside", metavar="RUN", help="A run of ours on the same host, for tables of OSU inside that host."),
    option("--path", "between", default="", metavar="A:B", help="What a point-to-point table is about: gpu0:gpu0@1."),
    option("--collective", default="", metavar="NAME", help="What a table that does not say it is of: all_gather."),
    option("--svg", type=click.Path(), help="Draw the rings of an NCCL log over the machine."),
    json_option("Print one JSON record for each run in the file."),
    cls=MachineCommand,
)
