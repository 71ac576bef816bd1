"""Text for a terminal: its width, its character set, and safe handling of a reader that closes the pipe."""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import TextIO

# Format and control characters can hide or reorder text. Surrogates and private-use characters cannot be displayed.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


_MAX_WIDTH, _MIN_WIDTH = 110, 60
_LABEL = re.compile(r" *\S+(?: \S+)? {2,}")
"""A word or two at the beginning of a line, separated from its text by at least two spaces."""
_IN_ASCII = str.maketrans({
    "│": "|", "├": "|", "└": "`", "─": "-", "┌": "+", "┐": "+", "┘": "+", "┤": "|", "┬": "+", "┴": "+",
    "┼": "+", "→": "->", "←": "<-", "↔": "<->", "\u00d7": "x", "µ": "u", "…": "...", "\u2013": "-",
    "—": "-", "≥": ">=", "≤": "<=",
    "\u2019": "'", "█": "#", "▇": "#", "▆": "#", "▅": "#", "▄": "#", "▃": "#", "▂": "#", "▁": "#", "━": "-", "┃": "|",
})  # fmt: skip


def text_width() -> int:
    """Return the line width, 60 to 110 characters: the width of the terminal or COLUMNS, or 110 for a file."""
    import shutil  # it imports all compression modules, which --help does not need

    is_known = os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty())
    columns = shutil.get_terminal_size((_MAX_WIDTH, 24)).columns if is_known else _MAX_WIDTH
    return max(_MIN_WIDTH, min(_MAX_WIDTH, columns))


def fit(line: str) -> str:
    """Wrap a line at the width of the terminal or COLUMNS, between words, below its label or its own indent.

    Without either, as in a pipe, the line stays whole.
    """
    import shutil
    import textwrap

    is_known = os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty())
    width = max(_MIN_WIDTH // 2, shutil.get_terminal_size((_MAX_WIDTH, 24)).columns)
    if not is_known or len(line) <= width:
        return line
    label = _LABEL.match(line)
    indent = len(label[0]) if label is not None else 0
    if not 0 < indent <= width // 2:
        indent = len(line) - len(line.lstrip()) + 2
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
                         replace_whitespace=False, expand_tabs=False)  # fmt: skip


def wants_colour() -> bool:
    """Report whether standard output shows colours and the user wants them (no-color.org)."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wants_ascii(environment: Mapping[str, str]) -> bool:
    """Report whether the character locale is C or POSIX. UTF-8 is assumed if no locale is set."""
    locale = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    return locale in ("C", "POSIX")


def to_ascii(text: str) -> str:
    """Replace line-drawing characters by ASCII ones, and every other non-ASCII character by an escape."""
    return text if text.isascii() else text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()


class AsciiOutput(io.TextIOWrapper):
    """A text stream that prints ASCII only."""

    def write(self, text: str) -> int:
        """Write the text in ASCII."""
        return super().write(to_ascii(text))


def ascii_stream(stream: TextIO) -> TextIO:
    """Return a stream that prints ASCII to the given one. A stream without a byte buffer is returned unchanged."""
    below = getattr(stream, "buffer", None)
    if below is None:
        return stream
    return AsciiOutput(below, encoding="utf-8", errors="backslashreplace", line_buffering=stream.isatty())


def escape(text: str) -> str:
    """Escape every character that does not print: escape codes, line ends, direction marks."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if _is_unprintable(char) else char for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def escape_json(text: str) -> str:
    """Escape the characters of JSON text that do not print, other than line ends. It remains the same JSON."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(_escape_in_json(char) if char != "\n" and _is_unprintable(char) else char for char in text)


def _escape_in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _is_unprintable(char: str) -> bool:
    return unicodedata.category(char) in _UNPRINTABLE


def drop_output() -> None:
    """Flush the output. If its pipe is closed, discard it, so that the interpreter does not fail on it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if the caller closed it (`>&-`)
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
