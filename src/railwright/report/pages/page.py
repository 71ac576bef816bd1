"""Paragraphs and headings for all text reports, safe for text from any source."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from railwright.report.text import wording

_COLUMNS_OF_A_FILE = 140
_BLANKS = re.compile(r" +$", re.MULTILINE)


def standard_output() -> Console:
    """Return the console for reports: as wide as the terminal or COLUMNS, otherwise 140 columns.

    In a file or a pipe no line ends with the blanks that fill a column.
    """
    console = Console()
    if console.is_terminal:
        return console
    width = None if "COLUMNS" in os.environ else _COLUMNS_OF_A_FILE
    return Console(width=width, file=cast("TextIO", _Trimmed(sys.stdout)))


class _Trimmed:
    """A text stream that writes lines without blanks at their end. Each write must end with a whole line."""

    def __init__(self, below: TextIO) -> None:
        self._below = below

    def write(self, text: str) -> int:
        """Write the text."""
        return self._below.write(_BLANKS.sub("", text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)


def escape_unprintable(text: str, console: Console) -> str:
    """Escape the characters that are not printable or that the console's encoding lacks."""
    shown = wording.escape(text)
    try:
        return shown.encode(console.encoding, "backslashreplace").decode(console.encoding)
    except LookupError:
        return shown.encode("ascii", "backslashreplace").decode("ascii")


class Page:
    """Text on a console, fitted to its width."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def text(self, words: str, style: str = "") -> Text:
        """Return text that is safe to print; long words are folded, never cut."""
        return Text(escape_unprintable(words, self.console), style=style, overflow="fold")

    def line(self, words: str = "", style: str = "", indent: int = 0) -> None:
        """Print a paragraph, wrapped under its own indent."""
        self.console.print(Padding(self.text(words, style), (0, 0, 0, indent), expand=False))

    def heading(self, words: str) -> None:
        """Print a blank line and a heading."""
        self.console.print()
        self.line(words, "bold")

    def grid(self, columns: Sequence[Column], *rows: Sequence[Text], gap: int = 2, indent: int = 0) -> None:
        """Print rows of cells in columns."""
        grid = Table.grid(*(column.copy() for column in columns), padding=(0, gap, 0, 0))
        for row in rows:
            grid.add_row(*row)
        self.console.print(Padding(grid, (0, 0, 0, indent), expand=False))
