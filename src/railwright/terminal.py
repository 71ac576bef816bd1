"""What may be shown on a terminal, and what happens when its reader leaves."""

from __future__ import annotations

import os
import sys
import unicodedata

# Format and control characters can hide or reorder text; surrogates and private ones cannot be shown at all.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text with every character that does not print (escape codes, line ends, direction marks) as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _UNPRINTABLE else char for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def drop_output() -> None:
    """Let what is buffered for a reader who left go nowhere, so that the interpreter's end does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed before we began (`>&-`)
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
