"""How much memory can still be allocated on this host now, and how much this process has taken."""

from __future__ import annotations

import resource
from pathlib import Path

from railwright.topology.sources import text


def available_memory_bytes() -> int | None:
    """The memory that can still be allocated, as the kernel estimates it. None if it gives no estimate."""
    try:
        return text.kib(Path("/proc/meminfo").read_text("ascii"), "MemAvailable")
    except (OSError, ValueError):
        return None


def resident_bytes() -> int:
    """What this process holds in memory now; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
