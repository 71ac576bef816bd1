"""An orderly end on Ctrl-C, SIGTERM and signals like it, which restores changed settings first."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


class _Ended(Exception):
    """Any of the signals arrived."""


def _end(_number: int, _frame: object) -> None:
    raise _Ended


@contextlib.contextmanager
def ended_by_signal() -> Iterator[None]:
    """Leave the body without an exception on one of the signals."""
    before = {number: signal.signal(number, _end) for number in _ENDS}
    try:
        yield
    except _Ended:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def hold(change: Callable[[], None], give_back: Callable[[], object]) -> None:
    """Apply a change, wait for a signal, and always restore. Call it within `ended_by_signal`."""
    try:
        change()
        while True:
            signal.pause()
    finally:
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the restoration
        give_back()
