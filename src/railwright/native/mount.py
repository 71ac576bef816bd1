"""Whether a mount answers at all (`mount.c`)."""

from __future__ import annotations

import os
from ctypes import c_char_p, c_double, c_int

from railwright.native.library import function


def answers(path: str, patience_s: float) -> bool:
    """Whether anything is said of a path within that time; True also where no child could be started to look."""
    told: int = function("rw_mount_answers", c_int, c_char_p, c_double)(os.fsencode(path), patience_s)
    return told != 0
