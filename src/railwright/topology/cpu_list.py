"""Lists of CPUs and of NUMA nodes as the kernel writes them: `0-15,32`."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 8192
"""CPUs of one range that are believed: Linux has no more."""


def parse_cpu_list(text: str) -> set[int]:
    """The numbers in a list; what is no number or range in it is left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), int(first) + _MOST) + 1))
    return found


def format_cpu_list(numbers: Iterable[int]) -> str:
    """The list of some numbers, in rising order."""
    ends: list[list[int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
