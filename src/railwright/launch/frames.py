"""Records embedded in a program's output as numbered lines, which survive log rotation and login banners.

A pod's runtime splits lines above 16 KiB, so each line is far shorter. The kubelet keeps only the last log file of
10 MiB for a new reader, so lines are numbered and gaps can be detected. All other lines are text.
https://kubernetes.io/docs/concepts/cluster-administration/logging/
https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

_MARK = "railwright-frame"
_PIECE = 3000
_FILE = r"(?:(?:hosts/[A-Za-z0-9._%-]{1,253}|between)/)?[a-z]+(?:\.jsonl?)?"
_FRAME = re.compile(rf"{_MARK}:(\d{{1,9}}):({_FILE}):([=<>-]):([A-Za-z0-9+/=]*)")
_END = "end"
_MAX_BYTES = 512 * 2**20
_MAX_RECORD_BYTES = 64 * 2**20


@dataclass
class FrameWriter:
    """Encodes records as the lines of one log."""

    _next: int = field(default=0, init=False)

    def lines(self, file: str, record: bytes) -> Iterator[str]:
        """Yield the lines of one record of a file."""
        packed = base64.b64encode(zlib.compress(record, 6)).decode("ascii")
        pieces = [packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE)]
        for number, piece in enumerate(pieces):
            first, last = number == 0, number == len(pieces) - 1
            kind = "=" if first and last else "<" if first else ">" if last else "-"
            yield f"{_MARK}:{self._next}:{file}:{kind}:{piece}"
            self._next += 1

    def end(self, status: int) -> Iterator[str]:
        """Yield the last line, which holds the exit status of the recorded program."""
        yield from self.lines(_END, str(status).encode())


@dataclass
class FrameReader:
    """Reassembles records. Lines may arrive in any order, and again after a lost connection."""

    status: int | None = field(default=None, init=False)
    """The exit status of the recorded program. None until the end line has come."""
    damaged: int = field(default=0, init=False)
    """The number of records that cannot be decoded."""
    _frames: dict[int, tuple[str, str, str]] = field(default_factory=dict, init=False)
    _seen: set[int] = field(default_factory=set, init=False)
    _cursor: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _last: int | None = field(default=None, init=False)

    def read(self, line: str) -> bool:
        """Process a line of the log. Returns False if the line is text."""
        found = _FRAME.fullmatch(line)
        if found is None:
            # A truncated frame is lost, but it is not text either.
            return line.startswith(f"{_MARK}:")
        number, file, kind, piece = int(found[1]), found[2], found[3], found[4]
        if number not in self._seen and self._size + len(piece) <= _MAX_BYTES:
            self._seen.add(number)
            self._frames[number] = (file, kind, piece)
            self._size += len(piece)
            if file == _END:
                self._last = number
        return True

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield the file name and content of each complete record that follows the previous ones without a gap."""
        while (after := self._find_record_end(self._cursor)) is not None:
            yield from self._unpack(self._cursor, after)
            self._cursor = after

    def records_after_gaps(self) -> Iterator[tuple[str, bytes]]:
        """Yield the complete records after gaps. Call it when no more lines will come."""
        for number in sorted(self._frames):
            if number >= self._cursor and (after := self._find_record_end(number)) is not None:
                yield from self._unpack(number, after)

    @property
    def is_complete(self) -> bool:
        """Whether the end line and all lines before it have come."""
        return self._last is not None and not self.damaged and len(self._seen) == self._last + 1

    @property
    def is_empty(self) -> bool:
        """Whether no frame has come."""
        return not self._seen

    @property
    def has_gaps(self) -> bool:
        """Whether a frame before the last received one is missing, or a record is damaged."""
        return bool(self.damaged) or len(self._seen) < max(self._seen, default=-1) + 1

    def describe_loss(self) -> str:
        """Describe the missing lines, the damaged records and a missing end. Empty if the log is complete."""
        if self.is_complete:
            return ""
        known = (max(self._seen) if self._seen else -1) + 1
        missing = known - len(self._seen)
        words = [f"{missing} of {known} lines were lost"] * bool(missing)
        words += [f"{self.damaged} of the records were damaged"] * bool(self.damaged)
        words += ["the end is missing"] * (self._last is None)
        return ", and ".join(words)

    def _find_record_end(self, number: int) -> int | None:
        """Return the number of the frame after the record that begins at `number`.

        None if the record is incomplete, or if no record begins there.
        """
        first = self._frames.get(number)
        if first is None or first[1] not in "=<":
            return None
        at = number
        while self._frames[at][1] not in "=>":
            at += 1
            frame = self._frames.get(at)
            if frame is None:
                return None
            if frame[0] != first[0] or frame[1] not in "->":
                return at
        return at + 1

    def _unpack(self, begin: int, after: int) -> Iterator[tuple[str, bytes]]:
        frames = [self._frames.pop(number) for number in range(begin, after)]
        unpacker = zlib.decompressobj()
        try:
            packed = base64.b64decode("".join(piece for _, _, piece in frames), validate=True)
            record = unpacker.decompress(packed, _MAX_RECORD_BYTES)
            if not unpacker.eof or unpacker.unused_data:
                raise ValueError("the record is truncated")
            if frames[0][0] == _END:
                self.status = int(record)
                return
        except (binascii.Error, zlib.error, ValueError):
            self.damaged += 1
            return
        yield frames[0][0], record
