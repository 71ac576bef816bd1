"""The records of a run, passed on while they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_RECORDS = ("results.jsonl", "hosts/*/results.jsonl")


class Followed:
    """The records of a folder, as they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Each file and record that has come whole since the last call: the last line may be half written yet."""
        for path in sorted(path for pattern in _RECORDS for path in self._folder.glob(pattern)):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                *lines, half = file.read().split(b"\n")
                self._read[path] = file.tell() - len(half)
            for line in lines:
                yield str(path.relative_to(self._folder)), line
