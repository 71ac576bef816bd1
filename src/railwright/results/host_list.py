"""Host lists in Slurm's notation: `node[001-004,7],login` is node001 to node004, node7 and login."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")
_TERM = re.compile(r"(?:[^,\[\]]|\[[0-9,-]*\])+")
_PIECE = re.compile(r"\[([0-9,-]*)\]|([^\[\]]+)")
_RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_HOSTS = 100_000
_ANY_HOST = "HOST"


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


def fold_sentences(said: Mapping[str, str]) -> list[str]:
    """Join sentences that differ in their host alone. A joined one begins with the list of its hosts.

    `said` maps each host to a sentence that names it. Where a joined sentence names its host again, it says HOST.
    """
    alike: dict[str, list[str]] = {}
    for host, sentence in said.items():
        general = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", _ANY_HOST, sentence)
        alike.setdefault(general, []).append(host)
    return [
        said[hosts[0]] if len(hosts) == 1 else general.replace(_ANY_HOST, format_hosts(hosts), 1)
        for general, hosts in alike.items()
    ]


def parse_host_list(text: str) -> tuple[str, ...]:
    """Parse a list in Slurm's notation, with any number of brackets in a name: `rack[1-2]n[01-16]-ib,login`.

    Returns an empty tuple for other text, or above 100,000 hosts.
    """
    names: list[str] = []
    place = 0
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None or text[term.end() : term.end() + 1] not in ("", ","):
            return ()
        place = term.end() + 1
        expanded = _expand_term(term[0], _MOST_HOSTS - len(names))
        if not expanded:
            return ()
        names += expanded
    return tuple(names)


def _expand_term(term: str, limit: int) -> list[str]:
    """Expand a name with brackets, the last bracket fastest. Empty if one is invalid, or above `limit` names."""
    found = [""]
    for piece in _PIECE.finditer(term):
        ends = [piece[2]] if piece[1] is None else _expand_numbers(piece[1], limit // len(found) if found else 0)
        found = [name + end for name in found for end in ends]
    return found if len(found) <= limit else []


def _expand_numbers(text: str, limit: int) -> list[str]:
    found: list[str] = []
    for word in text.split(","):
        run = _RUN.fullmatch(word)
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if run is None or not 0 <= last - first < limit - len(found):
            return []
        found += [str(number).zfill(len(run[1])) for number in range(first, last + 1)]
    return found
