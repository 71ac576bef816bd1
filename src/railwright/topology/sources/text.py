"""Parsers of small texts from the kernel: numbers and lists, where garbage becomes None."""

from __future__ import annotations

import re

from railwright.topology.sources.root import Unreadable

_LIST = re.compile(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*")
_MAX_LISTED = 65_536
_MAX_WORD = 200


def number(text: str | Unreadable, base: int = 10) -> int | None:
    """Parse an integer; None if the text is unreadable or not an integer."""
    # `int` accepts digits of every script, and `1_000`; no kernel writes them.
    if isinstance(text, Unreadable) or len(text) > 24 or not text.isascii() or "_" in text:
        return None
    try:
        return int(text, base)
    except ValueError:
        return None


def word(text: str | Unreadable) -> str:
    """Return the first line without outer blanks, at most 200 characters; empty if unreadable."""
    return "" if isinstance(text, Unreadable) else text.strip().partition("\n")[0][:_MAX_WORD].strip()


def kib(content: str, name: str) -> int | None:
    """Return the bytes in a line like `MemTotal:  16384 kB`, None if there is none."""
    match = re.search(rf"(?m)^{name}:\s+(\d{{1,15}}) kB$", content)
    return int(match[1]) * 1024 if match else None


def id_list(text: str | Unreadable) -> tuple[int, ...] | None:
    """Parse a kernel list like `0-3,8`, None if it is not one; an empty text is an empty list."""
    if isinstance(text, Unreadable):
        return None
    text = text.strip()
    if not text:
        return ()
    if len(text) > 8192 or not _LIST.fullmatch(text):
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if len(found) + len(span) > _MAX_LISTED:
            return None
        found.update(span)
    return tuple(sorted(found))
