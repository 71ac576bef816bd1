"""Exclusive measurement: one run per host at a time, and none on a busy host."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from railwright.errors import CannotJudge

_NAME = "\0railwright-measuring"
BUSY_ABOVE = 0.5


@contextlib.contextmanager
def measuring_alone(force: bool) -> Iterator[None]:
    """Lock the host (its network namespace, to be exact) for one run.

    Raises CannotJudge if it is locked already, unless `force` is set.

    The lock is a name in Linux's abstract socket namespace. The kernel drops it when the process ends, so that there is
    no stale lock and no file.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(_NAME)
        except OSError as error:
            if not force:
                hint = "wait for it to end, or use --force (both results suffer)"
                raise CannotJudge("another railwright run is measuring on this host", hint=hint) from error
        yield


def refuse_busy_host(busy_fraction: float, force: bool) -> None:
    """Raise CannotJudge if other work uses more than half of the CPU time, unless `force` is set."""
    if busy_fraction > BUSY_ABOVE and not force:
        reason = f"this host is busy: {busy_fraction:.0%} of its CPU time in the last second was spent on other work"
        raise CannotJudge(reason, hint="wait until it is idle, or use --force")
