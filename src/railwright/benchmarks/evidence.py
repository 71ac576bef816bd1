"""What really ran, seen from outside the library that says so."""

from __future__ import annotations

from pathlib import Path

from railwright.results.model import Evidence
from railwright.units import format_size

_LOOPBACK_BYTES = Path("/sys/class/net/lo/statistics/tx_bytes")


class LoopbackMeter:
    """Counts what crosses the loopback interface: TCP between two ranks of one host does, shared memory does not."""

    def __init__(self) -> None:
        self._start = _read()

    def moved_bytes(self) -> int | None:
        """Bytes since the start, None where the counter cannot be read."""
        now = _read()
        return None if now is None or self._start is None else now - self._start


def transport_evidence(sent_bytes: int, moved_bytes: int | None) -> Evidence:
    """Whether `sent_bytes` of payload went over loopback TCP, judged by the interface's own counter."""
    if moved_bytes is None:
        return Evidence(claim="transport", value="unknown", seen=f"{_LOOPBACK_BYTES} cannot be read")
    seen = f"lo carried {format_size(moved_bytes)} while {format_size(sent_bytes)} were sent"
    if moved_bytes >= sent_bytes:
        return Evidence(claim="transport", value="tcp", seen=seen)
    if moved_bytes <= sent_bytes / 2:
        return Evidence(claim="transport", value="shm", seen=seen)
    return Evidence(claim="transport", value="mixed", seen=seen)


def _read() -> int | None:
    try:
        return int(_LOOPBACK_BYTES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
