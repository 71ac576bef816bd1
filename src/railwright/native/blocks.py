"""A known pattern over many blocks of memory at arbitrary addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_int64, c_size_t, c_uint64, c_void_p

from railwright.native.library import function

BLOCKS_PATTERN = "every byte against splitmix64 of its block's number in the request and its place in the block"

Blocks = Sequence[tuple[int, int]]
"""The (address, bytes) of each block, in the order of the request."""


def fill(blocks: Blocks, seed: int) -> None:
    """Write the pattern of `seed` into all blocks. Each block continues the pattern of the previous one."""
    write = function("rw_fill", None, c_void_p, c_size_t, c_uint64, c_uint64)
    for address, size_bytes, position in _positions(blocks):
        write(address, size_bytes, seed, position)


def count_wrong(blocks: Blocks, seed: int) -> int:
    """Count the bytes that differ from the pattern. If two blocks are swapped, nearly all of their bytes differ."""
    count = function("rw_count_wrong", c_int64, c_void_p, c_size_t, c_uint64, c_uint64)
    return sum(int(count(address, size_bytes, seed, position)) for address, size_bytes, position in _positions(blocks))


def _positions(blocks: Blocks) -> Iterator[tuple[int, int, int]]:
    """Yield each block with its position in the pattern, which must be a multiple of 8."""
    position = 0
    for address, size_bytes in blocks:
        yield address, size_bytes, position
        position += -(-size_bytes // 8) * 8
