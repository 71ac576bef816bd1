"""The lines of files, passed on while they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_RECORDS = ("results.jsonl", "hosts/*/results.jsonl")


class FollowedFile:
    """A file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known_bytes = 0

    def lines(self) -> list[bytes]:
        """The lines that have come whole since the last call: the last may be half written. Raises OSError."""
        with self._path.open("rb") as file:
            file.seek(self._known_bytes)
            *lines, half = file.read().split(b"\n")
            self._known_bytes = file.tell() - len(half)
        return lines


class Followed:
    """The records of a folder, as they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, FollowedFile] = {}

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Each file and record that has come whole since the last call."""
        for path in sorted(path for pattern in _RECORDS for path in self._folder.glob(pattern)):
            for line in self._files.setdefault(path, FollowedFile(path)).lines():
                yield str(path.relative_to(self._folder)), line
