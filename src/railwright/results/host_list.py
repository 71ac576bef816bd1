"""Host lists in Slurm's notation: `node[001-004,7],login` is node001 to node004, node7 and login."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")
_PART = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]*)\])?(?:,|$)")
_RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_HOSTS = 100_000


def format_hosts(names: Iterable[str]) -> str:
    """Format names in the given order. Consecutive numbers become a range."""
    taken = [(found[1], found[2]) if (found := _NUMBERED.fullmatch(name)) else (name, "") for name in names]
    parts = []
    for (stem, is_numbered), group in groupby(taken, lambda one: (one[0], bool(one[1]))):
        numbers = [number for _, number in group]
        if not is_numbered:
            parts += [stem] * len(numbers)
        elif len(numbers) == 1:
            parts.append(stem + numbers[0])
        else:
            parts.append(f"{stem}[{','.join(_format_runs(numbers))}]")
    return ",".join(parts)


def _format_runs(numbers: list[str]) -> Iterator[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        if number and number == str(int(last) + 1).zfill(len(first)):
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number


def parse_host_list(text: str) -> tuple[str, ...]:
    """Parse the output of `format_hosts`. Returns an empty tuple for other text, or above 100,000 hosts."""
    names: list[str] = []
    place = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or part.end() == place:
            return ()
        place = part.end()
        numbers = [""] if part[2] is None else _expand_numbers(part[2], _MOST_HOSTS - len(names))
        if not numbers:
            return ()
        names += [part[1] + number for number in numbers]
    return tuple(names)


def _expand_numbers(text: str, limit: int) -> list[str]:
    found: list[str] = []
    for word in text.split(","):
        run = _RUN.fullmatch(word)
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if run is None or not 0 <= last - first < limit - len(found):
            return []
        found += [str(number).zfill(len(run[1])) for number in range(first, last + 1)]
    return found
