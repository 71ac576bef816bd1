"""A test whether a mount responds (`mount.c`)."""

from __future__ import annotations

import os
from ctypes import c_char_p, c_double, c_int

from railwright.native.library import function


def answers(path: str, patience_s: float) -> bool:
    """Report whether the path responds within `patience_s`. Returns True also if no child process could be started."""
    answer: int = function("rw_mount_answers", c_int, c_char_p, c_double)(os.fsencode(path), patience_s)
    return answer != 0
