"""The description of a text that no reader recognises, and the supported tools that come nearest to it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from railwright.explain.job_errors import ERROR_LINE
from railwright.units import format_count

_UNITS = re.compile(
    r"\b(?:[KMGT]i?B/s(?:ec)?|[KMGT]i?Bytes/s(?:ec)?|[KMGT]i?Bps|[KMGT]bps|[KMGT]b(?:it)?s?/s(?:ec)?|IOPS|[KMGT]FLOPS?|usec|[uµμ]s|ms|Mpps|GB/sec|(?:tokens|samples|requests|objects?|files)/s(?:ec)?)\b",
    re.IGNORECASE,
)
_TOOLS: tuple[tuple[str, str, str], ...] = (
    ("nccl-tests", r"nccl|all_?reduce|all_?gather|busbw|algbw|collective|rank|gpu|nvlink",
     "all_reduce_perf -b 1M -e 4G -f 2 -g GPUS on that host settles it: give its whole output"),
    ("NCCL's log", r"nccl|hang|timeout|watchdog|communicator|rank|socket",
     "NCCL_DEBUG=INFO on every rank settles it: give the log"),
    ("perftest", r"ib_|rdma|mlx5|roce|infiniband|qp\b|gid|verbs|mtu|port|link",
     "ib_write_bw -d DEVICE --report_gbits between two hosts settles it: give the client's whole output"),
    ("IMB", r"\bimb\b|imb-\w+|ping(?:pong|ping)|sendrecv|mbytes/sec|#repetitions|t_(?:min|max|avg)\[",
     "mpirun -np 2 IMB-MPI1 PingPong Sendrecv between the two processes settles it: give its own output"),
    ("OSU Micro-Benchmarks", r"\bmpi\w*|osu_|latency|ucx|open ?mpi|mpich|slurm|srun|mpirun",
     "osu_bw and osu_latency between two hosts settle it: give their whole output"),
    ("iperf3", r"tcp|udp|iperf|bits/sec|mbps|gbps|retr|socket|ethernet|\bpod",
     "iperf3 -c HOST -P 8 settles it: give the client's whole output"),
    ("fio", r"iops|nvme|disks?\b|reads?\b|writes?\b|randread|ssd|drives?\b|volumes?\b|blocks?\b|ceph",
     "fio --direct=1 --rw=read --bs=1M --iodepth=32 --name=x --filename=FILE settles it: give its whole output"),
    ("nvbandwidth", r"cuda|memcpy|pcie|h2d|d2h|(?:host|device)[ _]to[ _](?:host|device)|gpu|copy|pinned",
     "nvbandwidth settles it: give its whole output"),
    ("gdsio", r"gds|cufile|gpudirect|storage", "gdsio -x 0 and -x 1 on that file system settle it"),
    ("nixlbench", r"nixl|kv|prefill|decode|vllm|disagg|transfer", "nixlbench between the two hosts settles it"),
    ("ucx_perftest", r"ucx|ucp|uct|rndv|cuda_ipc", "ucx_perftest -t tag_bw HOST settles it: give the client's output"),
    ("STREAM or HPL", r"stream|hpl|linpack|[kmgt]?flops|triad|numa|memory bandwidth", "stream_c or xhpl settles it"),
)  # fmt: skip
_MARKS = tuple((tool, re.compile(rf"(?<![a-z])(?:{mark})", re.IGNORECASE), settles) for tool, mark, settles in _TOOLS)
_NAMES = re.compile(
    r"(?i)\b(?:[nr]ccl(?:-tests)?|\w{2,20}_perf|ib_(?:read|write|send|atomic)_(?:bw|lat)|osu_\w{2,20}|ucx|ucx_perftest"
    r"|libfabric|iperf3?|netperf|fio|gdsio|elbencho|ior|mdtest|imb-\w{2,6}|nvbandwidth|nixl(?:bench)?|deepep|nvshmem|dcgmi?"
    r"|mpirun|srun|vllm|sglang|mlx5_\d{1,2}|lustre|nvlink|infiniband|roce|efa|gpudirect|pytorch|deepspeed|megatron)\b"
)
"""Names of tools, libraries and networks that a text mentions."""
_TESTS = re.compile(
    r"\b(?:(?:all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|scatter|gather|hypercube)_perf"
    r"|ib_(?:read|write|send|atomic)_(?:bw|lat)|osu_[a-z]{2,20}|IMB-[A-Z]\w{1,6}|nvbandwidth|nixlbench|gdsio|iperf3"
    r"|elbencho|mdtest|ucx_perftest|ucc_perftest)\b"
)
"""Names of tests whose output is read."""
_PROGRAM = re.compile(r"\s{0,8}(?:\[[^\]\n]{1,60}\] ?)?([\w./+-]{2,40})(?:\[\d{1,9}\])?: \S")
"""The program that a line of it begins with: `docker: Error ...`."""
_ADDRESS = re.compile(r"https?://[^\s)>]{1,500}")
"""Addresses, whose parts are no units and no names."""
_MAX_NAMES = 6
_SEARCHED = 200_000
_MAX_UNITS = 4
_NEAREST = 3


def describe_text(text: str) -> str:
    """Return the number of lines, the names of tools, the units and the column names that the text has."""
    begin = _ADDRESS.sub(" ", text[:_SEARCHED])
    units = list(dict.fromkeys(found[0] for found in _UNITS.finditer(begin)))[:_MAX_UNITS]
    parts = [format_count(len(text.splitlines()), "line")]
    if names := list(dict.fromkeys(found[0].lower() for found in _NAMES.finditer(begin)))[:_MAX_NAMES]:
        parts.append(f"the name{'s' * (len(names) > 1)} {', '.join(names)}")
    parts += [f"the units {', '.join(units)}"] if units else ["no unit of a rate or a time"]
    if columns := _find_columns(begin):
        parts.append(f"the columns {', '.join(columns)}")
    if error := next((line.strip() for line in begin.split("\n") if ERROR_LINE.search(line[:300])), ""):
        parts.append(f"the error line {error[:120]!r}")
    return ", ".join(parts)


def _find_columns(text: str) -> list[str]:
    """Return the words of the first line that stands above a line of numbers and has as many words."""
    rows = (line for line in text.split("\n")[:2000] if set(line) - set("|-:+= \t"))
    lines = [_split_cells(line) for line in rows]
    for above, below in pairwise(lines):
        numbers = sum(word[:1].isdigit() for word in below)
        if len(above) == len(below) > 1 and numbers * 2 > len(below) and not any(word[:1].isdigit() for word in above):
            return [word[:32].strip(",") for word in above[:6]]
    return []


def _split_cells(line: str) -> list[str]:
    bars = line.strip("# \t")
    if bars.startswith("|") or bars.count(" | ") > 1:
        return [cell.strip() for cell in bars.strip("|").split("|")]
    return bars.split()


def find_error_without_rate(text: str) -> str:
    """Return the program that printed the first error line of a text without a rate; empty without such a line."""
    begin = _ADDRESS.sub(" ", text[:_SEARCHED])
    error = next((line for line in begin.split("\n") if ERROR_LINE.search(line[:300])), "")
    if not error or _UNITS.search(begin):
        return ""
    program = _PROGRAM.match(error)
    return program[1] if program else "the program that printed this error"


def find_named_test(text: str) -> str:
    """Return the test that a text names most often, one whose output is read; empty without one."""
    named = Counter(found[0] for found in _TESTS.finditer(_ADDRESS.sub(" ", text[:_SEARCHED])))
    return named.most_common(1)[0][0] if named else ""


def find_nearest(text: str) -> tuple[tuple[str, str], ...]:
    """Return the nearest tools by the words of the text, each with the command that would settle a question.

    Nothing is near a text without any of their words.
    """
    begin = _ADDRESS.sub(" ", text[:_SEARCHED])
    scores = [
        (len({found[0].lower() for found in mark.finditer(begin)}), tool, settles) for tool, mark, settles in _MARKS
    ]
    scores.sort(key=lambda score: -score[0])
    return tuple((tool, settles) for _, tool, settles in scores[:_NEAREST]) if scores[0][0] else ()
