"""The line of what goes on now, while something is watched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Generic, TypeVar

import click

_Seen = TypeVar("_Seen")
_PLAIN_EVERY_S = 10


class Live(Generic[_Seen]):
    """The line is written in place on a terminal, elsewhere now and then, and never where it is quiet."""

    def __init__(self, line_of: Callable[[_Seen], str], *, quiet: bool) -> None:
        self._line_of, self._quiet = line_of, quiet
        self._calls = 0
        self._in_place = sys.stderr.isatty()

    def __call__(self, seen: _Seen) -> None:
        """Tell it, once a second."""
        self._calls += 1
        if self._quiet or (not self._in_place and self._calls % _PLAIN_EVERY_S):
            return
        line = self._line_of(seen)
        click.echo(f"\r\x1b[K{line}" if self._in_place else line, err=True, nl=not self._in_place)
