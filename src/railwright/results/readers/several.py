"""Texts with the outputs of several tools, one behind the other: each reader is given the lines that are its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from railwright.results.readers.foreign_file import Reader

_NUMBER = re.compile(r"[\d.,:+-]*\d[\d.,:%a-zA-Z/]*")
_LEAST_WORDS = 2


def apart(text: str, readers: Sequence[Reader]) -> Iterator[tuple[Reader, str]]:
    """Each reader with its part of the text; the lines of the others are empty there, so that the numbers stay.

    A reader whose fixed words stand on several lines has the whole text: its rows are like no other's.
    """
    lines = text.split("\n")
    claims = [(place, by[0]) for place, line in enumerate(lines) if len(by := _claimed(line, readers)) == 1]
    owners = _owners(lines, claims)
    for reader in readers:
        if reader in owners:
            own = (line if owner is reader else "" for line, owner in zip(lines, owners, strict=True))
            yield reader, "\n".join(own)
        else:
            yield reader, text


def _claimed(line: str, readers: Sequence[Reader]) -> list[Reader]:
    return [reader for reader in readers if line and reader.recognises(line)]


def _owners(lines: list[str], claims: list[tuple[int, Reader]]) -> list[Reader]:
    """The reader of each line: what stands between the last row of one table and the next header is of the next."""
    owners: list[Reader] = []
    for (place, reader), (following, other) in zip(claims, [*claims[1:], (len(lines), None)], strict=False):
        end = following
        if other not in (reader, None):
            rows = (at for at in range(following - 1, place, -1) if _is_row(lines[at]))
            end = next(rows, place) + 1
        owners += [reader] * (end - len(owners))
        if other is not None:
            owners += [other] * (following - len(owners))
    return owners


def _is_row(line: str) -> bool:
    """Whether most words of a line are numbers."""
    words = line.split()
    return len(words) >= _LEAST_WORDS and 2 * sum(_NUMBER.fullmatch(word) is not None for word in words) >= len(words)
