"""The file trees that the sources read: this machine, a captured directory, or a captured archive.

A capture comes from somebody else, so it is untrusted input: no link is followed, nothing but regular files is opened,
sizes and counts are bounded, and every refusal is an `Unreadable`, never an exception.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_json, read_bounded

MAX_FILE_BYTES = 2**20
MAX_DIRECTORY_ENTRIES = 20_000
MAX_OPERATIONS = 200_000
MAX_TOTAL_BYTES = 256 * 2**20
MAX_COMPONENTS = 64
MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_ARCHIVE_FILES = 100_000
MANIFEST = "capture.json"

ABSENT = "does not exist"
DENIED = "permission denied"
NOT_SAID = "the driver does not say"
_REASONS = {
    errno.ENOENT: ABSENT,
    errno.ENOTDIR: ABSENT,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.ELOOP: "is a symbolic link",
    errno.EINVAL: NOT_SAID,  # sysfs answers so for the speed of a link that is down
    errno.EOPNOTSUPP: NOT_SAID,
}


Answer = TypeVar("Answer", str, bytes, tuple[str, ...])


class Unreadable(msgspec.Struct, frozen=True):
    """A path that could not be read, and the reason in one clause."""

    path: str
    reason: str

    @property
    def is_absent(self) -> bool:
        """Whether the file does not exist, which is often normal."""
        return self.reason == ABSENT


class Root(ABC):
    """A tree of files with paths relative to `/`, like `sys/devices/system/node/online`, called `name`."""

    refused: Sequence[Unreadable] = ()
    """The unusable parts of a capture."""
    holds_settings: bool = True
    """False for a capture made before settings were captured: a setting that it lacks may exist on the machine."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, path: str) -> str | Unreadable:
        """Return the text of a file without trailing newlines, made safe by `printable`."""
        raw = self.read_bytes(path)
        return raw if isinstance(raw, Unreadable) else printable(raw)

    def text(self, path: str) -> str:
        """Return the text of a file, empty if unreadable."""
        text = self.read(path)
        return "" if isinstance(text, Unreadable) else text

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, none if it cannot be listed."""
        listed = self.list(path)
        return () if isinstance(listed, Unreadable) else listed

    @abstractmethod
    def read_bytes(self, path: str) -> bytes | Unreadable:
        """Return the bytes of a regular file of at most 1 MiB."""

    @abstractmethod
    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted; refused beyond 20,000."""


def printable(raw: bytes) -> str:
    """Return text that is safe to show on a terminal: a file's content may hold escape sequences.

    Invalid UTF-8 becomes U+FFFD. Unprintable characters other than newline and tab become `?`.
    """
    text = raw.decode("utf-8", errors="replace").rstrip("\n")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


_PART = r"(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}"
_RELATIVE_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


def components(path: str) -> tuple[str, ...] | Unreadable:
    """Return the parts of a relative path, or the reason why it is refused."""
    parts = tuple(path.split("/"))
    if len(parts) > MAX_COMPONENTS:
        return Unreadable(path[:200], f"is nested deeper than {MAX_COMPONENTS} directories")
    if not _RELATIVE_PATH.fullmatch(path):
        return Unreadable(path[:200], "is not a plain relative path")
    return parts


class _Refusal(Exception):
    """The reason, in one clause, for not reading an existing file."""


