"""Files that this program writes: the only place that opens one.

The folder may belong to another user, and root may be writing. So a link is never followed, a new file has a random
name until it is complete, and a folder where any user can replace our files is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from railwright.errors import UsageError

PRIVATE, PUBLIC = 0o600, 0o666
"""The modes of records and of pages; the umask narrows the latter. Records name hosts, commands and environments."""
MODE_VARIABLE = "RAILWRIGHT_RECORD_MODE"
_DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_REPLACEABLE = (stat.S_IFREG, stat.S_IFLNK)


def open_to_write(path: str | Path, flags: int, mode: int = PRIVATE, *, folder: int | None = None) -> int:
    """Open a regular file without following a link, and return its descriptor. Raises OSError.

    `path` is relative to the descriptor `folder` if that is given. A file that exists must have no second name, which
    could be that of another user's trap.
    """
    may_exist = not flags & os.O_EXCL
    descriptor = os.open(path, flags & ~os.O_TRUNC | _SAFE | (os.O_NONBLOCK if may_exist else 0), mode, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if may_exist and status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it is a hard link to another file")
        if may_exist:
            os.set_blocking(descriptor, True)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_folder(path: Path) -> int:
    """Open a folder in which files will be written. Raises OSError, also where any user can replace them."""
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    is_open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if is_open_to_all and status.st_uid not in (os.geteuid(), 0):
        os.close(descriptor)
        reason = f"every user may write in the folder {path}, which belongs to user {status.st_uid}"
        raise PermissionError(errno.EPERM, reason)
    return descriptor


class NewFile:
    """A file that gets its name, in place of an existing file or link, when it is published. Raises OSError.

    A context manager, which closes it.
    """

    def __init__(self, path: Path, mode: int = PRIVATE) -> None:
        self._name, self._part = path.name, f".railwright-{os.urandom(8).hex()}"
        self._is_published = False
        self._folder = open_folder(path.parent)
        try:
            _refuse_special(self._name, self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            self.file = os.fdopen(open_to_write(self._part, flags, mode, folder=self._folder), "w+b", buffering=0)
        except BaseException:
            os.close(self._folder)
            raise

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and remove it if it was not published."""
        self.file.close()
        if not self._is_published:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._folder)
            os.close(self._folder)

    def publish(self, previous: str = "") -> None:
        """Give the file its name. An existing file is renamed to `previous` first, or replaced without it."""
        if previous:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._name, previous, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.replace(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._is_published = True
        os.close(self._folder)


def _refuse_special(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if kind not in _REPLACEABLE:
            raise OSError(errno.EINVAL, "it is not a regular file")


def write_file(path: str | Path, content: bytes | str, mode: int = PRIVATE) -> None:
    """Write a whole file at once, so that a crash leaves the old content or the new. Raises OSError.

    A link is replaced. `/dev/stdout` and other devices named by the user are written to.
    """
    path, raw = Path(path), content.encode() if isinstance(content, str) else content
    if str(path.parent) in _DEVICES:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb") as device:
            device.write(raw)
        return
    with NewFile(path, mode) as new:
        write_all(new, raw)
        new.publish()


def write_all(new: NewFile, raw: bytes) -> None:
    """Write all bytes to a new file. Raises OSError."""
    rest = memoryview(raw)
    while rest:
        rest = rest[new.file.write(rest) :]


def record_mode() -> int:
    """Return the mode of new records: 0600, or what the user asks for. Raises UsageError for another text."""
    asked = os.environ.get(MODE_VARIABLE, "")
    if asked and not re.fullmatch(r"0?[0-7]{3}", asked):
        raise UsageError(f"{MODE_VARIABLE} must be a mode in octal, got {asked[:40]!r}", hint="write 640 or 644")
    return PRIVATE | (int(asked, 8) & PUBLIC if asked else 0)


def open_growing(path: Path, mode: int = PRIVATE, *, empty: bool = False) -> BinaryIO:
    """Open a file that grows, at its beginning, or create it; `empty` drops its content. Raises OSError."""
    if str(path.parent) in _DEVICES:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb")
    folder = open_folder(path.parent)
    try:
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0)
        return os.fdopen(open_to_write(path.name, flags, mode, folder=folder), "r+b")
    finally:
        os.close(folder)


def append(path: Path, raw: bytes, mode: int = PRIVATE) -> None:
    """Append to a file, or create it. Raises OSError."""
    with open_growing(path, mode) as file:
        file.seek(0, os.SEEK_END)
        file.write(raw)


def open_shared(path: Path) -> BinaryIO:
    """Open memory that another process of ours shares as /proc/PID/fd/NUMBER, which is a link. Raises OSError."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC), "r+b", buffering=0)


def set_value(path: Path, text: str) -> None:
    """Write a word to an existing file of the kernel. Raises OSError."""
    descriptor = open_to_write(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
