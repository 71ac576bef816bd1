"""The FILE of `explain`: bytes that nobody has checked yet, from a file, a pipe or standard input."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from pathlib import Path

from railwright.errors import UsageError
from railwright.results.store import RESULTS_NAME

_MOST_BYTES = 16 * 2**20
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ"
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""What a shell gives for `<(command)`: pipes that have a writer, unlike a named one that may never have."""
OUR_OWN = (b'{"record":"run"', b'{"record":"result"', b'{"record":"end"')
"""How a results file of ours begins, also one that lost its first lines."""


def read(file: str) -> bytes:
    """The bytes, at most 16 MiB of them (a record of ours may go on). Raises UsageError."""
    hint = "give the file that the tool printed"
    try:
        raw = _from_standard_input() if file == "-" else _from_file(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {name_of(file)}: {reason}", hint=hint) from error
    if not raw.strip():
        raise UsageError(f"{name_of(file)} is empty", hint=hint)
    if len(raw) > _MOST_BYTES and not raw.lstrip().startswith(OUR_OWN):
        raise UsageError(f"{name_of(file)} is larger than 16 MiB", hint="give the part with the table or the start")
    return raw


def _from_standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError(None, "it is closed")
    if sys.stdin.isatty():
        raise OSError(None, "it is a terminal: name a file, or pipe the output in")
    return sys.stdin.buffer.read(_MOST_BYTES + 1)


def _from_file(file: str) -> bytes:
    """A regular file, or a pipe that the shell made; a named pipe could make us wait for ever."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(descriptor).st_mode
        is_pipe = stat.S_ISFIFO(mode) and file.startswith(_DESCRIPTORS)
        if not stat.S_ISREG(mode) and not is_pipe:
            raise OSError(None, "it is not a regular file; a command's output can be given as standard input (-)")
        os.set_blocking(descriptor, True)
        return stream.read(_MOST_BYTES + 1)


def text_of(raw: bytes, file: str) -> str:
    """What the tool printed. Raises UsageError for what is no text."""
    name = name_of(file)
    if raw.startswith((_GZIP, _XZ)):
        raw = _unpacked(raw, name)
    if raw.startswith((b"BZh", b"\x28\xb5\x2f\xfd")):
        raise UsageError(f"{name} is compressed", hint="unpack it first, like: zcat FILE | railwright explain -")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "iconv -f UTF-16 -t UTF-8 FILE | railwright explain -"
        raise UsageError(f"{name} is UTF-16, which no tool prints by itself", hint=hint)
    if (place := raw.find(b"\0")) >= 0:
        raise UsageError(
            f"{name} is no text: byte {place} is a NUL", hint="give the text that the tool printed on the terminal"
        )
    return raw.decode("utf-8-sig", errors="replace")


def _unpacked(raw: bytes, name: str) -> bytes:
    """What a .gz or .xz file holds, at most 16 MiB of it: a small file may hold very much. Raises UsageError."""
    try:
        unpacker = gzip.open if raw.startswith(_GZIP) else lzma.open
        with unpacker(io.BytesIO(raw)) as stream:
            found = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UsageError(f"{name} cannot be unpacked: {error}", hint="give the whole file, or unpack it") from error
    if len(found) > _MOST_BYTES:
        raise UsageError(f"{name} is larger than 16 MiB, unpacked", hint="give the part with the table or the start")
    return found


def is_our_folder(file: str) -> bool:
    """Whether it is the folder of a run of ours. Raises UsageError for another one."""
    try:
        if file == "-" or not Path(file).is_dir():
            return False
        if (Path(file) / RESULTS_NAME).exists():
            return True
    except (OSError, ValueError):
        return False
    hint = "give the file that the tool printed, or the folder of a run of ours"
    raise UsageError(f"{name_of(file)} is a folder without {RESULTS_NAME}", hint=hint)


def name_of(file: str) -> str:
    """How errors name it."""
    return "standard input" if file == "-" else repr(file[:200])
