"""An orderly end on Ctrl-C, SIGTERM and signals like it, which restores changed settings first."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


class _Ended(Exception):
    """Any of the signals arrived."""


def _end(_number: int, _frame: object) -> None:
    for number in _ENDS:  # a second signal must not interrupt the restoration
        signal.signal(number, _pass_over)
    raise _Ended


def _pass_over(_number: int, _frame: object) -> None:
    pass


@contextlib.contextmanager
def ended_by_signal() -> Iterator[None]:
    """Leave the body without an exception on one of the signals; later ones have no effect within the body."""
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
        _wait()
    finally:
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)  # nor may it end a command of the restoration
        give_back()


def _wait() -> None:
    """Wait for a signal, whose handler raises.

    Every signal leaves its number, also one that arrived just before. `signal.pause` would wait for a second one then.
    """
    end, other_end = socket.socketpair()
    with end, other_end:
        other_end.setblocking(False)
        try:
            signal.set_wakeup_fd(other_end.fileno())
            while end.recv(1)[0] not in _ENDS:
                pass
        finally:
            signal.set_wakeup_fd(-1)
