"""JSON objects among the other lines of a paste, whose lines may have a prefix."""

from __future__ import annotations

import json
import re

from railwright.results.readers.pasted.prefixes import count_parts, skip_parts, unwrap_lines

_BEGINS = re.compile(r"([^\"{}]{0,200})\{\s{0,8}(?:$|\")")
_MOST_TRIES = 50
_DECODER = json.JSONDecoder()


def split_json(text: str) -> tuple[tuple[str, ...], str]:
    """Return the objects that begin on a line of their own, without the prefix of their lines, and the other lines."""
    lines = unwrap_lines(text).split("\n")
    found: list[str] = []
    others: list[str] = []
    place = tries = 0
    while place < len(lines):
        begin = _BEGINS.match(lines[place])
        end = 0
        if begin is not None and tries < _MOST_TRIES:
            tries += 1
            skipped = count_parts(begin[1])
            body = "\n".join(skip_parts(line, skipped) if skipped else line for line in lines[place:])
            end = _find_end(body)
            found += [body[:end]] if end else []
        if end:
            place += body[:end].count("\n") + 1
        else:
            others.append(lines[place])
            place += 1
    return tuple(found), "\n".join(others)


def _find_end(text: str) -> int:
    """Return the end of the object with which a text begins; 0 if it is not one."""
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return 0
    return end
