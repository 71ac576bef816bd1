"""Ends what somebody asks to end, by Ctrl-C, SIGTERM or SIGHUP, and lets it give back first what it changed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Ended(Exception):
    """Somebody asked for the end, or the parent died."""


def _end(_number: int, _frame: object) -> None:
    raise _Ended


@contextlib.contextmanager
def ended_by_signal() -> Iterator[None]:
    """Leave the body, quietly, when somebody asks for the end."""
    before = {number: signal.signal(number, _end) for number in _ENDS}
    try:
        yield
    except _Ended:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def hold(change: Callable[[], None], give_back: Callable[[], object]) -> None:
    """Change, wait for the end, and give back, whatever comes between. Within `ended_by_signal`."""
    try:
        change()
        while True:
            signal.pause()
    finally:
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)  # a second one must not come between
        give_back()
