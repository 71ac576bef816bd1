"""Files that others wrote, bounded: the only opener of a given file, and the only decoders of its JSON and TOML.

A given file may be a pipe without a writer, a device, sparse, endless, or nested to exhaust memory.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

import msgspec

from railwright.errors import UsageError

Decoded = TypeVar("Decoded")

MAX_DOTS = 8
"""The parts of a dotted key in TOML. Its parser's memory grows with the square of them, and no file of ours needs 5."""
_KEY_PART = rb"(?:[\w-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')[ \t]*"
_DOTTED = re.compile(rb"(?:^|(?<=[\[{,]))[ \t]*((?:%s\.[ \t]*){%d})" % (_KEY_PART, MAX_DOTS), re.MULTILINE)
_MOST_BITS = 63
_DEEP = "it is nested too deeply"


class UnsuitableFile(OSError):
    """A file that is not read, because it is not a regular file or too large."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EINVAL, f"it is {reason}")
        self.reason = reason


class InvalidContent(ValueError):
    """The content of a file is not valid JSON or TOML, or not of the required type. Its message is one clause."""


def open_given(file: str | Path, *, pipe: bool = False, most_bytes: int | None = None) -> BinaryIO:
    """Open a regular file without waiting for a writer; `pipe` permits a pipe, as a shell makes for `<(command)`.

    Raises OSError for any other, and for a file of more than `most_bytes`. Reading a file of the kernel that never ends
    returns None instead of bytes when it would wait.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        is_pipe = pipe and stat.S_ISFIFO(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            raise UnsuitableFile("a folder")
        if not stat.S_ISREG(status.st_mode) and not is_pipe:
            raise UnsuitableFile("not a regular file")
        if most_bytes is not None and status.st_size > most_bytes:
            raise UnsuitableFile(f"larger than {_format_limit(most_bytes)}")
        if is_pipe:
            os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_at_most(file: str | Path, most_bytes: int) -> bytes:
    """Return the content of a regular file. Raises OSError, also for a larger file."""
    with open_given(file, most_bytes=most_bytes) as stream:
        raw = read_piece(stream, most_bytes + 1)
    if len(raw) > most_bytes:
        raise UnsuitableFile(f"larger than {_format_limit(most_bytes)}")
    return raw


def read_piece(stream: IO[bytes], most_bytes: int) -> bytes:
    """Read a piece, empty at the end. Raises OSError for a file that would make its reader wait."""
    piece: bytes | None = stream.read(most_bytes)
    if piece is None:
        raise BlockingIOError(errno.EAGAIN, "it has no end")
    return piece


def read_bounded(file: Path, limit_bytes: int) -> bytes:
    """Return the bytes of a regular file. Raises UsageError if it cannot be read or exceeds `limit_bytes`."""
    try:
        return read_at_most(file, limit_bytes)
    except UnsuitableFile as error:
        raise UsageError(f"{file} is {error.reason}", hint="check the path") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {explain_error(error)}", hint="check the path") from error


def read_lines(stream: IO[bytes], most_bytes: int) -> Iterator[bytes]:
    """Yield the lines with their ends. A line of more than `most_bytes` is cut there, and is the last."""
    while line := stream.readline(most_bytes + 1):
        yield line
        if len(line) > most_bytes:
            return


def explain_error(error: OSError | ValueError) -> str:
    """Return the reason of an error in one clause."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "does not exist"
    reason = error.strerror if isinstance(error, OSError) else "its name is not that of a file"
    return (reason or str(error)).lower()


def decode_json(raw: bytes | str, kind: type[Decoded] | msgspec.json.Decoder[Decoded]) -> Decoded:
    """Decode JSON to a type, or with a decoder made for it. Raises InvalidContent."""
    try:
        return kind.decode(raw) if isinstance(kind, msgspec.json.Decoder) else msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise InvalidContent(_explain(error)) from error


def decode_toml(raw: bytes, kind: type[Decoded]) -> Decoded:
    """Decode TOML. Raises InvalidContent, also for a key with more than `MAX_DOTS` dots or an integer above 63 bits.

    A hexadecimal integer may have more digits than Python prints.
    """
    try:
        if dotted := _DOTTED.search(raw):
            line = raw.count(b"\n", 0, dotted.start(1)) + 1
            raise InvalidContent(f"the key in line {line} must have at most {MAX_DOTS} parts")
        found = msgspec.toml.decode(raw)
        if any(_has_long_integer(value) for value in found.values()):
            raise InvalidContent("an integer in it is out of range")
        return msgspec.convert(found, kind, builtin_types=(dt.datetime, dt.date, dt.time), str_keys=True)
    except InvalidContent:
        raise
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise InvalidContent(_explain(error)) from error


def _has_long_integer(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_long_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _DEEP
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    return str(error)[:200]


def _format_limit(most_bytes: int) -> str:
    return f"{most_bytes // 2**20} MiB" if most_bytes >= 2**20 else f"{most_bytes // 2**10} KiB"