class DirectoryRoot(Root):
    """A directory tree on this machine. Raises UsageError if `base` is not a readable directory."""

    def __init__(self, base: Path, name: str, *, process_id: int | None = None) -> None:
        super().__init__(name)
        self._base = base
        self._process_id = process_id
        self._operations_left = MAX_OPERATIONS
        self._bytes_left = MAX_TOTAL_BYTES
        try:
            os.close(os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except (OSError, ValueError) as exc:
            raise UsageError(
                f"{base} cannot be opened as a directory: {_describe_error(exc)}", hint="check the path"
            ) from exc

    def read_bytes(self, path: str) -> bytes | Unreadable:
        """Return the bytes of a regular file of at most 1 MiB."""
        return self._call_in_directory(path, self._read_file)

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted; refused beyond 20,000."""
        return self._call_in_directory(path, _list_names)

    def follow(self, path: str) -> str:
        """Return the path without symbolic links, such as those of /sys/class. Only a live machine's are trusted."""
        return str((self._base / path).resolve().relative_to(self._base.resolve()))

    def _call_in_directory(self, path: str, operation: Callable[[int, str], Answer]) -> Answer | Unreadable:
        """Call `operation` with the directory of `path`, opened without following links, and the last name."""
        parts = components(self._resolve_self(path))
        if isinstance(parts, Unreadable):
            return parts
        if self._operations_left <= 0:
            return Unreadable(path, f"more than {MAX_OPERATIONS} files and directories were asked for")
        self._operations_left -= 1
        try:
            directory = os.open(self._base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for part in parts[:-1]:
                    child = os.open(part, _DIRECTORY_FLAGS, dir_fd=directory)
                    os.close(directory)
                    directory = child
                return operation(directory, parts[-1])
            finally:
                os.close(directory)
        except _Refusal as refusal:
            return Unreadable(path, str(refusal))
        except (OSError, ValueError) as exc:
            return Unreadable(path, _describe_error(exc))

    def _resolve_self(self, path: str) -> str:
        """Return the path with `proc/self`, a symbolic link, replaced by the process's own directory on the live
        machine.
        """
        if self._process_id is not None and path.startswith("proc/self/"):
            return f"proc/{self._process_id}/{path.removeprefix('proc/self/')}"
        return path

    def _read_file(self, directory: int, name: str) -> bytes:
        _check_regular(os.stat(name, dir_fd=directory, follow_symlinks=False))
        # O_NONBLOCK: the file may have become a FIFO between the two calls.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(name, flags, dir_fd=directory)
        try:
            _check_regular(os.fstat(descriptor))
            content = bytearray()
            while chunk := os.read(descriptor, 65_536):
                content += chunk
                if len(content) > MAX_FILE_BYTES:
                    raise _Refusal(_TOO_LARGE)
        finally:
            os.close(descriptor)
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise _Refusal(f"more than {MAX_TOTAL_BYTES // 2**20} MiB were asked for")
        return bytes(content)


_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TOO_LARGE = "is larger than 1 MiB"
_TOO_MANY = f"has more than {MAX_DIRECTORY_ENTRIES} entries"


def _list_names(directory: int, name: str) -> tuple[str, ...]:
    descriptor = os.open(name, _DIRECTORY_FLAGS, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in itertools.islice(entries, MAX_DIRECTORY_ENTRIES + 1)]
    finally:
        os.close(descriptor)
    if len(names) > MAX_DIRECTORY_ENTRIES:
        raise _Refusal(_TOO_MANY)
    return tuple(sorted(names))


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _Refusal("is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise _Refusal("is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise _Refusal(_TOO_LARGE)


def _describe_error(exc: OSError | ValueError) -> str:
    if isinstance(exc, ValueError) or exc.errno is None:
        return "is not a plain relative path"
    return _REASONS.get(exc.errno, os.strerror(exc.errno).lower())


def live_root() -> DirectoryRoot:
    """Return the machine that this process runs on, named by its host name."""
    return DirectoryRoot(Path("/"), os.uname().nodename, process_id=os.getpid())


class ArchiveLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of an archive: as text if that is lossless, else in base64."""

    path: str
    text: str | None = None
    base64: bytes | None = None


class ArchiveRoot(Root):
    """A captured machine in one file: a JSON object per line, `{"path": ..., "text": ...}` or `"base64"`.

    An unusable line is left out and listed in `refused`. Raises UsageError if the file cannot be read at all.
    """

    def __init__(self, file: Path, name: str) -> None:
        super().__init__(name)
        self.contents: dict[str, bytes] = {}
        """Files by path."""
        self._directories: dict[str, set[str]] = {"": set()}
        self.refused: list[Unreadable] = []
        raw = read_bounded(file, MAX_ARCHIVE_BYTES)
        for number, line in enumerate(raw.split(b"\n"), start=1):
            if number > MAX_ARCHIVE_FILES:
                self.refused.append(Unreadable(f"line {number}", f"more than {MAX_ARCHIVE_FILES} lines"))
                break
            if line.strip():
                self._add_line(number, line)

    def _add_line(self, number: int, line: bytes) -> None:
        try:
            entry = decode_json(line, ArchiveLine)
        except InvalidContent:
            self.refused.append(Unreadable(f"line {number}", "is not a line of a capture"))
            return
        content = (entry.text or "").encode("utf-8", errors="replace") if entry.base64 is None else entry.base64
        parts = components(entry.path)
        if isinstance(parts, Unreadable):
            self.refused.append(Unreadable(printable(parts.path.encode("utf-8", "replace")), parts.reason))
        elif len(content) > MAX_FILE_BYTES:
            self.refused.append(Unreadable(entry.path, _TOO_LARGE))
        elif entry.path in self.contents:
            self.refused.append(Unreadable(entry.path, "is there twice"))
        else:
            self.contents[entry.path] = content
            self._place(entry.path)

    def _place(self, path: str) -> None:
        """Add the directories above a path; above a known one all are known."""
        is_new = True
        while is_new and path:
            above, _, name = path.rpartition("/")
            is_new = above not in self._directories
            self._directories.setdefault(above, set()).add(name)
            path = above

    def read_bytes(self, path: str) -> bytes | Unreadable:
        """Return the bytes of a file."""
        content = self.contents.get(path)
        return Unreadable(path, ABSENT) if content is None else content

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted; refused beyond 20,000."""
        names = self._directories.get(path)
        if names is None:
            return Unreadable(path, ABSENT)
        if len(names) > MAX_DIRECTORY_ENTRIES:
            return Unreadable(path, _TOO_MANY)
        return tuple(sorted(names))


WITH_SETTINGS = 2
"""The first format of captures that holds the kernel's settings."""
ARCHIVE = "the archive"
"""The name of a whole archive in the list of refused parts, if the archive was cut off."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`capture.json`: the kind of capture, and the files that could not be read when it was made."""

    format: int = 1
    note: str = ""
    redacted: bool = False
    files: int | None = None
    """The number of files besides this one; None if not counted."""
    unreadable: dict[str, str] = {}
    """Path to reason, for files that existed and could not be read."""


class CapturedRoot(Root):
    """A capture with its manifest: a file that was unreadable then is unreadable now, for the same reason."""

    def __init__(self, files: DirectoryRoot | ArchiveRoot) -> None:
        super().__init__(files.name)
        self._files = files
        self.refused: list[Unreadable] = [*files.refused]
        self.manifest = Manifest()
        raw = files.read_bytes(MANIFEST)
        if isinstance(raw, bytes):
            try:
                self.manifest = decode_json(raw, Manifest)
            except InvalidContent:
                self.refused.append(Unreadable(MANIFEST, "is not a manifest"))
        self.holds_settings = self.manifest.format >= WITH_SETTINGS
        expected = self.manifest.files
        # An archive that was cut off between two lines has fewer files than its manifest lists.
        if expected is not None and isinstance(files, ArchiveRoot) and (found := len(files.contents) - 1) < expected:
            self.refused.insert(0, Unreadable(ARCHIVE, f"has {found} of its {expected} files: it was cut off"))

    def read_bytes(self, path: str) -> bytes | Unreadable:
        """Return the bytes of a file."""
        return self._restore_reason(self._files.read_bytes(path))

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted."""
        return self._restore_reason(self._files.list(path))

    def _restore_reason(self, answer: Answer | Unreadable) -> Answer | Unreadable:
        if isinstance(answer, Unreadable) and answer.is_absent and answer.path in self.manifest.unreadable:
            reason = printable(self.manifest.unreadable[answer.path].encode("utf-8", "replace"))
            return Unreadable(answer.path, reason[:200])
        return answer
