"""The messages of NCCL in a text to which ranks, launchers and programs write at the same time.

A message begins with `host:pid:thread [device] NCCL INFO ` (INFO) or `host:pid:thread [device] file:line NCCL WARN `
(NCCL src/debug.cc, 2.4 to 2.30). Since 2.20 a time stamp may precede it, and so may the prefix of a launcher.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAX_MESSAGE = 4096
_MAX_PREFIX = 300
_MAX_OUTPUT = 40
_MAX_ON_LINE = 64
_MAX_KNOWN = 10_000
_MARK = re.compile(r"NCCL (?:INFO|WARN) ")
_DEVICE = re.compile(r"\[(-?\d{1,4})\][ \t](?:\S{1,120}:\d{1,6} (?:\(\S{1,80}\) )?)?$")
# A launcher's prefix may precede the name without a space: `[1,0]<stdout>:node0:25:25`.
_WRITER = re.compile(r"(?:.*:)?(<[\w.-]{1,64}>|[\w.-]{1,255}):([0-9]+):([0-9]+)")
# The only line without a prefix, printed by rank 0 of NCCL up to 2.22.
_BARE_VERSION = re.compile(r"(?:^|[\s:>])(NCCL version \d\S{0,60})\s*$")


class Message(NamedTuple):
    """A message with its line number, counted from 1."""

    line: int
    host: str
    pid: int
    thread: int
    device: int | None
    warn: bool
    text: str


class _Prefix(NamedTuple):
    """The writer of a message; `start` is the offset of the prefix in the searched text."""

    start: int
    host: str
    pid: int
    thread: int
    device: int


class _Piece(NamedTuple):
    """A message within a line, with the text before it."""

    before: str
    warn: bool
    text: str


def split(text: str) -> Iterator[Message]:
    """Yield all messages of a text, in order."""
    return read_messages(enumerate(text.split("\n"), 1))


def read_messages(lines: Iterable[tuple[int, str]]) -> Iterator[Message]:
    """Yield all messages of numbered lines, in order."""
    hosts: set[str] = set()
    known: dict[str, tuple[int, Message]] = {}  # a thread writes many lines with the same text before them
    for number, line in lines:
        mark = line.find("NCCL ")
        if mark < 0:
            continue
        if line.startswith("INFO ", mark + 5) and line.find("NCCL ", mark + 10) < 0:  # nearly every line
            if text := line[mark + 10 : mark + 10 + _MAX_MESSAGE].rstrip():
                before = line[:mark]
                count, message = known.get(before, (-1, None))
                if message is None or count != len(hosts):
                    message = _message(number, _Piece(before[-_MAX_PREFIX:], warn=False, text=text), hosts)
                    if len(known) < _MAX_KNOWN:
                        known[before] = len(hosts), message
                yield Message(number, message.host, message.pid, message.thread, message.device, False, text)
            continue
        pieces = _pieces(line)
        if not pieces and (bare := _BARE_VERSION.search(line[:200])):
            yield Message(number, "", 0, 0, None, False, bare[1])
        for piece in pieces:
            if piece.text:
                yield _message(number, piece, hosts)


def _pieces(line: str) -> list[_Piece]:
    """Split a line into its messages. It has several if two processes wrote at the same time."""
    marks = list(itertools.islice(_MARK.finditer(line), _MAX_ON_LINE + 1))
    pieces: list[_Piece] = []
    for place, mark in enumerate(marks[:_MAX_ON_LINE]):
        start = marks[place - 1].end() if place else 0
        end = marks[place + 1].start() if place + 1 < len(marks) else len(line)
        text = line[mark.end() : min(end, mark.end() + _MAX_MESSAGE)]
        if end < len(line) and end - mark.end() <= _MAX_MESSAGE and (following := _prefix(text)):
            text = text[: following.start]
        before = line[max(start, mark.start() - _MAX_PREFIX) : mark.start()]
        pieces.append(_Piece(before, "WARN" in mark.group(), text.rstrip()))
    return pieces


def _prefix(before: str) -> _Prefix | None:
    """Find the prefix at the end of `before`. Searching from the end makes a long line as cheap as a short one."""
    bracket = before.rfind("[", max(0, len(before) - _MAX_PREFIX))
    found = _DEVICE.match(before, bracket) if bracket >= 0 else None
    if found is None:
        return None
    device = int(found[1])
    first = max(0, bracket - _MAX_PREFIX)
    words = before[first:bracket].rstrip()
    writer = _WRITER.fullmatch(words, max(words.rfind(" "), words.rfind("\t")) + 1)
    if writer is None:
        return _Prefix(bracket, "", 0, 0, device)
    return _Prefix(first + writer.start(1), writer[1], int(writer[2][:10]), int(writer[3][:10]), device)


def _message(number: int, piece: _Piece, hosts: set[str]) -> Message:
    found = _prefix(piece.before)
    if found is None:
        return Message(number, "", 0, 0, None, piece.warn, piece.text)
    host = found.host
    if not piece.before[: found.start].strip():
        hosts.add(host)
    elif host not in hosts:
        # Output of the program directly precedes the name: `-1node0:795:795`.
        host = next((host[cut:] for cut in range(1, min(len(host), _MAX_OUTPUT)) if host[cut:] in hosts), host)
    return Message(number, host, found.pid, found.thread, found.device, piece.warn, piece.text)
