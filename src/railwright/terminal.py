"""What may be shown on a terminal, how wide and in which characters, and what happens when its reader leaves."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Mapping
from typing import TextIO

# Format and control characters can hide or reorder text; surrogates and private ones cannot be shown at all.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


_WIDEST, _NARROWEST = 110, 60
_IN_ASCII = str.maketrans({
    "│": "|", "├": "|", "└": "`", "─": "-", "┌": "+", "┐": "+", "┘": "+", "┤": "|", "┬": "+", "┴": "+",
    "┼": "+", "→": "->", "←": "<-", "↔": "<->", "\u00d7": "x", "µ": "u", "…": "...", "\u2013": "-",
    "—": "-", "≥": ">=", "≤": "<=",
    "\u2019": "'", "█": "#", "▇": "#", "▆": "#", "▅": "#", "▄": "#", "▃": "#", "▂": "#", "▁": "#", "━": "-", "┃": "|",
})  # fmt: skip


def text_width() -> int:
    """Characters of a line of text: those of the terminal, or COLUMNS, from 60 to 110; a file has 110."""
    import shutil  # it loads every packer of files, and --help needs none

    told = os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty())
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns if told else _WIDEST
    return max(_NARROWEST, min(_WIDEST, columns))


def wants_ascii(environment: Mapping[str, str]) -> bool:
    """Whether the locale for characters was set to C or POSIX; where none is set, UTF-8 is taken."""
    told = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    return told in ("C", "POSIX")


def to_ascii(text: str) -> str:
    """The text with lines drawn in ASCII, and any other character as an escape."""
    return text if text.isascii() else text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()


class AsciiOutput(io.TextIOWrapper):
    """A stream of text that prints ASCII only."""

    def write(self, text: str) -> int:
        """Writes the text in ASCII."""
        return super().write(to_ascii(text))


def ascii_stream(stream: TextIO) -> TextIO:
    """The stream, printing ASCII; one that has no bytes below it stays as it is."""
    below = getattr(stream, "buffer", None)
    if below is None:
        return stream
    return AsciiOutput(below, encoding="utf-8", errors="backslashreplace", line_buffering=stream.isatty())


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
