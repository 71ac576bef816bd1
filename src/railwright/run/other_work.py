"""The CPU time that other work takes or leaves idle during a measurement. Too little makes a healthy path slow."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection
from pathlib import Path

from railwright.topology.sources.cgroup import cpu_quota
from railwright.topology.sources.root import live_root

_MIN_INTERVAL_S = 0.5
"""The minimum interval. The kernel's ticks of 10 ms are too coarse for a shorter one."""
_IDLE = (3, 4)
"""The fields `idle` and `iowait` of a `cpu` line (proc(5))."""
_INTERRUPTS = (5, 6)
"""The fields `irq` and `softirq`, which our own measurements cause too."""


def cpu_ticks(names: Collection[str] = ("cpu",)) -> tuple[int, ...]:
    """Read the eight counters `user` to `steal`, summed over all CPUs, or over those with names like `cpu3`.

    Empty if /proc/stat cannot be read.
    """
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text("ascii").splitlines()]
        return tuple(map(sum, zip(*(map(int, line[1:9]) for line in lines if line and line[0] in names), strict=True)))
    except (OSError, ValueError):
        return ()


def idle_ticks(ticks: tuple[int, ...]) -> int:
    """Return the ticks in which CPUs were idle or waited for disks."""
    return sum(ticks[field] for field in _IDLE)


class IdleCpus:
    """A meter of the CPUs that this process may use and that are idle from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        self._ticks = cpu_ticks(self._names)

    def count(self) -> float | None:
        """Return how many CPUs were idle on average. None if that is unknown or a quota applies."""
        seconds, now = time.monotonic() - self._began, cpu_ticks(self._names)
        if not self._ticks or not now or seconds < _MIN_INTERVAL_S or _has_quota():
            return None
        return (idle_ticks(now) - idle_ticks(self._ticks)) / os.sysconf("SC_CLK_TCK") / seconds


def _has_quota() -> bool:
    return isinstance(cpu_quota(live_root()), (int, float))


class OtherWork:
    """A meter of the CPU time that other work takes from now on.

    Our own work must run in this process or in children that have been waited for.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ticks = cpu_ticks()
        self._ours_s = _ours_s()

    def share(self) -> float | None:
        """Return the share of CPU time that other work took, including steal. None if it is unknown."""
        now = cpu_ticks()
        if len(self._ticks) <= max(_INTERRUPTS) or len(now) != len(self._ticks):
            return None
        spent = [after - before for before, after in zip(self._ticks, now, strict=True)]
        total = sum(spent)
        if time.monotonic() - self._began < _MIN_INTERVAL_S or total <= 0:
            return None
        busy = total - idle_ticks(tuple(spent)) - sum(spent[field] for field in _INTERRUPTS)
        others = busy - (_ours_s() - self._ours_s) * os.sysconf("SC_CLK_TCK")
        return min(max(others / total, 0.0), 1.0)


def _ours_s() -> float:
    """Return the CPU seconds of this process and of its descendants that have been waited for."""
    used = [resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
