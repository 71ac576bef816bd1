"""Looks at a mount that may never answer: a server that is gone, a file system that hangs.

A call that hangs in the kernel cannot be taken back, and a process with such a thread cannot end. So a child looks
first. Then the look itself is a thread of its own, which is left where it is: a mount may stall in between.
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
"""What did not answer, and is not asked again: each look would cost the patience once more."""


def answered(path: str, look: Callable[[], Answer], patience_s: float = PATIENCE_S) -> Answer:
    """What `look` at a path returns or raises. Raises CannotJudge, with the path, where that takes too long."""
    looked: list[Answer] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            looked.append(look())
        except BaseException as error:  # raised again below, in the thread that asked
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
        hint="`findmnt -T` names the mount, and the server behind it; another folder is directory=...",
    )
