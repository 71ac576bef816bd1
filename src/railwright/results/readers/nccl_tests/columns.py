"""The columns of an nccl-tests table: by its header, and by its rows where the header is not in the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from railwright.results.readers.nccl_tests.table import TYPE_BYTES
from railwright.results.readers.nccl_tests.torn import begins_row

_ROW = re.compile(
    r"(?:^|\s)\d{1,19}\s{1,24}\d{1,19}\s{1,12}(?:"
    + "|".join(TYPE_BYTES)
    + r")(?:\s{1,12}[a-z]{3,12}\s{1,12}-?\d[\d.]{0,20}(?:[\s\[]|$)"
    r"|(?:\s{1,12}\d{1,9}\.\d{1,2}){3}\s{1,12}(?:\de[+-]\d\d|N/A)(?:\s|$))"
)
"""With the reduction and its root, or, of collectives without them, with the first half and its error."""


def has_rows(text: str) -> bool:
    """Whether a text without the header has rows: the end of a long table."""
    types = [word for name in TYPE_BYTES if (word := f" {name} ") in text]
    lines = (line for line in text.split("\n") if any(word in line for word in types)) if types else ()
    return any(_ROW.search(line[:400]) for line in lines)


def is_header(text: str) -> bool:
    """Whether a line is the header of a table, be it with columns cut out."""
    columns = text.lstrip("# ").split()
    return (
        columns[:1] == ["size"] and {"time", "cputime"} & set(columns) != set() and {"algbw", "busbw"} <= set(columns)
    )


def columns_of_row(words: Sequence[str]) -> list[str]:
    """The columns of a table whose header is not in the text, by the words of its row; none where it is no row."""
    if not begins_row(words):
        return []
    redop = ["redop"] if len(words) > 3 and words[3].isalpha() else []
    values = words[3 + len(redop) :]
    root = ["root"] if len(values) in (5, 9) else []
    wrong = "error" if any("e-" in word for word in values) else "#wrong"
    halves = (len(values) - len(root)) // 4
    if halves not in (1, 2) or len(values) != len(root) + 4 * halves:
        return []
    return ["size", "count", "type", *redop, *root, *["time", "algbw", "busbw", wrong] * halves]
