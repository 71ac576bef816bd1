"""The firmware's SMBIOS table as bytes: structures with a formatted part and numbered strings.

Layout: DMTF DSP0134 (System Management BIOS Reference Specification), sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

PROCESSOR = 4
MEMORY_ARRAY = 16
MEMORY_DEVICE = 17
END_OF_TABLE = 127

_MAX_STRUCTURES = 4096


class Structure(msgspec.Struct, frozen=True):
    """A structure: its type, the formatted bytes (header included) and the strings after them."""

    kind: int
    formatted: bytes
    strings: tuple[bytes, ...]

    def number(self, offset: int, size_bytes: int) -> int | None:
        """Return a little-endian number, None beyond the end of the formatted part."""
        end = offset + size_bytes
        return int.from_bytes(self.formatted[offset:end], "little") if end <= len(self.formatted) else None

    def string(self, offset: int) -> str:
        """Return the string whose number is at `offset`, printable; empty if there is none."""
        index = self.number(offset, 1) or 0
        if not 1 <= index <= len(self.strings):
            return ""
        text = self.strings[index - 1].decode("latin-1")[:100]
        return "".join(char if char.isprintable() else "?" for char in text).strip()

    def packed(self) -> bytes:
        """Return the structure as bytes of the table."""
        return self.formatted + (b"\0".join(self.strings) + b"\0\0" if self.strings else b"\0\0")


def structures(table: bytes) -> Iterator[Structure]:
    """Yield the structures in order. A table that is cut off or garbled ends at the first invalid structure."""
    offset = 0
    for _ in range(_MAX_STRUCTURES):
        if offset + 4 > len(table):
            return
        kind, length = table[offset], table[offset + 1]
        end = table.find(b"\0\0", offset + length)
        if length < 4 or offset + length > len(table) or end < 0:
            return
        raw = table[offset + length : end]
        strings = tuple(raw.split(b"\0")) if raw else ()
        yield Structure(kind, table[offset : offset + length], strings)
        if kind == END_OF_TABLE:
            return
        offset = end + 2
