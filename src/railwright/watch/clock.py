"""Prints this host's monotonic clock and its kernel's boot id for each line of input.

`watch.afar` starts `python -m railwright.watch.clock` on each host to measure the offsets between their clocks.
It exits when its input closes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def boot_id() -> str:
    """Return the random id of this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def main() -> None:
    """Answer each line until the input closes."""
    boot = boot_id()
    for _ in iter(sys.stdin.buffer.readline, b""):
        sys.stdout.buffer.write(f"{time.monotonic():.9f} {boot}\n".encode("ascii"))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
