"""Growing files, read line by line while they are written."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from railwright.launch.frames import FrameWriter
from railwright.process import Child, ChildResult

_RECORDS = ("results.jsonl", "hosts/*/results.jsonl", "between/results.jsonl", "cluster.json")


class FollowedFile:
    """A file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known_bytes = 0

    def lines(self) -> list[bytes]:
        """Return the complete lines that were added since the last call. Raises OSError if the file cannot be read."""
        with self._path.open("rb") as file:
            file.seek(self._known_bytes)
            *lines, half = file.read().split(b"\n")
            self._known_bytes = file.tell() - len(half)
        return lines


class FollowedFolder:
    """The records of a folder, read as they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, FollowedFile] = {}

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield the file name and the content of each record that was completed since the last call. Raises OSError."""
        for path in sorted(path for pattern in _RECORDS for path in self._folder.glob(pattern)):
            for line in self._files.setdefault(path, FollowedFile(path)).lines():
                yield str(path.relative_to(self._folder)), line


def send_records(
    child: Child, folder: Path, writer: FrameWriter, every_s: float, tell: Callable[[], None]
) -> ChildResult:
    """Print the records of a child as frames until it exits. `tell` forwards its other output."""
    followed = FollowedFolder(folder)
    ended = False
    while not ended:
        ended = child.poll() is not None
        if ended:
            child.wait(1.0)  # until its remaining output has been read
        tell()
        for name, record in followed.records():
            print_lines(writer.lines(name, record))
        time.sleep(0 if ended else every_s)
    return child.wait(1.0)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines and flush each, because a reader waits for them."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
