"""Tells this host's monotonic clock and its kernel's boot id, once for each line that it is given.

`watch.afar` starts `python -m railwright.watch.clock` on each host, and so knows how far their clocks are apart.
It ends with its input.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def boot_id() -> str:
    """Random, of the kernel's start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def main() -> None:
    """Answer until nobody asks."""
    boot = boot_id()
    for _ in iter(sys.stdin.buffer.readline, b""):
        sys.stdout.buffer.write(f"{time.monotonic():.9f} {boot}\n".encode("ascii"))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
