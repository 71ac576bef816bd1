"""The launcher's command above a table: its numbers of processes and hosts, and the variables that it set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LAUNCHER = re.compile(
    r"(?:^|[\s/;&|(`])(srun|mpirun(?:\.\w{1,12}|_rsh)?|mpiexec(?:\.\w{1,12})?|orterun|prterun|prun)\s(.{1,3000})"
)
_RANKS = re.compile(r"(?:^|\s)(?:-np|-n|--np|--n|-c|--ntasks[= ]|--ntasks)(?:\s{0,4}|=)(\d{1,7})(?=\s|$)")
_HOSTS = re.compile(r"(?:^|\s)(?:-N|--nodes)(?:\s{0,4}|=)(\d{1,6})(?=\s|$)")
_EACH = re.compile(
    r"(?:^|\s)(?:--ntasks-per-node|-ntasks-per-node|-ppn|--ppn|-npernode|--npernode)(?:\s{1,4}|=)(\d{1,6})(?=\s|$)"
    r"|ppr:(\d{1,6}):node"
)
_VARIABLE = re.compile(
    r"\b((?:NCCL|UCX|FI|RCCL|HSA|CUDA|MPICH|MPIR_CVAR|OMPI_MCA)_\w{1,60})="
    r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s\\;\"'`]{1,200}))"
)
_MCA = re.compile(r"-{1,2}(?:g|gp)?mca\s{1,4}(\w{1,60})\s{1,4}([^\s\\;\"'`]{1,200})")
_WORDS = ("NCCL_", "UCX_", "FI_", "HSA_", "CUDA_", "OMPI_", "MPICH_", "MPIR_", "mca ")
_MOST_LINES = 40
_MOST_VARIABLES = 64


class LaunchCommand(NamedTuple):
    """The numbers of processes and hosts by the launcher's options, None if unknown, and the rest of the command."""

    ranks: int | None = None
    hosts: int | None = None
    words: str = ""


def parse_launch_command(above: Sequence[str]) -> LaunchCommand:
    """Parse the last launcher command in these lines. The result is empty if there is none."""
    for place in range(len(above) - 1, max(-1, len(above) - 1 - _MOST_LINES), -1):
        found = _LAUNCHER.search(above[place])
        if found is not None:
            words = " ".join([found[2], *_continuation_lines(above, place)])
            return _parse_words(found[1], words)
    return LaunchCommand()


def _continuation_lines(above: Sequence[str], place: int) -> list[str]:
    """Return the lines after one that ends with a backslash."""
    lines: list[str] = []
    while above[place].rstrip().endswith("\\") and place + 1 < len(above) and len(lines) < _MOST_LINES:
        place += 1
        lines.append(above[place].strip())
    return lines


def _parse_words(launcher: str, words: str) -> LaunchCommand:
    words = words.replace("\\", " ")
    ranks, hosts, each = _number(_RANKS, words), _number(_HOSTS, words), _number(_EACH, words)
    if launcher != "srun" and hosts is not None:  # Open MPI's -N is the number of processes per host
        each, hosts = each or hosts, None
    if ranks is None and hosts is not None:
        ranks = hosts * (each or 1)
    if hosts is None and ranks is not None and each and not ranks % each:
        hosts = ranks // each
    return LaunchCommand(ranks, hosts, words)


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    found = pattern.search(words)
    number = int(next(filter(None, found.groups()), "0")) if found else 0
    return number or None


def parse_environment(lines: Iterable[str]) -> dict[str, str]:
    """Return the variables of communication libraries on which all lines that set them agree.

    A parameter of Open MPI, `--mca btl tcp`, is under the name of its variable, OMPI_MCA_btl.
    """
    found: dict[str, set[str]] = {}
    for line in lines:
        if any(word in line for word in _WORDS):
            for name, *values in _VARIABLE.findall(line):
                found.setdefault(name, set()).add("".join(values).rstrip(".,"))
            for name, value in _MCA.findall(line):
                found.setdefault(f"OMPI_MCA_{name}", set()).add(value)
    agreed = {name: values.pop() for name, values in found.items() if len(values) == 1}
    return dict(list(agreed.items())[:_MOST_VARIABLES])
