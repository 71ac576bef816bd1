"""A check of an Arrow IPC stream's messages, since nanoarrow ends the process at a message without its parts.

Each message is a mark, the length of its metadata, the metadata as a flatbuffer, and a body (Arrow's columnar format,
"Encapsulated message format"; FlatBuffers' internals for tables).
"""

from __future__ import annotations

import os
import struct
from typing import IO

_MARK = b"\xff\xff\xff\xff"
_MOST_METADATA_BYTES = 16 * 2**20
_TYPE, _HEADER, _BODY_BYTES = 1, 2, 3
"""The places of a message's fields in its table (Message.fbs)."""
_RECORD_BATCH, _NODES, _BUFFERS = 3, 1, 2
"""The type of a batch, and the places of its fields."""
_SCHEMA, _COLUMNS, _METADATA = 1, 1, 2
"""The type of a schema, and the places of its fields (Schema.fbs)."""
_NAME, _KIND, _DETAILS, _CHILDREN = 0, 2, 3, 5
"""The places of a column's fields."""
_MOST_DEPTH = 4


def check_messages(stream: IO[bytes]) -> None:
    """Read the messages up to the end or a cut, and go back to the beginning. Raises ValueError for a damaged one."""
    begin = stream.tell()
    end = stream.seek(0, os.SEEK_END)
    stream.seek(begin)
    number = 0
    while len(head := stream.read(8)) == 8 and head[:4] == _MARK:
        size = int.from_bytes(head[4:], "little", signed=True)
        if size <= 0:
            break
        number += 1
        metadata = stream.read(min(size, _MOST_METADATA_BYTES))
        if len(metadata) < size:
            break
        try:
            body_bytes = _check_metadata(metadata)
        except struct.error as error:
            raise ValueError(f"message {number} is damaged") from error
        if body_bytes > end - stream.tell():
            break
        stream.seek(body_bytes, os.SEEK_CUR)
    stream.seek(begin)


def _check_metadata(metadata: bytes) -> int:
    """Return the length of the body. Raises ValueError for a message without header, and struct.error."""
    (message,) = struct.unpack_from("<I", metadata, 0)
    header, kind = _find_field(metadata, message, _HEADER), _find_field(metadata, message, _TYPE)
    if not header or not kind:
        raise ValueError("a message has no header")
    table = _follow(metadata, header)
    if metadata[kind] == _RECORD_BATCH and not all(_find_field(metadata, table, place) for place in (_NODES, _BUFFERS)):
        raise ValueError("a batch has no columns")
    if metadata[kind] == _SCHEMA:
        for pair in _list_tables(metadata, table, _METADATA):
            if not all(_find_field(metadata, pair, place) for place in (0, 1)):
                raise ValueError("its metadata has no key or no value")
        for column in _list_tables(metadata, table, _COLUMNS):
            _check_column(metadata, column)
    place = _find_field(metadata, message, _BODY_BYTES)
    body_bytes: int = struct.unpack_from("<q", metadata, place)[0] if place else 0
    if body_bytes < 0:
        raise ValueError(f"a body must have at least 0 bytes, got {body_bytes}")
    return body_bytes


def _check_column(metadata: bytes, column: int, depth: int = 0) -> None:
    if depth > _MOST_DEPTH or not all(_find_field(metadata, column, place) for place in (_NAME, _KIND, _DETAILS)):
        raise ValueError("a column has no name or no type")
    for child in _list_tables(metadata, column, _CHILDREN):
        _check_column(metadata, child, depth + 1)


def _list_tables(metadata: bytes, table: int, place: int) -> list[int]:
    """Return the tables in a vector of a table. Raises struct.error."""
    field = _find_field(metadata, table, place)
    if not field:
        return []
    vector = _follow(metadata, field)
    (count,) = struct.unpack_from("<I", metadata, vector)
    if count > len(metadata) // 4:
        raise struct.error
    return [_follow(metadata, vector + 4 + 4 * number) for number in range(count)]


def _follow(metadata: bytes, place: int) -> int:
    """Return the offset to which the number at an offset points. Raises struct.error."""
    to: int = place + struct.unpack_from("<I", metadata, place)[0]
    if to >= len(metadata):
        raise struct.error
    return to


def _find_field(metadata: bytes, table: int, place: int) -> int:
    """Return the offset of a table's field, or 0 if it is missing. Raises struct.error outside of the metadata."""
    fields = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, max(fields, 0))
    if 4 + 2 * place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, max(fields, 0) + 4 + 2 * place)
    if table + offset >= len(metadata):
        raise struct.error
    return table + offset if offset else 0
