"""A file that is read through the page cache: made cold or hot before each read, and fetched piece by piece."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from railwright.errors import CannotJudge
from railwright.native import page_cache
from railwright.native.library import Closing
from railwright.results.records import Evidence
from railwright.units import MIB, format_size

PAGE_CACHE = "pagecache"
"""The name of the page cache in paths."""
_PIECE_BYTES = 8 * MIB

Piece = tuple[int, int]
"""Offset and bytes."""


class CachedFile:
    """An open file, with the bytes that the page cache held before each read."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        self.size = os.fstat(fd).st_size
        self._worst: dict[str, int] = {}

    def prepare(self, cache: str) -> None:
        """Make the file `cold` or `hot` in the page cache. Raises CannotJudge if the file system refuses."""
        held = self._make_hot() if cache == "hot" else self._make_cold()
        worst = min if cache == "hot" else max
        self._worst[cache] = worst(self._worst.get(cache, held), held)

    def evidence(self, cache: str) -> Evidence:
        """Return how much of the file was cached before the reads: the minimum if hot, the maximum if cold."""
        held = self._worst.get(cache, 0)
        at = "at least" if cache == "hot" else "at most"
        seen = f"mincore: {at} {format_size(held)} of {format_size(self.size)} in the page cache before each read"
        return Evidence(claim="cache", value=cache, seen=seen)

    def _make_cold(self) -> int:
        page_cache.drop(self.fd)
        if held := page_cache.resident_bytes(self.fd):
            found = f"{format_size(held)} of {format_size(self.size)} stay in the page cache"
            raise CannotJudge(f"{self.name} cannot be made cold: {found}",
                              hint="use a file of your own outside tmpfs")  # fmt: skip
        return 0

    def _make_hot(self) -> int:
        held = page_cache.resident_bytes(self.fd)
        if held < self.size:
            for at in range(0, self.size, _PIECE_BYTES):
                os.pread(self.fd, _PIECE_BYTES, at)
            held = page_cache.resident_bytes(self.fd)
        if held < self.size:
            found = f"the page cache keeps {format_size(held)} of {format_size(self.size)}"
            raise CannotJudge(f"{self.name} cannot be kept hot: {found}", hint="make the file smaller")
        return held


class Fetcher(Closing):
    """Reads pieces of a file with a pool of threads into reused buffers. A context manager."""

    def __init__(self, file: CachedFile, pieces: Sequence[Piece], threads: int) -> None:
        self._file, self._pieces = file, pieces
        self._crew = max(1, min(threads, len(pieces)))
        largest = max((length for _, length in pieces), default=0)
        self._buffers = [memoryview(bytearray(largest)) for _ in range(self._crew)]
        self._pool = ThreadPoolExecutor(self._crew)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def seconds(self) -> float:
        """Read all pieces and return the time taken. Raises CannotJudge if the file ends early or cannot be read."""
        began = time.perf_counter()
        for _ in self._pool.map(self._part, range(self._crew)):
            pass
        return time.perf_counter() - began

    def _part(self, worker: int) -> None:
        for at, length in self._list_pieces(worker):
            got = 0
            while got < length:
                try:
                    now = os.preadv(self._file.fd, [self._buffers[worker][got:length]], at + got)
                except OSError as error:
                    raise CannotJudge(f"{self._file.name} cannot be read: {error.strerror}") from error
                if not now:
                    raise CannotJudge(f"{self._file.name} ends at byte {at + got}, but had {at + length} bytes")
                got += now

    def _list_pieces(self, worker: int) -> Iterator[Piece]:
        return iter(self._pieces[worker :: self._crew])
