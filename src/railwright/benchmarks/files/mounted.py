"""Queries to a mount that may never answer: its server is gone, or its file system hangs.

A call that hangs in the kernel cannot be cancelled, and a process with such a thread cannot exit. A child therefore
tries first. The query itself then runs in a thread that can be abandoned, because the mount may stall in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from railwright.errors import CannotJudge
from railwright.native.mount import answers
from railwright.units import format_duration

PATIENCE_S = 10.0

Answer = TypeVar("Answer")

_silent: set[str] = set()
"""Paths that did not answer. They are not tried again, since each try costs the whole timeout."""


def query_mount(path: str, look: Callable[[], Answer], patience_s: float = PATIENCE_S) -> Answer:
    """Return the result of `look` at a path, or raise its error. Raises CannotJudge with the path on timeout."""
    looked: list[Answer] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            looked.append(look())
        except BaseException as error:  # raised again below, in the calling thread
            errors.append(error)

    if path not in _silent and not answers(path, patience_s):
        _silent.add(path)
    if path not in _silent:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(patience_s)
        if thread.is_alive():
            _silent.add(path)
    if looked:
        return looked[0]
    if errors:
        raise errors[0]
    raise CannotJudge(
        f"{path} did not answer within {format_duration(patience_s)}: its mount stalls",
        hint="find the mount and its server with `findmnt -T`, or choose another directory=...",
    )
