"""Removal of the number in which a paste ends: 23 of 2383.45 is a wrong rate, and a row without it is a cut row."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"\d{1,19}(\.\d{0,19})?")
_LEAST_ROWS = 2


def drop_cut_number(lines: Sequence[str]) -> str:
    """Return the last of the lines without its last word, if the rows above show that the word is cut.

    A column with a fixed number of decimals has them in each row; in a column that is aligned at its right end, which
    words of unequal length show, each row ends alike.
    """
    last = lines[-1].rstrip()
    words = last.split()
    if len(words) < 2 or _NUMBER.fullmatch(words[-1]) is None:
        return lines[-1]
    above = [line.rstrip() for line in lines[:-1]]
    column = [row[len(words) - 1] for row in map(str.split, above) if len(row) >= len(words)]
    numbers = [word for word in column if _NUMBER.fullmatch(word)]
    decimals = {_count_decimals(word) for word in numbers}
    if len(numbers) < _LEAST_ROWS or len(decimals) > 1:
        return lines[-1]
    if _count_decimals(words[-1]) < max(decimals) or _ends_early(last, above, len(words)):
        return last[: -len(words[-1])].rstrip()
    return lines[-1]


def _count_decimals(word: str) -> int:
    return len(word.partition(".")[2])


def _ends_early(last: str, above: Sequence[str], width: int) -> bool:
    """Report whether rows of as many words all end at one place, which the last row does not reach."""
    rows = [line for line in above if len(line.split()) == width]
    ends = {len(line) for line in rows}
    lengths = {len(line.split()[-1]) for line in rows}
    return len(ends) == 1 and len(lengths) > 1 and len(last) < min(ends)
