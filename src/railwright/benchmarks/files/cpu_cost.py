"""The CPU time of a pass: the process's own, and the kernel threads' as far as visible."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from railwright.native.files import Pass
from railwright.topology.devices import Scalar
from railwright.units import GB

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD among the flags of /proc/PID/stat (Linux include/linux/sched.h)."""
_STAT_BYTES = 1024
_FLAGS, _UTIME, _STIME = 6, 11, 12
"""Fields 9, 14 and 15 of proc(5), counted from the one after the name."""

COUNTED = (
    "getrusage of the rank, with io_uring's workers; not kernel threads, nor the host of a virtual machine; "
    "interrupts as the kernel books them"
)


def kernel_threads_cpu_s(proc: Path = Path("/proc")) -> float | None:
    """Return the CPU seconds of all kernel threads since boot, in steps of 10 ms, or None if none is visible.

    Kernel threads work for all processes, so a difference belongs to the benchmark only on an otherwise idle machine.
    """
    ticks, seen = 0, False
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            with (folder / "stat").open("rb") as file:
                fields = file.read(_STAT_BYTES).rpartition(b")")[2].split()
            if int(fields[_FLAGS]) & _KERNEL_THREAD:
                ticks, seen = ticks + int(fields[_UTIME]) + int(fields[_STIME]), True
        except (OSError, ValueError, IndexError):
            continue  # the thread ended during the scan
    return ticks / os.sysconf("SC_CLK_TCK") if seen else None


def cpu_settings(passes: Sequence[Pass], bytes_per_pass: int, kernel_s: float | None) -> dict[str, Scalar]:
    """Return CPU seconds per GB (10^9 bytes): median, minimum and maximum, and the kernel threads' share."""
    per_gb = [done.cpu_s / (bytes_per_pass / GB) for done in passes]
    found: dict[str, Scalar] = {
        "cpu_s_per_gb": _round(statistics.median(per_gb)),
        "cpu_s_per_gb_minimum": _round(min(per_gb)),
        "cpu_s_per_gb_maximum": _round(max(per_gb)),
        "cpu_counted": COUNTED,
    }
    if kernel_s is None:
        return found | {"kernel_threads_cpu_s_per_gb": "unknown: no kernel thread is visible"}
    return found | {"kernel_threads_cpu_s_per_gb": _round(kernel_s / (len(passes) * bytes_per_pass / GB))}


def _round(value: float) -> float:
    return float(f"{value:.3g}")
