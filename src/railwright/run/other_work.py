"""What the CPUs of this host did for others while a launch ran: work that comes meanwhile makes a healthy path slow."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_SHORTEST_S = 0.5
"""Below it the kernel's ticks of a hundredth of a second say little."""
_IDLE = (3, 4)
"""Fields of a `cpu` line (proc(5)): idle, and waiting for disks."""
_OF_NOBODY = (5, 6)
"""Interrupts, which what we measure causes too."""


def cpu_ticks() -> tuple[int, ...]:
    """The first eight counters of all CPUs together, `user` to `steal`; empty where /proc/stat cannot be read."""
    try:
        return tuple(int(field) for field in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9])
    except (OSError, ValueError):
        return ()


def idle_ticks(ticks: tuple[int, ...]) -> int:
    """Those in which the CPUs had nothing to do, or waited for disks."""
    return sum(ticks[field] for field in _IDLE)


class OtherWork:
    """The CPU time that others take from now on. What runs for us must be children that were waited for."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ticks = cpu_ticks()
        self._ours_s = _ours_s()

    def share(self) -> float | None:
        """The part of all CPU time that others took, steal included; None where that cannot be told."""
        now = cpu_ticks()
        if len(self._ticks) <= max(_OF_NOBODY) or len(now) != len(self._ticks):
            return None
        spent = [after - before for before, after in zip(self._ticks, now, strict=True)]
        total = sum(spent)
        if time.monotonic() - self._began < _SHORTEST_S or total <= 0:
            return None
        busy = total - idle_ticks(tuple(spent)) - sum(spent[field] for field in _OF_NOBODY)
        others = busy - (_ours_s() - self._ours_s) * os.sysconf("SC_CLK_TCK")
        return min(max(others / total, 0.0), 1.0)


def _ours_s() -> float:
    """CPU seconds of this process and of all children that ended, theirs included."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
