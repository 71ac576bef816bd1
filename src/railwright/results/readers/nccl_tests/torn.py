"""Rows of an nccl-tests table that NCCL's log cut apart.

nccl-tests prints a row in three parts (size to root, out of place, in place) and ends only the last one with a new line
(nccl-tests src/common.cu). With NCCL_DEBUG=INFO, messages of NCCL directly follow a part:

     1048576        262144     float     sum      -1node0:4263:4263 [0] NCCL INFO AllReduce: 1048576 Bytes -> ...
    79.32   13.22   13.22       0node0:4263:4263 [0] NCCL INFO AllReduce: 1048576 Bytes -> ...

Parts are joined only if each ends at one of these places. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from railwright.results.readers.pasted.log_lines import Line, refusal

_MARKS = ("NCCL INFO ", "NCCL WARN ")
_MAX_PREFIX = 400
_MAX_WRITERS = 10_000
_MAX_NUMBER = 40
_DEVICE = re.compile(r"\[-?\d{1,4}\]")
_ONE_NUMBER = re.compile(r"-?\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,3})?|N/A")


def find_writers(lines: Iterable[Line]) -> frozenset[str]:
    """Return the `host:pid` of lines that only NCCL wrote."""
    writers: set[str] = set()
    for line in lines:
        found = _prefix(line.text)
        if found is not None and not line.text[: found[0]].strip() and len(writers) < _MAX_WRITERS:
            writers.add(found[1])
    return frozenset(writers)


def extract_output(text: str, writers: frozenset[str]) -> tuple[str, bool]:
    """Return the program's part of a line, and whether NCCL's log cut it off there.

    Returns the whole line unless exactly one known writer can follow the last number.
    """
    found = _prefix(text)
    if found is None:
        return text, False
    start, writer = found
    before = text[:start]
    if not before.strip():
        return "", True
    limit = min(len(writer), _MAX_NUMBER)
    ends = [end for end in range(limit) if writer[end:] in writers and (not end or _is_number(writer[:end]))]
    return (before + writer[: ends[0]], True) if len(ends) == 1 else (text, False)


class TornRow(msgspec.Struct):
    """A row without its end. `starts` are the offsets of its two halves, `width` is its number of columns."""

    line: int
    words: list[str]
    starts: tuple[int, ...]
    width: int
    stamp: int
    """The number of words that a time stamp adds at the end."""

    def add(self, words: Sequence[str], *, is_cut: bool, line: int) -> bool:
        """Add the next part, and report whether the row is complete. Raises UsageError for a wrong part.

        Words that are not numbers belong to other output and are ignored.
        """
        numbers = words[: -self.stamp] if self.stamp and len(self.words) + len(words) > self.width else words
        if not words or not all(_is_number(word) for word in numbers):
            return False
        found = len(self.words) + len(words)
        whole = found in (self.width, self.width + self.stamp)
        if not whole and not (is_cut and found in self.starts):
            raise refusal(
                line, f"the row of line {self.line} must have {self.width} columns, got {found} after its next part"
            )
        self.words += words
        return whole

    @property
    def is_first_half(self) -> bool:
        """Report whether the row holds exactly everything up to the end of its out-of-place half."""
        return len(self.starts) > 1 and len(self.words) == self.starts[1]


def _is_number(word: str) -> bool:
    return _ONE_NUMBER.fullmatch(word) is not None


def _prefix(text: str) -> tuple[int, str] | None:
    """Find `host:pid:thread [device]` of the first message of NCCL. Returns its offset and its `host:pid`.

    Unlike in `nccl_log.lines`, any output of nccl-tests may precede the name, such as `N/A`.
    """
    mark = min((place for place in map(text.find, _MARKS) if place >= 0), default=-1)
    if mark < 0:
        return None
    start = max(0, mark - _MAX_PREFIX)
    words = list(re.finditer(r"\S+", text[start:mark]))
    device = next((n for n in range(len(words) - 1, -1, -1) if _DEVICE.fullmatch(words[n].group())), 0)
    if device < 1:
        return None
    parts = words[device - 1].group().rsplit(":", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        return None
    return start + words[device - 1].start(), f"{parts[0]}:{parts[1]}"
