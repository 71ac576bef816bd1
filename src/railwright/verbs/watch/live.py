"""The live display of a watch: curves with keys on a terminal, or else lines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import click
from rich.console import Console
from rich.live import Live as InPlace
from rich.text import Text

from railwright.report.pictures.watch import View, picture_lines
from railwright.watch.now import Bins, longest_recording_s

_Seen = TypeVar("_Seen")
HostBins = Sequence[tuple[str, Bins | str]]
"""The name of each host, with its bins or the reason why there are none."""
_PLAIN_EVERY_S = 10
_ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
_MAX_KEY_BYTES = 64


class Live(Generic[_Seen]):
    """A display as a context manager. Call it once a second with the new samples. Prints nothing if `quiet`."""

    def __init__(self, told: Callable[[_Seen], HostBins], line: Callable[[HostBins], str], *, quiet: bool) -> None:
        """Create the display. `told` converts samples to bins, and runs in the thread that calls the display."""
        self._told_by, self._line, self._quiet = told, line, quiet
        self._calls = 0
        self._told: HostBins = ()
        self._view = View()
        self._drawing = threading.Lock()
        self._console = Console(stderr=True, highlight=False)
        self._in_place: InPlace | None = None
        self._has_keys = False

    def __enter__(self) -> Live[_Seen]:
        self._open = contextlib.ExitStack()
        if not self._quiet and sys.stderr.isatty():
            self._in_place = InPlace(console=self._console, transient=True, auto_refresh=False)
            self._open.enter_context(self._in_place)
            if sys.stdin is not None and sys.stdin.isatty() and _is_foreground(sys.stdin.fileno()):
                self._open.enter_context(self._keys(sys.stdin.fileno()))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __call__(self, seen: _Seen) -> None:
        """Update the display. Call it once a second."""
        self._calls += 1
        if self._quiet:
            return
        self._told = self._told_by(seen)
        if self._in_place is not None:
            self._draw()
        elif self._calls % _PLAIN_EVERY_S == 0:
            click.echo(self._line(self._told), err=True)

    def _draw(self) -> None:
        with self._drawing:
            assert self._in_place is not None
            columns, rows = self._console.size
            lines = picture_lines(self._told, self._view, columns, rows - 1, keys=self._has_keys)
            text = Text("\n".join(lines), no_wrap=True, overflow="crop")
            self._in_place.update(text, refresh=True)

    @contextlib.contextmanager
    def _keys(self, terminal: int) -> Iterator[None]:
        """Handle keys as they are pressed. Ctrl-C keeps its meaning, and the terminal is restored at the end."""
        before = termios.tcgetattr(terminal)
        ended, woken = os.pipe()
        thread = threading.Thread(target=self._take_keys, args=(terminal, ended), daemon=True)
        self._has_keys = True
        try:
            tty.setcbreak(terminal, termios.TCSANOW)
            thread.start()
            yield
        finally:
            os.write(woken, b"\n")
            thread.join()
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            os.close(ended)
            os.close(woken)

    def _take_keys(self, terminal: int, ended: int) -> None:
        while True:
            ready, _, _ = select.select([terminal, ended], [], [])
            if ended in ready:
                return
            try:
                pressed = os.read(terminal, _MAX_KEY_BYTES).decode("ascii", "replace")
            except OSError:  # the terminal is gone
                return
            if not pressed or "q" in pressed:
                os.kill(os.getpid(), signal.SIGINT)  # ends like Ctrl-C, with an analysis of the samples so far
                return
            now_s = longest_recording_s(self._told)
            for key in parse_keys(pressed):
                self._view = self._view.apply_key(key, now_s)
            if self._told:
                self._draw()


def parse_keys(pressed: str) -> Iterator[str]:
    """Yield the keys in a terminal's input. Arrow keys are `up`, `down`, `left` and `right`."""
    while pressed:
        arrow = next((code for code in _ARROWS if pressed.startswith(code)), "")
        yield _ARROWS.get(arrow, pressed[0])
        pressed = pressed[len(arrow) or 1 :]


def _is_foreground(terminal: int) -> bool:
    """Report whether we are in the foreground. Setting the terminal from the background would stop the process."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
