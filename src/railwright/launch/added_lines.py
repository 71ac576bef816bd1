"""What a file of records has more, for whoever passes it on while it is written."""

from __future__ import annotations

from pathlib import Path


def added_lines(path: Path, known_bytes: int) -> bytes:
    """The whole lines behind so many bytes: the last may be half written yet. Raises OSError."""
    with path.open("rb") as file:
        file.seek(known_bytes)
        added = file.read()
    return added[: added.rfind(b"\n") + 1]
