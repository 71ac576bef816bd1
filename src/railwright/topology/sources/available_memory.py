"""The memory that this host can still allocate, and the memory that this process holds."""

from __future__ import annotations

import resource
from pathlib import Path

from railwright.topology.sources import text


def available_memory_bytes() -> int | None:
    """Return the memory that can still be allocated, as the kernel estimates it; None without an estimate."""
    try:
        return text.kib(Path("/proc/meminfo").read_text("ascii"), "MemAvailable")
    except (OSError, ValueError):
        return None


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the kernel does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
