"""Lists of CPUs and of NUMA nodes as the kernel writes them: `0-15,32`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

_MAX_RANGE = 8192
"""Longer ranges are cut off here: Linux has no more CPUs."""


def parse_cpu_list(text: str) -> set[int]:
    """Return the numbers in a list, without parts that are neither a number nor a range."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), int(first) + _MAX_RANGE) + 1))
    return found


def format_cpu_list(numbers: Iterable[int]) -> str:
    """Format numbers as such a list, in rising order."""
    following = itertools.groupby(enumerate(sorted(numbers)), key=lambda place: place[1] - place[0])
    found = [[number for _, number in run] for _, run in following]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)
