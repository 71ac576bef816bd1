"""The FILE argument of `explain`: untrusted bytes from a file, a pipe or standard input."""

from __future__ import annotations

import itertools
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from railwright.errors import UsageError
from railwright.reading import open_given, read_piece
from railwright.results.records import RESULTS_NAME

_MAX_HELD_BYTES = 16 * 2**20
_MAX_BYTES = 4 * 2**30
_MAX_MEMORY_BYTES = 128 * 2**20
"""The memory limit for unpacking. xz -9 needs 65 MiB."""
_PIECE_BYTES = 2**20
_HINT = "give the file that the tool printed"
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ"
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""The paths that a shell passes for `<(command)`. Such pipes have a writer; a named pipe may never have one."""
RECORD_PREFIXES = (b'{"record":"run"', b'{"record":"result"', b'{"record":"end"')
"""The first bytes of a results file of this program, even if its first lines are missing."""


def read(file: str) -> bytes | Iterator[bytes]:
    """Return the unpacked bytes if they are at most 16 MiB, otherwise an iterator over pieces of them.

    For a longer results file of this program, returns its first piece alone. Raises UsageError if the file cannot be
    read, is empty, or is not text.
    """
    pieces, held, size = read_pieces(file), [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _MAX_HELD_BYTES:
            return held[0] if is_our_own(held[0]) else itertools.chain(held, pieces)
    raw = b"".join(held)
    if not raw.strip():
        raise UsageError(f"{format_name(file)} is empty", hint=_HINT)
    return raw


def read_short_text(file: str) -> str:
    """Return the text of a file that is not a log. Raises UsageError if it cannot be read or exceeds 16 MiB."""
    raw = read(file)
    if not isinstance(raw, bytes):
        raise UsageError(
            f"{format_name(file)} must be at most {_MAX_HELD_BYTES // 2**20} MiB", hint="is it the right file?"
        )
    return decode_text(raw, file)


def is_our_own(raw: bytes) -> bool:
    """Report whether the bytes are from a results file of this program, even if its first lines are missing."""
    return raw.lstrip().startswith(RECORD_PREFIXES)


def read_pieces(file: str) -> Iterator[bytes]:
    """Yield the unpacked content of a file, a pipe or standard input in pieces of 1 MiB.

    Raises UsageError if it cannot be read or is not text.
    """
    try:
        if file == "-":
            yield from _check_text(_unpack(_read_stream(_standard_input()), format_name(file)), format_name(file))
        else:
            with open_given(file, pipe=file.startswith(_DESCRIPTORS)) as stream:
                yield from _check_text(_unpack(_read_stream(stream), format_name(file)), format_name(file))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {format_name(file)}: {reason}", hint=_HINT) from error


def _read_stream(stream: BinaryIO) -> Iterator[bytes]:
    while piece := read_piece(stream, _PIECE_BYTES):
        yield piece


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise OSError(None, "it is closed")
    if sys.stdin.isatty():
        raise OSError(None, "it is a terminal; name a file, or pipe the output in")
    return sys.stdin.buffer


def decode_text(raw: bytes, file: str) -> str:
    """Decode the output of a tool, unpacking it if needed. Raises UsageError for binary data."""
    pieces = _check_text(_unpack(iter((raw,)), format_name(file)), format_name(file))
    return b"".join(pieces).decode("utf-8-sig", errors="replace")


def _check_text(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the pieces. Raises UsageError for binary data or for too much text; a small packed file may hold a lot."""
    size = 0
    for piece in pieces:
        if not size:
            _refuse_binary(piece, name)
        if (place := piece.find(b"\0")) >= 0:
            raise UsageError(
                f"{name} must be text, got a NUL at byte {size + place}",
                hint="give the text that the tool printed on the terminal",
            )
        size += len(piece)
        if size > _MAX_BYTES:
            raise UsageError(f"{name} must be at most {_MAX_BYTES // 2**30} GiB", hint="give the log of one run")
        yield piece


def _refuse_binary(start: bytes, name: str) -> None:
    if start.startswith((b"BZh", b"\x28\xb5\x2f\xfd")):
        unpack = "bzcat" if start.startswith(b"BZh") else "zstdcat"
        raise UsageError(f"{name} is compressed", hint=f"unpack it first: {unpack} FILE | railwright explain -")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "iconv -f UTF-16 -t UTF-8 FILE | railwright explain -"
        raise UsageError(f"{name} must be UTF-8, got UTF-16", hint=hint)


def _unpack(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Unpack the pieces if the first one begins a .gz or .xz file. Raises UsageError if they cannot be unpacked."""
    first = next(pieces, b"")
    every = itertools.chain((first,), pieces)
    if not first.startswith((_GZIP, _XZ)):
        yield from every
        return
    try:
        yield from _gunzip(every) if first.startswith(_GZIP) else _unxz(every)
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise UsageError(
            f"{name} cannot be unpacked: {error}", hint="give the whole file, or unpack it first"
        ) from error


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack each member of a gzip file in turn. gzip files may be concatenated."""
    member = zlib.decompressobj(wbits=31)
    for piece in pieces:
        rest = piece
        while rest:
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            yield member.decompress(rest, _PIECE_BYTES)
            rest = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise EOFError("it is truncated")


def _unxz(pieces: Iterator[bytes]) -> Iterator[bytes]:
    stream = lzma.LZMADecompressor(memlimit=_MAX_MEMORY_BYTES)
    for piece in pieces:
        rest = piece
        while rest or not stream.needs_input:
            if stream.eof:
                return
            yield stream.decompress(rest, _PIECE_BYTES)
            rest = b""
    if not stream.eof:
        raise EOFError("it is truncated")


def is_our_folder(file: str) -> bool:
    """Report whether the path is a folder with a run of this program. Raises UsageError for any other folder."""
    try:
        if file == "-" or not Path(file).is_dir():
            return False
        if (Path(file) / RESULTS_NAME).exists():
            return True
    except (OSError, ValueError):
        return False
    hint = "give the file that the tool printed, or the folder of a run"
    raise UsageError(f"folder {format_name(file)} must contain {RESULTS_NAME}", hint=hint)


def format_name(file: str) -> str:
    """Return the name of the file for error messages."""
    return "standard input" if file == "-" else repr(file[:200])
