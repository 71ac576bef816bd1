"""Texts too long for memory, read once in pieces. NCCL's messages go to their reader; possible table lines are kept.

It keeps the lines that NCCL did not write, and NCCL's lines that help to read a table: the first of each thread,
settings, numbers of ranks, and those that cut a row. The number of the next line replaces omitted lines.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.nccl_log.model import NcclLog
from railwright.results.readers.pasted.log_lines import LEFT_OUT, MAX_CHARACTERS, MAX_LINES

_PLAIN_CHARACTERS = 8 * 2**20
"""The amount of text up to which every line that is not NCCL's is kept. Beyond it, only likely tool output is."""
_LONGEST_LINE = 2**20
_MOST_OF_NCCL = 4096
"""The maximum number of NCCL's lines kept for each reason."""
_MARKS = (b"NCCL INFO ", b"NCCL WARN ")
_TITLES = re.compile(rb"#|IoType: | Test$|_perf|^\s{0,40}SUM ")
_CUT_ROW = re.compile(rb"(?:^|\s)[\d.]{1,24}\s{1,24}[\d.]{1,24}\s")
_MOST_OF_A_ROW = 400


class LongText(msgspec.Struct, frozen=True, kw_only=True):
    """The kept lines of each text, and the NCCL log in all of them."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    log: NcclLog | UsageError | None
    """The error if the log is empty or contradictory; None if NCCL wrote no line."""


def read_long(sources: Sequence[tuple[str, Iterable[bytes]]]) -> LongText:
    """Read each named text in pieces of any size. Raises UsageError if one has too much besides NCCL's log."""
    from railwright.results.readers.nccl_log import log as nccl_log

    kept = [_Kept() for _ in sources]
    of_sources: list[UsageError] = []

    def messages() -> Iterator[tuple[int, str]]:
        try:
            for one, (name, pieces) in zip(kept, sources, strict=True):
                yield from one.take(pieces, name)
        except UsageError as error:
            of_sources.append(error)
            raise

    log: NcclLog | UsageError | None
    lines = messages()
    try:
        log = nccl_log.read_lines(lines)
    except UsageError as error:
        log = error
        if not of_sources:
            collections.deque(lines, maxlen=0)  # the tables after it remain readable
    if of_sources:
        raise of_sources[0]
    if not any(one.has_messages for one in kept):
        log = None
    if isinstance(log, NcclLog):
        log = msgspec.structs.replace(log, lines=sum(one.lines for one in kept))
    return LongText(names=tuple(name for name, _ in sources), texts=tuple(one.text() for one in kept), log=log)


class _Kept:
    """The kept lines of a text."""

    def __init__(self) -> None:
        self.has_messages = False
        self.lines = 0
        self._lines: list[str] = []
        self._characters = 0
        self._last = 0
        self._threads: set[bytes] = set()
        self._cut: set[bytes] = set()
        """The heads among `_threads` that cut a row of a table."""
        self._settings: set[bytes] = set()
        self._ranks = 0

    def text(self) -> str:
        return "\n".join(self._lines)

    def take(self, pieces: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
        """Yield NCCL's lines with their numbers and keep the others. Raises UsageError for too many."""
        for number, line in enumerate(_lines(pieces), 1):
            self.lines = number
            mark = line.find(b"NCCL ")
            if mark >= 0 and (line.startswith(_MARKS, mark) or any(word in line for word in _MARKS)):
                self.has_messages = True
                if self._is_needed(line, mark):
                    self._keep(number, line, name)
                yield number, line.decode("utf-8", errors="replace")
                continue
            if mark >= 0 and line.startswith(b"version ", mark + 5):  # rank 0 prints it without NCCL's mark
                yield number, line.decode("utf-8", errors="replace")
            if self._characters < _PLAIN_CHARACTERS or _may_be_of_a_table(line):
                self._keep(number, line, name)

    def _is_needed(self, line: bytes, mark: int) -> bool:
        head, says = line[:mark], line[mark:]
        is_known = head in self._threads
        if len(self._threads) < _MOST_OF_NCCL and not is_known:
            self._threads.add(head)
            if _CUT_ROW.search(head[:_MOST_OF_A_ROW]):
                self._cut.add(head)
            return True
        if b"NCCL_" in says and len(self._settings) < _MOST_OF_NCCL and says not in self._settings:
            self._settings.add(says)
            return True
        if b" nranks " in says and self._ranks < _MOST_OF_NCCL:
            self._ranks += 1
            return True
        return head in self._cut if is_known else _CUT_ROW.search(head[:_MOST_OF_A_ROW]) is not None

    def _keep(self, number: int, line: bytes, name: str) -> None:
        words = line.decode("utf-8", errors="replace").rstrip("\r").replace(LEFT_OUT, "")
        if number != self._last + 1:
            self._lines.append(f"{LEFT_OUT}{number}")
        self._lines.append(words)
        self._last = number
        self._characters += len(words) + 1
        if self._characters > MAX_CHARACTERS - 16 * len(self._lines) or len(self._lines) >= MAX_LINES - 1:
            raise UsageError(
                f"{name} must have at most {MAX_CHARACTERS // 2**20} MiB and {MAX_LINES} lines of tool output"
                f" besides NCCL's log, got more at line {number}",
                hint="give the part with the table",
            )


def _may_be_of_a_table(line: bytes) -> bool:
    """Report whether a line may be a title or a row: it has the words of a title, or ends in two numbers."""
    last = line[-60:].split()[-2:]
    if len(last) == 2 and all(word[:1].isdigit() or word == b"N/A" for word in last):
        return True
    return _TITLES.search(line[:_MOST_OF_A_ROW]) is not None


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, each truncated to a megabyte."""
    rest, cut = b"", False
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if cut and lines:
            lines[0], cut = lines[0][:_LONGEST_LINE], False
        yield from lines
        if len(rest) > _LONGEST_LINE:
            rest, cut = rest[:_LONGEST_LINE], True
    yield rest
